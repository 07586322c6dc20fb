import type { Gateway } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { type Cause, type CauseDetail, type CauseName, causeOfFault, type KeyFault } from "./cause.ts";
import type { Outcome } from "./outcome.ts";

/* What the tools' own requests show about gateways and keys. Nothing here sends a request. */

export interface GatewayCondition {
  /** unknown: it got no request since keybearer started or its configuration changed. */
  readonly state: "unknown" | "reachable" | "failing";
  /** When the state began. */
  readonly since: number | null;
  /** Requests that failed in a row. */
  readonly failures: number;
  /** Why the last one failed, in a few words. */
  readonly why: string | null;
}

const UNKNOWN: GatewayCondition = { state: "unknown", since: null, failures: 0, why: null };

/**
 * Whether each gateway can be reached. Any whole response shows that it can, even a 401, a 500, or a stream that ends with
 * an error event. A gateway is failing if there is no connection, no response in time, a cut response, or the error page of
 * a proxy in front of it. Requests that the client or keybearer ended show nothing.
 */
export class GatewayHealth {
  readonly #clock: Clock;
  readonly #conditions = new Map<string, GatewayCondition>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(gateway: Gateway, { end, failure, observed }: Outcome): void {
    if (end !== "complete" && end !== "gateway-failed") return;
    const id = identityOf(gateway);
    const before = this.#conditions.get(id) ?? UNKNOWN;
    if (failure !== null) {
      const since = before.state === "failing" ? before.since : this.#clock.now();
      const failures = before.failures + 1;
      this.#conditions.set(id, { state: "failing", since, failures, why: failure });
    } else if (observed.firstByteElapsed !== null && before.state !== "reachable") {
      this.#conditions.set(id, { state: "reachable", since: this.#clock.now(), failures: 0, why: null });
    }
  }

  of(gateway: Gateway): GatewayCondition {
    return this.#conditions.get(identityOf(gateway)) ?? UNKNOWN;
  }

  /** Forgets gateways that are no longer configured, or have another address. */
  keepOnly(gateways: readonly Gateway[]): void {
    const kept = new Set(gateways.map(identityOf));
    for (const id of this.#conditions.keys()) if (!kept.has(id)) this.#conditions.delete(id);
  }
}

/** Includes the addresses: a request that began before a reload must not report on the new one. */
function identityOf({ name, baseUrl, messagesUrl, proxy }: Gateway): string {
  return `${name} ${baseUrl} ${messagesUrl} ${proxy}`;
}

/** The gateway refuses a tool's key. */
export interface KeyRefusal {
  readonly cause: CauseName;
  /** More than the cause says; null: unknown. */
  readonly detail: CauseDetail | null;
  readonly status: number;
  /** The first refusal since the last success. */
  readonly since: number;
  /** Refusals in a row. */
  readonly times: number;
  readonly advice: string;
  /** What the gateway says about it. */
  readonly words: string | null;
  readonly key: string;
}

/** What the gateway said about a key when it was asked, and when. */
interface Learned {
  readonly key: Secret;
  readonly fault: KeyFault;
  readonly at: number;
}

/** After this the gateway is asked again: the key may have been changed in the console. */
const MAX_AGE_MS = 10 * 60_000;

/** Whether gateways accept the tools' keys, and when each tool was last used. */
export class KeyHealth {
  readonly #clock: Clock;
  readonly #usedBefore: (tool: string) => number | null;
  readonly #refusals = new Map<string, KeyRefusal>();
  readonly #learned = new Map<string, Learned>();
  /** The key of each tool that was last accepted. */
  readonly #accepted = new Map<string, Secret>();
  readonly #lastUses = new Map<string, number>();

  /** @param usedBefore when a tool was last used before this process started. */
  constructor(clock: Clock, usedBefore: (tool: string) => number | null = () => null) {
    this.#clock = clock;
    this.#usedBefore = usedBefore;
  }

  /** @param isFree the request costs nothing, like one for the list of models */
  note(tool: string, key: Secret, { status, observed }: Outcome, isFree = false): void {
    const now = this.#clock.now();
    this.#lastUses.set(tool, now);
    if (status === null) return;
    const { cause, errorText } = observed;
    if (cause === null) {
      if (status >= 400) return;
      this.#accepted.set(tool, key);
      if (isFree && this.#lacksMoney(tool, key)) return;
      this.#refusals.delete(tool);
      this.#learned.delete(tool);
      return;
    }
    // A wrong model or path says nothing about the key.
    if (!cause.concernsKey) return;
    const before = this.#refusals.get(tool);
    const isSame = before !== undefined && before.key === key.fingerprint;
    this.#refusals.set(tool, {
      cause: cause.name,
      detail: cause.detail,
      status,
      since: isSame ? before.since : now,
      times: isSame ? before.times + 1 : 1,
      advice: cause.advice,
      words: errorText,
      key: key.fingerprint,
    });
  }

  /**
   * Gateways list their models to a key without balance (new-api v0.13.2, 2d8e50bf) or in a used-up window (sub2api 0.1.135).
   * A key that got a 401 is not listed any, so a list shows that it is accepted again.
   */
  #lacksMoney(tool: string, key: Secret): boolean {
    const refusal = this.#refusals.get(tool);
    if (refusal === undefined || refusal.key !== key.fingerprint) return false;
    return refusal.cause === "balance-or-quota" && refusal.status !== 401;
  }

  /** The gateway was asked what is wrong with a key that it refuses. */
  learn(tool: string, key: Secret, fault: KeyFault): void {
    const refusal = this.#refusals.get(tool);
    // Meanwhile it may have been accepted, or replaced.
    if (refusal === undefined || refusal.key !== key.fingerprint) return;
    this.#learned.set(tool, { key, fault, at: this.#clock.now() });
    const { name, detail, advice } = causeOfFault(fault);
    this.#refusals.set(tool, { ...refusal, cause: name, detail, advice });
  }

  /** A cause with what is known about the tool's key beyond the gateway's answer. */
  refine(tool: string, key: Secret, cause: Cause): Cause {
    if (cause.isAmbiguous) {
      const fault = this.#faultOf(tool, key);
      return fault === null ? cause : causeOfFault(fault);
    }
    // A gateway that does not know a key which it accepted before has deleted it.
    const isUnknown = cause.name === "incomplete-key" && cause.detail === null;
    return isUnknown && this.#accepted.get(tool)?.equals(key) ? causeOfFault("key-deleted") : cause;
  }

  #faultOf(tool: string, key: Secret): KeyFault | null {
    const learned = this.#learned.get(tool);
    if (learned === undefined || !learned.key.equals(key)) return null;
    return Math.abs(this.#clock.now() - learned.at) < MAX_AGE_MS ? learned.fault : null;
  }

  /** null: the key is not known to be refused. */
  of(tool: string): KeyRefusal | null {
    return this.#refusals.get(tool) ?? null;
  }

  lastUse(tool: string): number | null {
    return this.#lastUses.get(tool) ?? this.#usedBefore(tool);
  }
}
