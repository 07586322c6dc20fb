import type { Secret } from "../core/secret.ts";
import { countedSession } from "../core/session-id.ts";
import type { Call } from "./call.ts";
import type { OutputSoFar } from "./observer.ts";
import { buildOpening } from "./records.ts";

/** A call in flight, for the owner to see. It shows nothing that the record will not hold. */
export interface InFlightCall extends OutputSoFar {
  readonly tool: string;
  /** As limits count it: see sessionOf(). */
  readonly session: string;
  readonly model: string | null;
  readonly started_at: number;
  /** It waits for capacity under its tool's limits, or for its gateway. */
  readonly waiting: boolean;
}

/** How many calls of a session are in flight. */
export interface SessionInFlight {
  readonly tool: string;
  readonly session: string;
  readonly calls: number;
}

/** A connection that can be cut. */
export interface Destroyable {
  destroy(): unknown;
}

/** The calls in flight, so that the owner can see them and cut a tool's. */
export class InFlight {
  readonly #connections = new Map<Call, Destroyable>();
  readonly #onRemoved = new Set<() => void>();
  readonly #currentName: (tool: string) => string;

  /** @param currentName of a tool that was renamed after a call began */
  constructor(currentName: (tool: string) => string = (tool) => tool) {
    this.#currentName = currentName;
  }

  get size(): number {
    return this.#connections.size;
  }

  add(call: Call, connection: Destroyable): void {
    this.#connections.set(call, connection);
  }

  remove(call: Call): void {
    this.#connections.delete(call);
    for (const check of this.#onRemoved) check();
  }

  /** Resolves once no call has this key, or the signal is aborted. */
  whenUnused(key: Secret, signal: AbortSignal): Promise<void> {
    const isUsed = () => [...this.#connections.keys()].some((call) => call.key?.equals(key) === true);
    return new Promise((resolve) => {
      const check = () => {
        if (!signal.aborted && isUsed()) return;
        this.#onRemoved.delete(check);
        signal.removeEventListener("abort", check);
        resolve();
      };
      this.#onRemoved.add(check);
      signal.addEventListener("abort", check);
      check();
    });
  }

  /** At most `max`, the oldest first. */
  list(max: number): InFlightCall[] {
    return [...this.#connections.keys()].slice(0, max).map(shown);
  }

  /** Of callers that are known. */
  sessions(): SessionInFlight[] {
    const sessions = new Map<string, SessionInFlight>();
    for (const call of this.#connections.keys()) {
      if (call.tool === null) continue;
      const session = { tool: this.#currentName(call.tool.name), session: sessionOf(call) };
      const key = JSON.stringify(session);
      sessions.set(key, { ...session, calls: (sessions.get(key)?.calls ?? 0) + 1 });
    }
    return [...sessions.values()];
  }

  /** Cuts the calls of a tool. Returns how many there were. */
  cut(tool: string): number {
    const name = this.#currentName(tool);
    return this.#cutWhere((call) => call.tool !== null && this.#currentName(call.tool.name) === name);
  }

  /** Cuts the calls of a session of a tool. Returns how many there were. */
  cutSession(tool: string, session: string): number {
    const isOfTool = (call: Call) => call.tool !== null && this.#currentName(call.tool.name) === tool;
    // One that counts in the overflow session is also cut by its own id.
    const isOfSession = (call: Call) => sessionOf(call) === session || call.head.session === session;
    return this.#cutWhere((call) => isOfTool(call) && isOfSession(call));
  }

  cutAll(): void {
    this.#cutWhere(() => true);
  }

  #cutWhere(isWanted: (call: Call) => boolean): number {
    const found = [...this.#connections].filter(([call]) => isWanted(call));
    for (const [call, connection] of found) {
      call.isCanceled = true;
      connection.destroy();
    }
    return found.length;
  }
}

/** The session in which the limits count it. */
function sessionOf({ head, tokenName, startedAt, lease }: Call): string {
  const counted = lease?.reservation.session ?? null;
  if (counted !== null) return counted.id;
  const admittedAt = lease?.reservation.at ?? startedAt;
  return countedSession({ session: head.session, token: tokenName }, admittedAt);
}

function shown(call: Call): InFlightCall {
  const { tool, model } = buildOpening(call);
  const output = call.observer?.outputSoFar() ?? { output_tokens: null, tokens_by: null };
  return {
    tool: tool ?? "",
    session: sessionOf(call),
    model,
    started_at: call.startedAt,
    waiting: call.isWaiting,
    ...output,
  };
}
