/** A misfortune ordered for a key. Times in milliseconds. */
export type Fault =
  /** Late: before the headers, between the chunks, or both. */
  | { readonly kind: "slow"; readonly beforeHeaders?: number; readonly betweenChunks?: number }
  /** Takes the request and never says anything. */
  | { readonly kind: "silence" }
  /** Ends the connection after so many chunks of the answer; before its headers when not given. */
  | { readonly kind: "cut"; readonly afterChunks?: number }
  /** Any answer: 429, 529, 401, 302 with a Location… An object is sent as JSON. */
  | {
      readonly kind: "refuse";
      readonly status: number;
      readonly body?: string | object;
      readonly headers?: Readonly<Record<string, string>>;
      /** Answers while the request's body is still coming. Default false. */
      readonly early?: boolean;
    }
  /** bytes: no HTTP at all. html: 200 and a web page. text: 200, said to be JSON, and not. */
  | { readonly kind: "garbage"; readonly what: "bytes" | "html" | "text" }
  /** An error whose body repeats the request's headers, the key with them. */
  | { readonly kind: "echo"; readonly status?: number };

/** Faults by key. Orders for one key are served in turn: each for its number of requests, then the next. */
export interface Faults {
  order(keyId: number, fault: Fault, times: number): void;
  clear(keyId: number): void;
  /** The fault of this request, used up by it; or null. */
  take(keyId: number): Fault | null;
}

export function createFaults(): Faults {
  const queues = new Map<number, { readonly fault: Fault; left: number }[]>();
  return {
    order(keyId, fault, times) {
      if (!(times >= 1)) throw new Error("a fault is ordered for one request at least");
      const queue = queues.get(keyId) ?? [];
      queue.push({ fault, left: times });
      queues.set(keyId, queue);
    },
    clear(keyId) {
      queues.delete(keyId);
    },
    take(keyId) {
      const queue = queues.get(keyId);
      const first = queue?.[0];
      if (queue === undefined || first === undefined) return null;
      first.left -= 1;
      if (first.left < 1) queue.shift();
      return first.fault;
    },
  };
}

/** How an answer is delivered when a fault bends it without replacing it. */
export interface Pace {
  readonly beforeHeaders: number;
  /** null: each word after the sandbox's own delay. */
  readonly betweenChunks: number | null;
  /** null: to the end. */
  readonly cutAfter: number | null;
}

export function paceOf(fault: Fault | null): Pace {
  if (fault?.kind === "slow") {
    return {
      beforeHeaders: fault.beforeHeaders ?? 0,
      betweenChunks: fault.betweenChunks ?? null,
      cutAfter: null,
    };
  }
  const cutAfter = fault?.kind === "cut" ? (fault.afterChunks ?? null) : null;
  return { beforeHeaders: 0, betweenChunks: null, cutAfter };
}
