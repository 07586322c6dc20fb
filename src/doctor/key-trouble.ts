import type { Tool } from "../config/shape.ts";
import { commandInWords, plain, shellWord } from "../keys/words.ts";
import { durationInWords, momentInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import type { ToolConsoleFacts } from "../mirror/report/shape.ts";
import { type Cause, type CauseDetail, type CauseName, causeOfFault, type KeyFault } from "../proxy/cause.ts";
import type { KeyRefusal } from "../proxy/health.ts";
import type { UsedUpWindow } from "./key-facts.ts";

/* What is wrong with a tool's key, in the words of `status` and of `doctor`. */

export interface KeyTrouble {
  /** null: not known more finely than by its cause. */
  readonly detail: CauseDetail | null;
  readonly what: string;
  readonly next: string;
}

const BY_DETAIL: Readonly<Record<CauseDetail, string>> = {
  "key-disabled": "disabled key",
  "key-expired": "expired key",
  "key-deleted": "deleted key",
  "key-quota": "balance or quota: the key's own quota is used up",
  "account-balance": "balance or quota: the account's balance is used up",
  "account-disabled": "disabled account",
  "ip-not-allowed": "IP address not allowed",
  "window-used-up": "balance or quota: a window of the quota is used up",
  "no-capacity": "no capacity at the gateway",
};

const BY_NAME: Readonly<Record<CauseName, string>> = {
  "incomplete-key": "key not valid",
  "group-unavailable": "group unavailable",
  "balance-or-quota": "balance or quota",
  "wrong-base-url": "wrong base url",
  "rate-limit": "rate limit",
  unknown: "the gateway refuses the key",
};

export function causeInWords({ name, detail }: Pick<Cause, "name" | "detail">): string {
  return detail === null ? BY_NAME[name] : BY_DETAIL[detail];
}

const MINUTE_MS = 60_000;

/** balance or quota: the 5h window is used up, and returns at 17:00 */
export function windowInWords({ name, resetsAt }: UsedUpWindow, now: number): string {
  let returns = "";
  if (resetsAt !== null) {
    const minute = Math.ceil(resetsAt / MINUTE_MS) * MINUTE_MS;
    returns = `, and returns ${momentInWords(minute, now, systemCalendar)}`;
  }
  return `balance or quota: the ${name} window is used up${returns}`;
}

/** The advice, and how to put a new key in the old one's place where that may help. */
export function withRotate(
  advice: string,
  { cause, detail }: { readonly cause: string; readonly detail: CauseDetail | null },
  tool: string,
): string {
  const helps = cause === "incomplete-key" || (detail !== null && NEW_KEY_HELPS.includes(detail));
  return helps ? `${advice}; then: keybearer tools rotate ${tool}` : advice;
}

const NEW_KEY_HELPS: readonly CauseDetail[] = ["key-disabled", "key-expired", "key-deleted"];

const AGAIN = "then save config.yaml again";

/**
 * What to do about a key that cannot be read. A new key is needed only where there is none: a locked keychain or a variable
 * that is not set mostly hides a good one.
 */
export function keyStep(
  { name, key }: Pick<Tool, "name" | "key">,
  { absent = false, next }: { readonly absent?: boolean; readonly next?: string },
): string {
  const rotate = `keybearer tools rotate ${name}`;
  if (next !== undefined) return next;
  if (absent) return rotate;
  switch (key.kind) {
    case "literal":
      return rotate;
    case "keychain":
      return `unlock the keychain or log in to the desktop, ${AGAIN}; the key in it stays as it is`;
    case "env":
      return `set ${key.name} where keybearer is started, and start it again; or: ${rotate} --store file`;
    case "file":
      return `look at the file: ls -l ${plain(shellWord(key.path))}`;
    case "command":
      return `type it yourself and see what it says: ${commandInWords(key.argv).words}; ${AGAIN}`;
  }
}

/** What the daemon knows. */
export interface KeyKnowledge {
  readonly name: string;
  /** How the gateway refused the tool's last requests. */
  readonly refused: KeyRefusal | null;
  readonly console: ToolConsoleFacts | null;
  readonly last_use: number | null;
}

/** The tool's own requests count first, then what the console says of the key. null: nothing is known to be wrong. */
export function keyTrouble(tool: KeyKnowledge, now: number): KeyTrouble | null {
  if (tool.refused !== null) return refusalTrouble(tool.refused, tool, now);
  const { console, last_use } = tool;
  if (console === null) return null;
  const found = consoleFault(console, now);
  // Requests since then were not refused.
  if (found === null || (last_use ?? 0) > console.as_of) return null;
  const { fault, window } = found;
  const cause = causeOfFault(fault);
  const what = window === null ? causeInWords(cause) : windowInWords(window, now);
  return {
    detail: fault,
    what: `${what}, as the console said ${durationInWords(now - console.as_of)} ago`,
    next: withRotate(cause.advice, { cause: cause.name, detail: fault }, tool.name),
  };
}

function refusalTrouble(refused: KeyRefusal, { name, console }: KeyKnowledge, now: number): KeyTrouble {
  const { cause, detail, advice, status, key } = refused;
  const window = detail === "window-used-up" && console !== null ? usedUpWindow(console, now) : null;
  const what = window === null ? causeInWords({ name: cause, detail }) : windowInWords(window, now);
  return {
    detail,
    what: `${what} (${status}); key ${key}`,
    next: withRotate(advice, refused, name),
  };
}

interface ConsoleFault {
  readonly fault: KeyFault;
  readonly window: UsedUpWindow | null;
}

const BY_STATE: Partial<Record<ToolConsoleFacts["state"], KeyFault>> = {
  disabled: "key-disabled",
  expired: "key-expired",
  deleted: "key-deleted",
  "quota-exhausted": "key-quota",
};

function consoleFault(console: ToolConsoleFacts, now: number): ConsoleFault | null {
  const fault = BY_STATE[console.state];
  if (fault !== undefined) return { fault, window: null };
  const window = usedUpWindow(console, now);
  if (window !== null) return { fault: "window-used-up", window };
  if (console.balance !== null && console.balance <= 0) return { fault: "account-balance", window: null };
  return null;
}

/** The one that returns last. */
function usedUpWindow({ windows }: ToolConsoleFacts, now: number): UsedUpWindow | null {
  const usedUp = windows
    .filter(({ used, most, resets_at }) => used >= most && (resets_at === null || resets_at > now))
    .toSorted((a, b) => (b.resets_at ?? 0) - (a.resets_at ?? 0));
  const [last] = usedUp;
  return last === undefined ? null : { name: last.window, resetsAt: last.resets_at };
}
