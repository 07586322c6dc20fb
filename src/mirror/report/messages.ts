import { advice } from "../../core/advice.ts";
import { localTime } from "../../core/units.ts";
import type { ConsoleError } from "../consoles/console.ts";
import { CANNOT_SEE } from "../reconcile/siblings.ts";
import type { Alarm, ConsoleStatus } from "./shape.ts";

/* Sentences about consoles and alarms, the same in the log and in every command. */

type State = Pick<ConsoleStatus, "state" | "why" | "next">;

interface Condition {
  readonly isSyncing: boolean;
  readonly error: ConsoleError | null;
  /** It was read completely at least once since the start. */
  readonly isSynced: boolean;
  /** Why its rows cannot show a leak. */
  readonly blind: string | null;
}

export function stateMessages(gateway: string, { isSyncing, error, isSynced, blind }: Condition): State {
  if (isSyncing) return { state: "syncing", why: null, next: null };
  if (error !== null)
    return { state: error.kind, why: `the console ${error.message}`, next: consoleRemedy(error, gateway) };
  if (!isSynced) return { state: "waiting", why: null, next: advice.mirrorSync(gateway) };
  if (blind !== null)
    return { state: "cannot-see", why: `the console ${blind}`, next: `check gateways.${gateway}.console` };
  return { state: "ok", why: null, next: null };
}

/** null: keybearer retries by itself. */
export function consoleRemedy({ kind, account }: ConsoleError, gateway: string): string | null {
  switch (kind) {
    case "login-needed":
    case "login-refused":
      return advice.mirrorLogin(gateway, account);
    case "needs-trust":
      return advice.trust(gateway);
    case "not-a-console":
      return `check gateways.${gateway}.console.url`;
    case "other-shape":
      return `check gateways.${gateway}.console.kind`;
    case "not-yet":
      return `remove gateways.${gateway}.console from config.yaml`;
    case "rate-limited":
    case "unreachable":
    case "slow":
    case "failing":
    case "refused":
      return null;
  }
}

/** The usage log itself cannot be read, whatever the console does. */
export const UNREADABLE: State = {
  state: "failing",
  why: "the usage log cannot be read, so nothing can be compared",
  next: advice.status(),
};

/** A gateway whose console was removed from config.yaml while it has open alarms. */
export function removedConsole(gateway: string, alarms: readonly Alarm[]): ConsoleStatus {
  return {
    gateway,
    kind: null,
    detected: false,
    url: "",
    state: "cannot-see",
    why: "config.yaml has no console for this gateway any more",
    next: `put gateways.${gateway}.console back, or ${advice.mirrorAck(gateway)}`,
    last_sync: null,
    next_sync: null,
    progress: null,
    skew: null,
    alarms,
  };
}

/** key …a1b2 of codex was used outside keybearer */
export function alarmClaim({ key, tools, certain }: Alarm): string {
  const whose = tools.length === 0 ? "" : ` of ${tools.join(" and ")}`;
  return `key ${key}${whose} ${certain ? "was" : "may have been"} used outside keybearer`;
}

/** After a rotation deleted the key there is nothing left to delete. */
const UNLISTED = "the console does not list this key any more: there is nothing left to delete";

/** What to do about an alarm. */
export function alarmRemedy(alarm: Alarm, formatTime: (at: number) => string): string {
  const { tools, replaced, key } = alarm;
  // Every tool that has the key needs a new one. With a login, rotate deletes the old one at the console.
  const rotate = tools.map((tool) => advice.rotate(tool)).join(" and ");
  const remove = alarm.unlisted ? UNLISTED : advice.deleteKey(key);
  if (!alarm.certain) {
    const first = formatTime(alarm.first_at);
    const last = formatTime(alarm.last_at);
    const when = first === last ? `at ${first}` : `between ${first} and ${last}`;
    const otherwise = replaced || rotate === "" ? remove : rotate;
    const ending = otherwise === UNLISTED ? otherwise : `if not: ${otherwise}`;
    return `check whether you used this key elsewhere ${when}; ${ending}`;
  }
  if (alarm.unlisted && (replaced || rotate === "")) return UNLISTED;
  if (replaced) return `the tool has another key since; if the console still lists this one: ${remove}`;
  if (rotate === "") return `delete it now: ${remove}`;
  return `rotate it now: ${rotate}`;
}

/** cannot see: laptop since 14:02; with the date on another day. The stored reason has times in UTC. */
export function formatReason(reason: string, now: number): string {
  if (!reason.startsWith(CANNOT_SEE)) return reason;
  const today = localTime(now).slice(0, 10);
  return reason.replaceAll(/\d{4}-\d{2}-\d{2}T\d{2}:\d{2}Z/g, (stored) => {
    const time = localTime(Date.parse(stored)).slice(0, 16);
    return time.startsWith(today) ? time.slice(11) : time;
  });
}
