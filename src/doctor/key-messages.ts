import { tokenAdvice } from "../clients/table.ts";
import type { Config, Tool } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { describeCommand, escapeControlChars, quoteForShell } from "../core/display.ts";
import { durationInWords, endInWords, momentInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import { FAULT_BY_STATE } from "../mirror/consoles/console.ts";
import type { ToolConsoleFacts } from "../mirror/report/shape.ts";
import {
  type Cause,
  type CauseDetail,
  type CauseName,
  causeOfFault,
  type KeyFault,
  NO_MODELS_LISTED,
} from "../proxy/key-health/cause.ts";
import type { KeyAcceptance, KeyRefusal } from "../proxy/key-health/key-health.ts";

/* Why a tool or its key does not work, and what to do about it: for `status`, `tools`, `doctor` and `models`. */

export interface Explanation {
  readonly what: string;
  /** What to type or do next. */
  readonly next: string;
}

// The tool itself, by config.yaml.

export type ToolProblemCode = "disabled" | "expired" | "group-disabled" | "no-token";

/** What in config.yaml keeps the tool from working, in order of precedence. */
export function toolProblems(
  tool: Tool,
  { gateways }: Pick<Config, "gateways">,
  now: number,
): (Explanation & { readonly code: ToolProblemCode })[] {
  const { name, group, expires } = tool;
  const found: (Explanation & { readonly code: ToolProblemCode })[] = [];
  if (!tool.enabled) found.push({ code: "disabled", what: "enabled: false", next: advice.enable(name) });
  if (expires !== null && now >= expires) {
    const what = `expired at ${endInWords(expires, systemCalendar)}`;
    found.push({ code: "expired", what, next: `change tools.${name}.expires in config.yaml` });
  }
  if (group !== null && gateways[tool.gateway]?.groups[group]?.enabled === false) {
    const what = `group unavailable: group ${group} has enabled: false in config.yaml`;
    const next = `change gateways.${tool.gateway}.groups.${group}.enabled`;
    found.push({ code: "group-disabled", what, next });
  }
  // A tool that is known by its program, or never calls here, needs no token.
  if (tool.tokens.length === 0 && tool.process === null && !tool.watchOnly)
    found.push({ code: "no-token", what: "no token yet", next: tokenAdvice(name) });
  return found;
}

// A key that could not be read.

export interface MissingKey {
  readonly state: "unavailable" | "needs-trust";
  readonly why: string;
  readonly next: string;
}

/** null: the key was read. */
export function missingKey(tool: Pick<Tool, "name" | "key">, key: KeyState): MissingKey | null {
  switch (key.state) {
    case "ready":
      return null;
    case "unavailable":
      return { state: key.state, why: key.reason, next: unreadableKeyStep(tool, key) };
    case "needs-trust": {
      const why = `${key.what}: ${key.from} → ${key.to}`;
      return { state: key.state, why, next: advice.trust(tool.name) };
    }
  }
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
  if (next !== undefined) return next;
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
    case "command":
      return `run it yourself to see what it prints: ${describeCommand(key.argv).text}; ${SAVE_AGAIN}`;
  }
}

// A key that the gateway refuses.

const TEXT_BY_DETAIL: Readonly<Record<CauseDetail, string>> = {
  "key-disabled": "disabled key",
  "key-expired": "expired key",
  "key-deleted": "deleted key",
  "key-quota": "balance or quota: the key's own quota is used up",
  "account-balance": "balance or quota: the account's balance is used up",
  "account-disabled": "disabled account",
  "ip-not-allowed": "IP address not allowed",
  "window-used-up": "balance or quota: a window of the quota is used up",
  "group-deleted": "group unavailable: the key's group was deleted",
  "group-disabled": "group unavailable: the key's group is disabled",
  "group-not-allowed": "group unavailable: the account may not use the key's group",
  "no-group": "group unavailable: the key has no group",
  "no-models": "group unavailable: the gateway accepts the key, but lists no models for it",
  "no-capacity": "no capacity at the gateway",
};

const TEXT_BY_NAME: Readonly<Record<CauseName, string>> = {
  "incomplete-key": "key not valid",
  "group-unavailable": "group unavailable",
  "balance-or-quota": "balance or quota",
  "wrong-base-url": "wrong base url",
  "rate-limit": "rate limit",
  unknown: "the gateway refuses the key",
};

export function causeText({ name, detail }: Pick<Cause, "name" | "detail">): string {
  return detail === null ? TEXT_BY_NAME[name] : TEXT_BY_DETAIL[detail];
}

/** The gateway accepts the key, but every request with it would be refused. */
export const NO_MODELS: Explanation = { what: causeText(NO_MODELS_LISTED), next: NO_MODELS_LISTED.next };

/** A rolling window of a quota that is used up. */
export interface UsedUpWindow {
  /** 5h, 1d, 7d */
  readonly name: string;
  /** null: the gateway does not say when it resets. */
  readonly resetsAt: number | null;
}

const MINUTE_MS = 60_000;

/** balance or quota: the 5h window is used up, and resets at 17:00 */
export function windowText({ name, resetsAt }: UsedUpWindow, now: number): string {
  const text = `balance or quota: the ${name} window is used up`;
  if (resetsAt === null) return text;
  return `${text}, and resets ${momentInWords(wholeMinute(resetsAt), now, systemCalendar)}`;
}

/** The minute in which a window is sure to have been reset. */
export function wholeMinute(time: number): number {
  return Math.ceil(time / MINUTE_MS) * MINUTE_MS;
}

/** What a person can do at the console about a key that it still lists. */
const AT_CONSOLE: Partial<Record<CauseDetail, string>> = {
  "key-disabled": "the key was disabled: enable it in the console",
  "key-expired": "the key has expired: change its expiry in the console",
  "key-quota": "the key's own quota is used up: raise it in the console",
};

/**
 * Adds the command that replaces the key where a new key may help. Without a login, and for a key that the console does not
 * list, a person makes the new key and types it.
 * @param canRotate a login at the console can make the new key
 */
export function withRotate(
  next: string,
  { cause, detail }: { readonly cause: string; readonly detail: CauseDetail | null },
  tool: string,
  canRotate: boolean,
): string {
  const listed = detail === null ? undefined : AT_CONSOLE[detail];
  if (canRotate && listed !== undefined) return `${listed}, or replace it: ${advice.rotate(tool)}`;
  const helps = listed !== undefined || cause === "incomplete-key" || detail === "key-deleted";
  return helps ? `${next}; then: ${advice.rotateByHand(tool)}` : next;
}

/** What the daemon knows about a tool's key without asking the gateway. */
export interface KeyKnowledge {
  /** Of the tool. */
  readonly name: string;
  /** How the gateway refused the tool's last requests or the last probe, see refusalWithConsole. */
  readonly refused: KeyRefusal | null;
  readonly accepted: KeyAcceptance | null;
  readonly console: ToolConsoleFacts | null;
  /** A login at the console can make a new key. */
  readonly canRotate: boolean;
}

/** The gateway's own answers count first, then the console. null: nothing is known to be wrong. */
export function keyTrouble(known: KeyKnowledge, now: number): Explanation | null {
  const { name, refused, accepted, console, canRotate } = known;
  if (refused !== null) return refusalTrouble(refused, known, now);
  const found = console === null ? null : consoleFault(console, now);
  if (console === null || found === null) return null;
  const { fault, window } = found;
  // The gateway has accepted the key since the console was read, so the console's answer is out of date.
  const isMoney = fault === "account-balance" || fault === "window-used-up";
  const acceptedAt = (isMoney ? accepted?.fundedAt : accepted?.at) ?? null;
  if (acceptedAt !== null && acceptedAt > console.as_of) return null;
  const cause = causeOfFault(fault);
  const what = window === null ? causeText(cause) : windowText(window, now);
  return {
    what: `${what}, as the console said ${durationInWords(now - console.as_of)} ago`,
    next: withRotate(cause.next, { cause: cause.name, detail: fault }, name, canRotate),
  };
}

function refusalTrouble(
  refused: KeyRefusal,
  { name, console, canRotate }: KeyKnowledge,
  now: number,
): Explanation {
  const { cause, detail, status, key } = refused;
  const window = detail === "window-used-up" && console !== null ? usedUpWindow(console, now) : null;
  const what = window === null ? causeText({ name: cause, detail }) : windowText(window, now);
  const source = status === null ? ", according to the gateway" : ` (${status})`;
  const next = withRotate(refused.next, refused, name, canRotate);
  return { what: `${what}${source}; key ${key}`, next };
}

/** These the console shows as the state of the key, or as the account's balance. */
const SHOWN_BY_CONSOLE: readonly (CauseDetail | null)[] = [
  "key-disabled",
  "key-expired",
  "key-deleted",
  "key-quota",
  "account-balance",
];

/**
 * A refusal with what the console knows about the key. The console explains an answer that fits several faults, and where it
 * was read after the refusal, it knows better. null: by the console the key works again.
 */
export function refusalWithConsole(
  refused: KeyRefusal,
  console: ToolConsoleFacts | null,
  now: number,
): KeyRefusal | null {
  if (console === null) return refused;
  const isUnclear =
    refused.detail === null && (refused.cause === "incomplete-key" || refused.cause === "unknown");
  const isNewer = console.as_of > refused.at;
  if (!isUnclear && !SHOWN_BY_CONSOLE.includes(refused.detail)) return refused;
  const fault = FAULT_BY_STATE[console.state];
  if (fault !== undefined) {
    if (!isUnclear && !isNewer) return refused;
    const { name: cause, ...found } = causeOfFault(fault);
    return { ...refused, cause, detail: found.detail, next: found.next };
  }
  const isGood = console.state === "active" && consoleFault(console, now) === null;
  // Of a subscription the balance says nothing, and so it is not known here.
  const isKnown = refused.detail !== "account-balance" || console.balance !== null;
  return isNewer && isGood && isKnown ? null : refused;
}

function consoleFault(
  console: ToolConsoleFacts,
  now: number,
): { readonly fault: KeyFault; readonly window: UsedUpWindow | null } | null {
  const fault = FAULT_BY_STATE[console.state];
  if (fault !== undefined) return { fault, window: null };
  const window = usedUpWindow(console, now);
  if (window !== null) return { fault: "window-used-up", window };
  if (console.balance !== null && console.balance <= 0) return { fault: "account-balance", window: null };
  return null;
}

/** The used-up window that resets last. */
function usedUpWindow({ windows }: ToolConsoleFacts, now: number): UsedUpWindow | null {
  const [last] = windows
    .filter(({ used, most, resets_at }) => used >= most && (resets_at === null || resets_at > now))
    .toSorted((a, b) => (b.resets_at ?? 0) - (a.resets_at ?? 0));
  return last === undefined ? null : { name: last.window, resetsAt: last.resets_at };
}
