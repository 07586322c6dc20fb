import type { Tool } from "../../config/schema.ts";
import type { KeyState } from "../../config/snapshot.ts";
import { advice } from "../../core/advice.ts";
import { describeCommand, escapeControlChars, type Problem, quoteForShell } from "../../core/display.ts";
import { wholeMinute } from "../../core/units.ts";
import { durationInWords, momentInWords } from "../../limits/format.ts";
import { systemCalendar } from "../../limits/windows.ts";
import {
  type Cause,
  type CauseDetail,
  causeFor,
  DETAIL_BY_STATE,
  isKeyDetail,
  type KeyDetail,
  type ListedState,
} from "./cause.ts";

/* What is wrong with a tool's key, and what to do about it, in the words of every view. */

// A key that could not be read.

export function missingKey(
  tool: Pick<Tool, "name" | "key">,
  key: Exclude<KeyState, { state: "ready" }>,
): Problem & { readonly state: "unavailable" | "needs-trust" } {
  if (key.state === "unavailable")
    return { state: key.state, problem: key.problem, next: unreadableKeyStep(tool, key) };
  const problem = `${key.what}: ${key.from} → ${key.to}`;
  return { state: key.state, problem, next: advice.trust(tool.name) };
}

const SAVE_AGAIN = "then save config.yaml again";

/**
 * What to do about a key that cannot be read. A new key helps only where there is none: behind a locked keychain or a
 * variable that is not set there usually is a good one.
 */
function unreadableKeyStep(
  { name, key }: Pick<Tool, "name" | "key">,
  { absent = false, next }: Extract<KeyState, { state: "unavailable" }>,
): string {
  const rotate = advice.rotate(name);
  if (next !== null) return next;
  // keybearer writes no key to a place of the person's own.
  const isOwn = key.kind === "keychain" || key.kind === "literal";
  if (absent) return isOwn ? rotate : advice.rotateInto(name, "file");
  switch (key.kind) {
    case "literal":
      return rotate;
    case "keychain":
      return `unlock the keychain or log in to the desktop, ${SAVE_AGAIN}; the key in it stays as it is`;
    case "env":
      return `set ${key.name} where keybearer is started, and start it again; or: ${advice.rotateInto(name, "file")}`;
    case "file":
      return `check the file: ls -l ${escapeControlChars(quoteForShell(key.path))}`;
    case "credential":
      return `check it: systemd-creds list, and the unit's LoadCredentialEncrypted=`;
    case "command":
      return `run it yourself to see what it prints: ${describeCommand(key.argv).text}; ${SAVE_AGAIN}`;
  }
}

// A key that the gateway refuses.

/** How the gateway refuses a key. */
export interface KeyRefusal {
  readonly cause: Cause;
  /** null: it listed its models, and reported the problem when it was asked about the key. */
  readonly status: number | null;
  /** What the gateway says about it. */
  readonly message: string | null;
  /** The first refusal since the last success. */
  readonly since: number;
  /** The last one. */
  readonly at: number;
  /** Refusals in a row. */
  readonly times: number;
}

/** keybearer itself refuses the requests with a key, because the gateway keeps answering 401 to it. */
export interface KeyPause {
  readonly since: number;
  /** From then on one request may try the key. */
  readonly until: number;
  /** That request is in flight. */
  readonly probing: boolean;
  /** Requests refused here since the pause began. */
  readonly refused: number;
}

/** What the tool's requests and the probes have shown of its key since keybearer started. */
export interface KeyFacts {
  /** null: it is not known to be refused. */
  readonly refusal: KeyRefusal | null;
  /** When the gateway last accepted it; null: not yet. */
  readonly acceptedAt: number | null;
  /** When it last showed that there is money; null: not yet. */
  readonly fundedAt: number | null;
  /** null: its requests are sent. */
  readonly pause: KeyPause | null;
}

/** What the gateway's console knows of the key. */
export interface ConsoleView {
  /** null: it was not read, or does not list the key. */
  readonly facts: ConsoleFacts | null;
  /** A login can make a new key there. */
  readonly canRotate: boolean;
}

/** A spending limit over `5h`, `1d` or `7d`, in micro-dollars. */
export interface KeyWindow {
  readonly window: string;
  readonly most: number;
  readonly used: number;
  readonly resets_at: number | null;
}

export interface ConsoleFacts {
  readonly state: ListedState;
  readonly windows: readonly KeyWindow[];
  /** Of the account; null: unknown, or a subscription pays. */
  readonly balance: number | null;
  /** When the console was read. */
  readonly as_of: number;
}

/** What is known of a tool's key, as every view shows it. */
export interface KeySummary {
  /** usable: as far as is known, the gateway accepts it. */
  readonly state: "unavailable" | "needs-trust" | "refused" | "usable";
  /** What is wrong; of a usable key, what the console says is wrong. null: nothing is known to be. */
  readonly problem: string | null;
  /** What to type or do next; null: nothing is needed. */
  readonly next: string | null;
  readonly refusal: KeyRefusal | null;
  readonly pause: KeyPause | null;
}

/** The gateway's own answers count first, then the console. */
export function reportKey(
  tool: Pick<Tool, "name" | "key">,
  key: Extract<KeyState, { state: "ready" }>,
  known: KeyFacts,
  console: ConsoleView,
  now: number,
): KeySummary {
  const { pause } = known;
  const refusal = known.refusal === null ? null : withConsole(known.refusal, console.facts, now);
  if (refusal === null) {
    const doubt = consoleProblem(tool.name, known, console, now);
    return {
      state: "usable",
      problem: doubt?.problem ?? null,
      next: doubt?.next ?? null,
      refusal,
      pause,
    };
  }
  const { cause, status } = refusal;
  const isWindow = cause.detail === "window-used-up" && console.facts !== null;
  const window = isWindow ? findUsedUpWindow(console.facts, now) : null;
  const what = window === null ? cause.problem : windowText(window, now);
  const source = status === null ? ", according to the gateway" : ` (${status})`;
  const paused = pause === null ? "" : `${pauseText(pause, now)}: `;
  return {
    state: "refused",
    problem: `${paused}${what}${source}; key ${key.key.fingerprint}`,
    next: nextFor(cause, tool.name, console.canRotate),
    refusal,
    pause,
  };
}

/**
 * Adds the command that replaces the key where a new key helps. Without a login, and for a key that the console does not
 * list, a person makes the new key and types it.
 */
function nextFor({ next, repair, newKey }: Cause, tool: string, canRotate: boolean): string {
  if (newKey !== "helps") return next;
  if (canRotate && repair !== null) return `${repair}, or replace it: ${advice.rotate(tool)}`;
  return withRotate(next, tool);
}

/** A new key helps, and a person makes it at the console. */
function withRotate(next: string, tool: string): string {
  return `${next}; then: ${advice.rotateByHand(tool)}`;
}

/** What to do about a key that a probe found refused. It is not known whether a login can make a new one. */
export function nextForProbe(
  { cause, detail, next }: { cause: string; detail: CauseDetail | null; next: string },
  tool: string,
): string {
  const isEnded = isKeyDetail(detail) && causeFor(detail).newKey === "helps";
  return isEnded || cause === "incomplete-key" ? withRotate(next, tool) : next;
}

function pauseText({ until, refused, probing }: KeyPause, now: number): string {
  const wait =
    probing || until <= now ? "until the next one is answered" : `for ${durationInWords(until - now)}`;
  return `requests are refused here ${wait}, ${refused} so far`;
}

// What the console says

/** These the console shows as the state of the key, or as the account's balance. */
const SHOWN_BY_CONSOLE: readonly (CauseDetail | null)[] = [
  "key-disabled",
  "key-expired",
  "key-deleted",
  "key-quota",
  "account-balance",
];

/**
 * A refusal with what the console knows about the key. The console explains an answer that fits several problems, and where it
 * was read after the refusal, it knows better. null: by the console the key works again.
 */
function withConsole(refusal: KeyRefusal, facts: ConsoleFacts | null, now: number): KeyRefusal | null {
  if (facts === null) return refusal;
  const { name, detail } = refusal.cause;
  const isUnclear = detail === null && (name === "incomplete-key" || name === "unknown");
  const isNewer = facts.as_of > refusal.at;
  if (!isUnclear && !SHOWN_BY_CONSOLE.includes(detail)) return refusal;
  const listed = DETAIL_BY_STATE[facts.state];
  if (listed !== undefined) return isUnclear || isNewer ? { ...refusal, cause: causeFor(listed) } : refusal;
  const isGood = facts.state === "active" && findDetail(facts, now) === null;
  // The balance says nothing about a subscription, so its state is not known here.
  const isKnown = detail !== "account-balance" || facts.balance !== null;
  return isNewer && isGood && isKnown ? null : refusal;
}

/** What is wrong with the key by the console alone; null: nothing, or the gateway has accepted it since. */
function consoleProblem(
  tool: string,
  { acceptedAt, fundedAt }: KeyFacts,
  { facts, canRotate }: ConsoleView,
  now: number,
): Problem | null {
  const found = facts === null ? null : findDetail(facts, now);
  if (facts === null || found === null) return null;
  const { detail, window } = found;
  const isMoney = detail === "account-balance" || detail === "window-used-up";
  const at = isMoney ? fundedAt : acceptedAt;
  if (at !== null && at > facts.as_of) return null;
  const cause = causeFor(detail);
  const what = window === null ? cause.problem : windowText(window, now);
  return {
    problem: `${what}, as the console said ${durationInWords(now - facts.as_of)} ago`,
    next: nextFor(cause, tool, canRotate),
  };
}

function findDetail(
  facts: ConsoleFacts,
  now: number,
): { readonly detail: KeyDetail; readonly window: UsedUpWindow | null } | null {
  const detail = DETAIL_BY_STATE[facts.state];
  if (detail !== undefined) return { detail, window: null };
  const window = findUsedUpWindow(facts, now);
  if (window !== null) return { detail: "window-used-up", window };
  if (facts.balance !== null && facts.balance <= 0) return { detail: "account-balance", window: null };
  return null;
}

// Windows of a quota

/** A rolling window of a quota that is used up. */
export interface UsedUpWindow {
  /** 5h, 1d, 7d */
  readonly name: string;
  /** null: the gateway does not say when it resets. */
  readonly resetsAt: number | null;
}

/** balance or quota: the 5h window is used up, and resets at 17:00 */
export function windowText({ name, resetsAt }: UsedUpWindow, now: number): string {
  const text = `balance or quota: the ${name} window is used up`;
  if (resetsAt === null) return text;
  return `${text}, and resets ${momentInWords(wholeMinute(resetsAt), now, systemCalendar)}`;
}

/** The used-up window that resets last; null: there is none. */
export function findLastReset(windows: readonly UsedUpWindow[]): UsedUpWindow | null {
  const [last] = windows.toSorted((a, b) => (b.resetsAt ?? 0) - (a.resetsAt ?? 0));
  return last ?? null;
}

function findUsedUpWindow({ windows }: ConsoleFacts, now: number): UsedUpWindow | null {
  const usedUp = windows
    .filter(({ used, most, resets_at }) => used >= most && (resets_at === null || resets_at > now))
    .map(({ window, resets_at }) => ({ name: window, resetsAt: resets_at }));
  return findLastReset(usedUp);
}
