import type { Gateway } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
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
}

const UNKNOWN: GatewayCondition = { state: "unknown", since: null, failures: 0, problem: null };

/**
 * Whether each gateway can be reached. Any whole response shows that it can, even a 401, a 500, or a stream that ends with
 * an error event. A gateway is failing if there is no connection, no response in time, a cut response, or the error page of
 * a proxy in front of it. Requests that the client or keybearer ended show nothing.
 */
export class GatewayHealth {
  readonly #clock: Clock;
  readonly #conditions = new Map<string, GatewayCondition>();
  readonly #identities = new WeakMap<Gateway, string>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(gateway: Gateway, { end, problem, observed }: Outcome): void {
    if (end !== "complete" && end !== "gateway-failed") return;
    const id = this.#identify(gateway);
    const before = this.#conditions.get(id) ?? UNKNOWN;
    if (problem !== null) {
      const since = before.state === "failing" ? before.since : this.#clock.now();
      const failures = before.failures + 1;
      this.#conditions.set(id, { state: "failing", since, failures, problem });
    } else if (observed.firstByteElapsed !== null && before.state !== "reachable") {
      this.#conditions.set(id, { state: "reachable", since: this.#clock.now(), failures: 0, problem: null });
    }
  }

  /** A request waits for the gateway. It did not fail yet, so it does not count. */
  noteWait(gateway: Gateway, problem: string): void {
    const id = this.#identify(gateway);
    const known = this.#conditions.get(id);
    const { since, failures } =
      known?.state === "failing" ? known : { since: this.#clock.now(), failures: 0 };
    this.#conditions.set(id, { state: "failing", since, failures, problem });
  }

  of(gateway: Gateway): GatewayCondition {
    return this.#conditions.get(this.#identify(gateway)) ?? UNKNOWN;
  }

  /** Forgets gateways that are no longer configured, or have another address. */
  keepOnly(gateways: readonly Gateway[]): void {
    const kept = new Set(gateways.map((gateway) => this.#identify(gateway)));
    for (const id of this.#conditions.keys()) if (!kept.has(id)) this.#conditions.delete(id);
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
