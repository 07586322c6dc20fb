import type { Clock } from "../clock.ts";
import type { Logger } from "../logger.ts";
import { localTime } from "../usage/reports/calendar.ts";
import type { Alarm } from "./report/shape.ts";

/** When an alarm was last logged, and how many requests it was about. */
interface Logged {
  readonly at: number;
  readonly count: number;
}

/** An alarm that is not acknowledged is logged again after a day, or after an hour if there are more requests. */
const AGAIN_MS = 24 * 3_600_000;
const MORE_MS = 3_600_000;

export interface AlarmDeps {
  readonly gateway: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** What was logged so far, kept across restarts. */
  readonly readTold: () => string | null;
  readonly writeTold: (told: string) => void;
}

/** Logs the alarms that are due. */
export function tellAlarms(alarms: readonly Alarm[], deps: AlarmDeps): void {
  const { clock, log, gateway } = deps;
  const now = clock.now();
  const before = parseLogged(deps.readTold());
  const logged: Record<string, Logged> = {};
  for (const alarm of alarms) {
    const name = alarm.certain ? alarm.key : `${alarm.key} suspected`;
    const last = before[name];
    const due = last === undefined || isDue(last, alarm.count, now);
    if (due) log[alarm.certain ? "error" : "warn"]({ gateway, ...logFields(alarm) }, logMessage(alarm));
    logged[name] = due || last === undefined ? { at: now, count: alarm.count } : last;
  }
  if (JSON.stringify(logged) !== JSON.stringify(before)) deps.writeTold(JSON.stringify(logged));
}

function isDue(last: Logged, count: number, now: number): boolean {
  // A clock that is set back must not silence the alarm.
  const passed = Math.abs(now - last.at);
  return passed >= AGAIN_MS || (count > last.count && passed >= MORE_MS);
}

/** The key is not under the name `key`, because the logger redacts that field as a secret. */
function logFields(alarm: Alarm): object {
  const { key, certain, tools, count, models, billed_microdollars, first_at, last_at } = alarm;
  return { fingerprint: key, certain, tools, count, models, billed_microdollars, first_at, last_at };
}

function logMessage(alarm: Alarm): string {
  const { count, reason, certain, gateway } = alarm;
  const why = certain || reason === null ? "" : ` (${reason})`;
  const what = `${alarmClaim(alarm)}: ${count} request${count === 1 ? "" : "s"}${why}`;
  return `${what}. ${alarmRemedy(alarm, localTime)} → keybearer mirror; then keybearer mirror ack ${gateway}`;
}

/** key …a1b2 of codex was used outside keybearer */
export function alarmClaim({ key, tools, certain }: Alarm): string {
  const whose = tools.length === 0 ? "" : ` of ${tools.join(" and ")}`;
  return `key ${key}${whose} ${certain ? "was" : "may have been"} used outside keybearer`;
}

/** What to do about it, in the same words in the log, `mirror`, `status` and `doctor`. */
export function alarmRemedy(alarm: Alarm, timeInWords: (at: number) => string): string {
  const { tools, replaced } = alarm;
  // Every tool that has the key needs a new one.
  const rotate = tools.map((tool) => `keybearer tools rotate ${tool}`).join(" and ");
  if (!alarm.certain) {
    const first = timeInWords(alarm.first_at);
    const last = timeInWords(alarm.last_at);
    const when = first === last ? `at ${first}` : `between ${first} and ${last}`;
    const otherwise = replaced || rotate === "" ? "delete it in the console" : rotate;
    return `check whether you used this key elsewhere ${when}; if not: ${otherwise}`;
  }
  if (replaced)
    return "it was replaced here, but still works at the gateway: delete this old key in the console now";
  if (rotate === "") return "delete this key in the console now";
  return `rotate it now: ${rotate}, then delete the old key in the console`;
}

function parseLogged(text: string | null): Readonly<Record<string, Logged>> {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    return typeof value === "object" && value !== null ? (value as Record<string, Logged>) : {};
  } catch {
    // Unreadable: then every alarm is logged once more.
    return {};
  }
}
