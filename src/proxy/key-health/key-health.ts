import type { Clock } from "../../core/clock.ts";
import type { Secret } from "../../core/secret.ts";
import type { Outcome } from "../outcome.ts";
import {
  type Cause,
  type CauseDetail,
  type CauseName,
  causeOfEndedKey,
  causeOfFault,
  isModelRefusal,
  isUnexplained,
  type KeyFault,
  NO_MODELS_LISTED,
  type Tested,
} from "./cause.ts";

/* What the tools' own requests and the probes show about keys. Nothing here sends a request. */

/** The gateway refuses a tool's key. */
export interface KeyRefusal {
  readonly cause: CauseName;
  /** More than the cause says; null: unknown. */
  readonly detail: CauseDetail | null;
  /** null: it listed its models, and reported the fault when it was asked about the key. */
  readonly status: number | null;
  /** The first refusal since the last success. */
  readonly since: number;
  /** The last one. */
  readonly at: number;
  /** Refusals in a row. */
  readonly times: number;
  readonly next: string;
  /** What the gateway says about it. */
  readonly words: string | null;
  readonly key: string;
}

/** What the gateway said about a key when it was asked, and when. */
interface Learned {
  readonly key: Secret;
  /** null: it did not say. */
  readonly fault: KeyFault | null;
  readonly at: number;
}

/** After this the gateway is asked again: the key may have been changed in the console. */
const MAX_AGE_MS = 10 * 60_000;

/**
 * sub2api 0.1.135 checks requests against one cache of a plan, of five minutes, and reports it from another, of ten seconds. So
 * it lists models and reports that something is left while it refuses every request with 403.
 */
const STALE_PLAN_MS = 5 * 60_000;

/** When the gateway accepted a tool's key, since keybearer started. */
export interface KeyAcceptance {
  readonly at: number;
  /** When it last showed that there is money; null: not yet. */
  readonly fundedAt: number | null;
}

/** Whether gateways accept the tools' keys, and when each tool was last used. */
export class KeyHealth {
  readonly #clock: Clock;
  readonly #usedBefore: (tool: string) => number | null;
  readonly #refusals = new Map<string, KeyRefusal>();
  /** By tool: what must be tested before its refusal is over. */
  readonly #endsWith = new Map<string, Tested>();
  readonly #learned = new Map<string, Learned>();
  /** By tool: the key that was last accepted. */
  readonly #accepted = new Map<string, KeyAcceptance & { readonly key: Secret }>();
  readonly #lastUses = new Map<string, number>();

  /** @param usedBefore when a tool was last used before this process started. */
  constructor(clock: Clock, usedBefore: (tool: string) => number | null = () => null) {
    this.#clock = clock;
    this.#usedBefore = usedBefore;
  }

  /** @param isFree the request costs nothing, like one for the list of models */
  note(tool: string, key: Secret, { status, observed }: Outcome, isFree = false): void {
    this.#lastUses.set(tool, this.#clock.now());
    if (status === null) return;
    const { cause, errorText } = observed;
    if (cause !== null) {
      this.refuse(tool, key, { cause, status, message: errorText });
    } else if (status < 400) {
      this.accept(tool, key, isFree ? ["key"] : ["request"]);
    }
  }

  /** The gateway accepted the key: in a request of the tool, or in a probe. @param tested what that answer tested */
  accept(tool: string, key: Secret, tested: readonly Tested[]): void {
    const at = this.#clock.now();
    const isFunded = tested.includes("money") || tested.includes("request");
    const fundedAt = isFunded ? at : (this.accepted(tool, key)?.fundedAt ?? null);
    this.#accepted.set(tool, { key, at, fundedAt });
    this.#learned.delete(tool);
    if (!this.#isStillRefused(tool, key, tested)) this.#refusals.delete(tool);
  }

  /** The gateway refused a request of the tool, or a probe. */
  refuse(
    tool: string,
    key: Secret,
    refused: { readonly cause: Cause; readonly status: number | null; readonly message: string | null },
  ): void {
    const { status, message } = refused;
    // The request may have been sent before the gateway was asked about the key.
    const cause = this.refine(tool, key, refused.cause);
    // Another answer than the one it was asked about: what it said then no longer holds. 429 and 5xx come before the key is
    // looked at.
    const isAboutKey = status === null || (status < 500 && status !== 429);
    if (isAboutKey && cause.detail !== this.#learned.get(tool)?.fault) this.#learned.delete(tool);
    // A wrong model or path says nothing about the key.
    if (!cause.concernsKey) return;
    const now = this.#clock.now();
    const before = this.#refusals.get(tool);
    const isSame = before !== undefined && before.key === key.fingerprint;
    this.#endsWith.set(tool, cause.endsWith);
    this.#refusals.set(tool, {
      cause: cause.name,
      detail: cause.detail,
      status,
      since: isSame ? before.since : now,
      at: now,
      times: isSame ? before.times + 1 : 1,
      next: cause.next,
      words: message,
      key: key.fingerprint,
    });
  }

  /**
   * Gateways list their models to a key without balance (new-api v0.13.2, 2d8e50bf) or in a used-up window (sub2api 0.1.135).
   * A key that got a 401 is not listed any, so a list shows that it is accepted again.
   */
  #isStillRefused(tool: string, key: Secret, tested: readonly Tested[]): boolean {
    const refusal = this.#refusals.get(tool);
    if (refusal === undefined || refusal.key !== key.fingerprint) return false;
    if (tested.includes("request") || refusal.status === 401) return false;
    const needed = this.#endsWith.get(tool) ?? "request";
    const isStale = needed === "plan" && this.#clock.now() - refusal.at < STALE_PLAN_MS;
    return isStale || !tested.includes(needed);
  }

  /** The gateway was asked what is wrong with a key that it refuses. @param fault null: it did not say */
  learn(tool: string, key: Secret, fault: KeyFault | null): void {
    const refusal = this.#refusals.get(tool);
    // Meanwhile it may have been accepted, or replaced.
    if (refusal === undefined || refusal.key !== key.fingerprint) return;
    this.#learned.set(tool, { key, fault, at: this.#clock.now() });
    // The refusal may know more than the fault: which window it is.
    if (fault === null || fault === refusal.detail) return;
    const { name, detail, next, endsWith } = causeOfFault(fault);
    this.#endsWith.set(tool, endsWith);
    this.#refusals.set(tool, { ...refusal, cause: name, detail, next });
  }

  /** Whether the gateway was asked about this key lately. Such questions are few, see KeyCallBudget. */
  wasAsked(tool: string, key: Secret): boolean {
    return this.#learnedOf(tool, key) !== null;
  }

  /** A cause with what is known about the tool's key beyond the gateway's answer. */
  refine(tool: string, key: Secret, cause: Cause): Cause {
    // After the first refusal the key's source is read again, so one retry may have a new key. If it has the same one, further
    // retries only delay the gateway's words: Claude Code's by 17 s.
    const refusal = this.#refusals.get(tool);
    const isRefused = refusal?.key === key.fingerprint;
    if (cause.concernsKey && cause.canRetry && isRefused) return { ...cause, canRetry: false };
    if (isModelRefusal(cause) && isRefused && refusal.detail === "no-models") return NO_MODELS_LISTED;
    if (!isUnexplained(cause)) return cause;
    const fault = this.#learnedOf(tool, key)?.fault ?? null;
    if (fault !== null) return causeOfFault(fault);
    return this.#accepted.get(tool)?.key.equals(key) ? causeOfEndedKey(cause) : cause;
  }

  #learnedOf(tool: string, key: Secret): Learned | null {
    const learned = this.#learned.get(tool);
    if (learned === undefined || !learned.key.equals(key)) return null;
    return Math.abs(this.#clock.now() - learned.at) < MAX_AGE_MS ? learned : null;
  }

  /** null: the key is not known to be refused. */
  of(tool: string): KeyRefusal | null {
    return this.#refusals.get(tool) ?? null;
  }

  /** null: the gateway did not accept this key since keybearer started. */
  accepted(tool: string, key: Secret): KeyAcceptance | null {
    const accepted = this.#accepted.get(tool);
    return accepted?.key.equals(key) ? accepted : null;
  }

  lastUse(tool: string): number | null {
    return this.#lastUses.get(tool) ?? this.#usedBefore(tool);
  }
}
