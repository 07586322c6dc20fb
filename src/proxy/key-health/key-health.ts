import type { Tool } from "../../config/schema.ts";
import type { KeyState } from "../../config/snapshot.ts";
import { advice } from "../../core/advice.ts";
import type { Clock } from "../../core/clock.ts";
import { type Refusal, refuse } from "../../core/refusal.ts";
import type { Secret } from "../../core/secret.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { durationInWords } from "../../limits/format.ts";
import type { Outcome } from "../outcome.ts";
import {
  type Cause,
  causeFor,
  causeOfEndedKey,
  isModelRefusal,
  isUnexplained,
  type KeyDetail,
  NO_MODELS_LISTED,
  type Tested,
} from "./cause.ts";
import {
  type ConsoleView,
  type KeyFacts,
  type KeyPause,
  type KeyRefusal,
  type KeySummary,
  missingKey,
  reportKey,
} from "./key-problem.ts";

/** Gateways lock an address out after many requests with a bad key: sub2api 0.1.179 after about 120. */
const MAX_DENIALS = 5;
const PAUSE_MS = MINUTE_MS;

/** After this the gateway is asked about a key again: it may have been changed in the console. */
const ASK_AGAIN_MS = 10 * MINUTE_MS;

/**
 * sub2api 0.1.135 checks requests against one cache of a plan, of five minutes, and reports it from another, of ten seconds. So
 * it lists models and reports that something is left while it refuses every request with 403.
 */
const STALE_PLAN_MS = 5 * MINUTE_MS;

/** What an accepted request tested, if it costs nothing like one for the list of models, and otherwise. */
const FREE: readonly Tested[] = ["key"];
const PAID: readonly Tested[] = ["request"];

/** What is known of one key, see KeyFacts. */
interface Known {
  key: Secret;
  acceptedAt: number | null;
  fundedAt: number | null;
  refusal: KeyRefusal | null;
  /** When the gateway was last asked what is wrong with the key; detail null: it did not say. */
  asked: { readonly at: number; readonly detail: KeyDetail | null } | null;
  /** 401s in a row. */
  denials: number;
  pause: Pause | null;
}

interface Pause {
  readonly since: number;
  /** On the clock that never goes back. */
  until: number;
  refused: number;
  /** The id of the request that tries the key. */
  probe: string | null;
}

/**
 * What is known of each tool's key: whether its gateway accepts it, since when it does not, why, and what to do about it. The
 * tools' requests and the probes report here, and every view asks here. What a console knows of a key is added when a view
 * asks. Nothing here sends a request.
 *
 * It also stops sending a tool's requests after five 401s in a row, so that a tool that retries with a dead key does not lock
 * the others out. After a minute one request tries the key: if it is accepted, the pause ends; another 401 starts the next
 * minute.
 */
export class KeyHealth {
  readonly #clock: Clock;
  /** By tool: its last key. A new key begins without a past. */
  readonly #known = new Map<string, Known>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  // Requests

  /** null: the request may be sent. Every request that may must be settled. */
  admit(tool: string, key: Secret, id: string): Refusal | null {
    const known = this.#findOrAdd(tool, key);
    return known.pause === null ? null : this.#tryPaused(tool, known, known.pause, id);
  }

  /** A good response began. The pause ends now: a stream may go on for minutes. */
  endPause(tool: string, key: Secret): void {
    const known = this.#find(tool, key);
    if (known !== null) resume(known);
  }

  /** A cause with what is known about the tool's key beyond the gateway's answer. */
  refine(tool: string, key: Secret, cause: Cause): Cause {
    const known = this.#find(tool, key);
    return known === null ? cause : this.#refine(known, cause);
  }

  /** A request of the tool ended. @param isFree it costs nothing, like one for the list of models */
  settle(tool: string, key: Secret, id: string, outcome: Outcome, isFree: boolean): void {
    const { end, status, refusal, observed } = outcome;
    // null: the tool has another key by now.
    const known = this.#find(tool, key);
    if (known === null) return;
    const { pause } = known;
    const isProbe = pause?.probe === id;
    if (isProbe) pause.probe = null;
    // A refusal of ours, or no answer at all, says nothing about the key.
    if (status === null || refusal !== null || end === "refused") return;
    const { cause, errorText } = observed;
    const now = this.#clock.now();
    if (cause !== null) this.#refuse(known, cause, status, errorText, now);
    else if (status < 400) noteAcceptance(known, isFree ? FREE : PAID, now);
    // Some gateways pass on the 401 of the provider behind them. It says nothing about this key.
    if (status === 401) {
      if (cause?.concernsKey) this.#countDenial(known, isProbe);
    } else if (status < 500 && status !== 429) resume(known);
  }

  // Probes and questions

  /** A probe showed that the gateway accepts the key. @param tested what its answer tested */
  accept(tool: string, key: Secret, tested: readonly Tested[]): void {
    const known = this.#findOrAdd(tool, key);
    noteAcceptance(known, tested, this.#clock.now());
    resume(known);
  }

  /** The gateway refused a probe. @param status null: see KeyRefusal */
  refuse(tool: string, key: Secret, cause: Cause, status: number | null, message: string | null): void {
    this.#refuse(this.#findOrAdd(tool, key), cause, status, message, this.#clock.now());
  }

  /** The gateway was asked what is wrong with a key that it refuses. @param detail null: it did not say */
  learn(tool: string, key: Secret, detail: KeyDetail | null): void {
    const known = this.#find(tool, key);
    // Meanwhile it may have been accepted, or replaced.
    if (known === null || known.refusal === null) return;
    known.asked = { at: this.#clock.now(), detail };
    // The refusal may know more than the detail: which window it is.
    if (detail === null || detail === known.refusal.cause.detail) return;
    known.refusal = { ...known.refusal, cause: causeFor(detail) };
  }

  /** Whether the gateway was asked about this key lately. Such questions are few, see mirror/consoles/key-calls.ts. */
  wasAsked(tool: string, key: Secret): boolean {
    const known = this.#find(tool, key);
    return known !== null && this.#isRecent(known.asked);
  }

  // The owner

  /** The owner changed something: every key is tried again. */
  endPauses(): void {
    for (const known of this.#known.values()) resume(known);
  }

  /** A tool has another name from now on, and the same key. */
  rename({ from, to }: { readonly from: string; readonly to: string }): void {
    const known = this.#known.get(from);
    if (known === undefined) return;
    this.#known.delete(from);
    this.#known.set(to, known);
  }

  // Views

  /** What is known of the key that was read for a tool. @param console what the gateway's console knows of it */
  report(tool: Pick<Tool, "name" | "key">, key: KeyState, console: ConsoleView): KeySummary {
    if (key.state !== "ready") return { ...missingKey(tool, key), refusal: null, pause: null };
    return reportKey(tool, key, this.#facts(tool.name, key.key), console, this.#clock.now());
  }

  /** Whether its gateway accepted the key since keybearer started. */
  wasAccepted(tool: string, key: Secret): boolean {
    return this.#facts(tool, key).acceptedAt !== null;
  }

  #facts(tool: string, key: Secret): KeyFacts {
    const known = this.#find(tool, key);
    if (known === null) return NOTHING_KNOWN;
    const { refusal, acceptedAt, fundedAt, pause } = known;
    return { refusal, acceptedAt, fundedAt, pause: pause === null ? null : this.#shownPause(pause) };
  }

  #shownPause({ since, until, refused, probe }: Pause): KeyPause {
    const wait = Math.max(0, Math.round(until - this.#clock.elapsed()));
    return { since, until: this.#clock.now() + wait, probing: probe !== null, refused };
  }

  /** null: of this key nothing is known, or the tool has another one by now. */
  #find(tool: string, key: Secret): Known | null {
    const known = this.#known.get(tool);
    if (known === undefined) return null;
    if (known.key === key) return known;
    if (!known.key.equals(key)) return null;
    // After a reload the same key is another object. To compare two objects takes two digests.
    known.key = key;
    return known;
  }

  #findOrAdd(tool: string, key: Secret): Known {
    const found = this.#find(tool, key);
    if (found !== null) return found;
    const added: Known = {
      key,
      acceptedAt: null,
      fundedAt: null,
      refusal: null,
      asked: null,
      denials: 0,
      pause: null,
    };
    this.#known.set(tool, added);
    return added;
  }

  /** null: the request tries the key. */
  #tryPaused(tool: string, { denials, refusal }: Known, pause: Pause, id: string): Refusal | null {
    const wait = pause.until - this.#clock.elapsed();
    if (wait <= 0 && pause.probe === null) {
      pause.probe = id;
      return null;
    }
    pause.refused += 1;
    const next =
      wait > 0
        ? `the next request is sent in ${durationInWords(wait)}`
        : "another request is trying the key right now";
    const isUseless = refusal?.cause.newKey === "useless";
    const rotate = isUseless ? "" : `. with a new key it works at once: ${advice.rotate(tool)}`;
    const answer = refusal === null ? "401" : answerInWords(refusal);
    return refuse(
      "key-unavailable",
      `the gateway refused the key of tool ${tool} ${denials} times in a row: ${answer}. ` +
        `nothing was sent, so that the gateway does not block this machine; ${next}${rotate}`,
    );
  }

  #countDenial(known: Known, isProbe: boolean): void {
    known.denials += 1;
    if (known.denials < MAX_DENIALS) return;
    const until = this.#clock.elapsed() + PAUSE_MS;
    if (known.pause === null) known.pause = { since: this.#clock.now(), until, refused: 0, probe: null };
    // Requests that were sent before the pause began may still be answered. They do not make it longer.
    else if (isProbe) known.pause.until = until;
  }

  #refuse(known: Known, seen: Cause, status: number | null, message: string | null, now: number): void {
    // The request may have been sent before the gateway was asked about the key.
    const cause = this.#refine(known, seen);
    // Another answer than the one it was asked about: what it said then no longer holds. 429 and 5xx come before the key is
    // looked at.
    const isAboutKey = status === null || (status < 500 && status !== 429);
    if (isAboutKey && cause.detail !== known.asked?.detail) known.asked = null;
    // A wrong model or path says nothing about the key.
    if (!cause.concernsKey) return;
    const { refusal } = known;
    known.refusal = {
      cause,
      status,
      message,
      since: refusal?.since ?? now,
      at: now,
      times: (refusal?.times ?? 0) + 1,
    };
  }

  #refine({ refusal, asked, acceptedAt }: Known, cause: Cause): Cause {
    // After the first refusal the key's source is read again, so one retry may have a new key. If it has the same one, further
    // retries only delay the gateway's words: Claude Code's by 17 s.
    if (cause.concernsKey && cause.canRetry && refusal !== null) return { ...cause, canRetry: false };
    if (isModelRefusal(cause) && refusal?.cause.detail === "no-models") return NO_MODELS_LISTED;
    if (!isUnexplained(cause)) return cause;
    const detail = this.#isRecent(asked) ? asked.detail : null;
    if (detail !== null) return causeFor(detail);
    return acceptedAt === null ? cause : causeOfEndedKey(cause);
  }

  #isRecent(asked: Known["asked"]): asked is NonNullable<Known["asked"]> {
    return asked !== null && Math.abs(this.#clock.now() - asked.at) < ASK_AGAIN_MS;
  }
}

const NOTHING_KNOWN: KeyFacts = { refusal: null, acceptedAt: null, fundedAt: null, pause: null };

function noteAcceptance(known: Known, tested: readonly Tested[], now: number): void {
  known.acceptedAt = now;
  if (tested.includes("money") || tested.includes("request")) known.fundedAt = now;
  known.asked = null;
  if (known.refusal !== null && !isStillRefused(known.refusal, tested, now)) known.refusal = null;
}

/**
 * Gateways list their models to a key without balance (new-api v0.13.2, 2d8e50bf) or in a used-up window (sub2api 0.1.135).
 * A key that got a 401 is not listed any, so a list shows that it is accepted again.
 */
function isStillRefused({ cause, status, at }: KeyRefusal, tested: readonly Tested[], now: number): boolean {
  if (tested.includes("request") || status === 401) return false;
  const isStale = cause.endsWith === "plan" && now - at < STALE_PLAN_MS;
  return isStale || !tested.includes(cause.endsWith);
}

function resume(known: Known): void {
  known.denials = 0;
  known.pause = null;
}

function answerInWords({ cause, status, message }: KeyRefusal): string {
  const said = message === null ? "" : ` "${message}"`;
  return `${status ?? cause.problem}${said}. ${cause.next}`;
}
