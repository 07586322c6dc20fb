import type { Wire } from "./console.ts";

/** How many calls a console accepts within a time. */
export interface Allowance {
  readonly calls: number;
  readonly milliseconds: number;
}

interface Waiting {
  readonly now: () => number;
  readonly pause: (milliseconds: number) => Promise<void>;
}

/** The longest time that any console counts calls over. */
const LONGEST_MS = 180_000;

/**
 * The times of the calls to one console. A call waits only when the allowance is used up, so that a first walk is as fast as
 * the console answers. Spreading the calls evenly instead made 300 pages of new-api take 212 s.
 */
export class CallHistory {
  #times: number[] = [];

  /** Returns when the next call may go, and counts it. */
  async wait({ calls, milliseconds }: Allowance, { now, pause }: Waiting): Promise<void> {
    const time = now();
    // A clock that was set back leaves times in the future, which say nothing.
    this.#times = this.#times.filter((at) => at > time - LONGEST_MS && at <= time);
    // The call that must leave the window before the next one may go.
    const oldest = this.#times.filter((at) => at > time - milliseconds).at(-calls);
    if (oldest !== undefined) await pause(oldest + milliseconds - time);
    this.#times.push(now());
  }
}

/** The same connection, within what the console allows at the time of the call. */
export function pacedWire(
  wire: Wire,
  means: Waiting & { readonly calls: CallHistory },
  allowance: () => Allowance,
): Wire {
  return {
    async ask(question) {
      await means.calls.wait(allowance(), means);
      return wire.ask(question);
    },
  };
}
