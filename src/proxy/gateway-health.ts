import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import type { Outcome } from "./exchange.ts";

/** What the last requests showed of a gateway. */
export interface GatewayCondition {
  /** unknown: no request has gone to it since keybearer started or the gateway was changed. */
  readonly state: "unknown" | "reachable" | "failing";
  /** When the state began: the first failure since the last answer, or the first answer since the last failure. */
  readonly since: number | null;
  /** Requests that failed in a row. */
  readonly failures: number;
  /** Why the last one failed, in a few words. */
  readonly why: string | null;
}

const UNKNOWN: GatewayCondition = { state: "unknown", since: null, failures: 0, why: null };

/**
 * Keeps whether each gateway can be reached, by the requests that tools send. It sends none itself.
 *
 * A whole answer makes a gateway reachable, whatever it says: a 401, a 500 and a stream that ends with an error event
 * come from a gateway that works. No connection, no answer in time, a cut answer, and the error page of a proxy in front
 * of the gateway make it failing. A cut answer did reach the gateway, but the request was lost all the same, and a gateway
 * that dies in every stream is one to know of. Requests that the client or keybearer ended say nothing.
 */
export class GatewayHealth {
  readonly #clock: Clock;
  readonly #conditions = new Map<string, GatewayCondition>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A request to this gateway is over. */
  note(gateway: Gateway, { end, failure, firstByteElapsed }: Outcome): void {
    if (end !== "complete" && end !== "gateway-failed") return;
    const id = identityOf(gateway);
    const before = this.#conditions.get(id) ?? UNKNOWN;
    if (failure !== null) {
      const since = before.state === "failing" ? before.since : this.#clock.now();
      const failures = before.failures + 1;
      this.#conditions.set(id, { state: "failing", since, failures, why: failure });
    } else if (firstByteElapsed !== null && before.state !== "reachable") {
      this.#conditions.set(id, { state: "reachable", since: this.#clock.now(), failures: 0, why: null });
    }
  }

  of(gateway: Gateway): GatewayCondition {
    return this.#conditions.get(identityOf(gateway)) ?? UNKNOWN;
  }

  /** Forgets gateways that are no longer configured, or no longer at the same address. */
  keepOnly(gateways: readonly Gateway[]): void {
    const kept = new Set(gateways.map(identityOf));
    for (const id of this.#conditions.keys()) if (!kept.has(id)) this.#conditions.delete(id);
  }
}

/** A gateway at another address is another one. A request that began before a reload still notes the old one. */
function identityOf({ name, baseUrl, messagesUrl, proxy }: Gateway): string {
  return `${name} ${baseUrl} ${messagesUrl} ${proxy}`;
}
