import type { Gateway } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Outcome } from "./outcome.ts";

/* What the tools' own requests show about gateways. Nothing here sends a request. */

export interface GatewayCondition {
  /** unknown: it got no request since keybearer started or its configuration changed. */
  readonly state: "unknown" | "reachable" | "failing";
  /** When the state began. */
  readonly since: number | null;
  /** Requests that failed in a row; 0 while it is failing: requests waited for it, and none has failed yet. */
  readonly failures: number;
  /** Why the last one failed, in a few words. */
  readonly problem: string | null;
  /** From the first sign that it fails to the last one, also of attempts to connect; 0: there is at most one. */
  readonly failedForMs: number;
}

const UNKNOWN: GatewayCondition = {
  state: "unknown",
  since: null,
  failures: 0,
  problem: null,
  failedForMs: 0,
};

/** After a cut response, the next one must be whole or last so long: some gateways send a head and then cut every stream. */
const LASTING_MS = MINUTE_MS;

/**
 * Whether each gateway can be reached. Any whole response shows that it can, even a 401, a 500, or a stream that ends with
 * an error event. A gateway is failing if there is no connection, no response in time, a cut response, or the error page of a
 * proxy in front of it. While it is failing, the head of a response is enough to end that, except after a cut response.
 * Requests that the client or keybearer ended show nothing.
 */
export class GatewayHealth {
  readonly #clock: Clock;
  readonly #conditions = new Map<string, GatewayCondition>();
  /** When each gateway that is failing began to, by clock.elapsed(). */
  readonly #failingSince = new Map<string, number>();
  /** Gateways whose last failure was a cut response: when a response has begun since, by clock.elapsed(). null: none has. */
  readonly #headSinceCut = new Map<string, number | null>();
  readonly #identities = new WeakMap<Gateway, string>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(gateway: Gateway, { end, problem, observed }: Outcome): void {
    if (end !== "complete" && end !== "gateway-failed") return;
    const id = this.#identify(gateway);
    const before = this.#find(id);
    if (problem !== null) {
      this.#setFailing(id, before.failures + 1, problem);
      if (end === "gateway-failed" && observed.firstByteElapsed !== null) this.#headSinceCut.set(id, null);
    } else if (observed.firstByteElapsed !== null && before.state !== "reachable") this.#setReachable(id);
  }

  /** The head of a response arrived, and the gateway itself sent it. */
  noteHead(gateway: Gateway): void {
    // The usual case.
    if (this.#failingSince.size === 0) return;
    const id = this.#identify(gateway);
    if (!this.#failingSince.has(id)) return;
    const head = this.#headSinceCut.get(id);
    if (head === undefined) this.#setReachable(id);
    else if (head === null) this.#headSinceCut.set(id, this.#clock.elapsed());
  }

  /** A request waits for the gateway, or it could still not be connected to. No request failed yet, so none is counted. */
  noteWait(gateway: Gateway, problem: string): void {
    const id = this.#identify(gateway);
    this.#setFailing(id, this.#find(id).failures, problem);
  }

  of(gateway: Gateway): GatewayCondition {
    return this.#find(this.#identify(gateway));
  }

  /** Forgets gateways that are no longer configured, or have another address. */
  keepOnly(gateways: readonly Gateway[]): void {
    const kept = new Set(gateways.map((gateway) => this.#identify(gateway)));
    for (const id of this.#conditions.keys()) {
      if (kept.has(id)) continue;
      this.#conditions.delete(id);
      this.#failingSince.delete(id);
      this.#headSinceCut.delete(id);
    }
  }

  #find(id: string): GatewayCondition {
    const head = this.#headSinceCut.get(id) ?? null;
    if (head !== null && this.#clock.elapsed() - head >= LASTING_MS) this.#setReachable(id);
    return this.#conditions.get(id) ?? UNKNOWN;
  }

  #setFailing(id: string, failures: number, problem: string): void {
    const known = this.#conditions.get(id);
    const since = known?.state === "failing" ? known.since : this.#clock.now();
    const elapsed = this.#clock.elapsed();
    const first = this.#failingSince.get(id) ?? elapsed;
    this.#failingSince.set(id, first);
    this.#headSinceCut.delete(id);
    this.#conditions.set(id, { state: "failing", since, failures, problem, failedForMs: elapsed - first });
  }

  #setReachable(id: string): void {
    this.#failingSince.delete(id);
    this.#headSinceCut.delete(id);
    this.#conditions.set(id, { ...UNKNOWN, state: "reachable", since: this.#clock.now() });
  }

  /** Includes the addresses: a request that began before a reload must not report on the new one. */
  #identify(gateway: Gateway): string {
    const known = this.#identities.get(gateway);
    if (known !== undefined) return known;
    const { name, baseUrl, messagesUrl, proxy } = gateway;
    const identity = `${name} ${baseUrl} ${messagesUrl} ${proxy}`;
    this.#identities.set(gateway, identity);
    return identity;
  }
}
