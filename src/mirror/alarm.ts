import type { Clock } from "../clock.ts";
import type { Logger } from "../logger.ts";
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
    const last = before[alarm.key];
    const due = last === undefined || isDue(last, alarm.count, now);
    if (due) log.error({ gateway, ...logFields(alarm) }, logMessage(alarm));
    logged[alarm.key] = due || last === undefined ? { at: now, count: alarm.count } : last;
  }
  if (JSON.stringify(logged) !== JSON.stringify(before)) deps.writeTold(JSON.stringify(logged));
}

function isDue(last: Logged, count: number, now: number): boolean {
  // A clock that is set back must not silence the alarm.
  const passed = Math.abs(now - last.at);
  return passed >= AGAIN_MS || (count > last.count && passed >= MORE_MS);
}

/** The key is not under the name `key`, because the logger redacts that field as a secret. */
function logFields({ key, tools, count, models, billed_microdollars, first_at, last_at }: Alarm): object {
  return { fingerprint: key, tools, count, models, billed_microdollars, first_at, last_at };
}

function logMessage(alarm: Alarm): string {
  const { key, tools, count, gateway } = alarm;
  const whose = tools.length === 0 ? "" : ` of ${tools.join(" and ")}`;
  const what = `key ${key}${whose} was used outside keybearer: ${count} request${count === 1 ? "" : "s"}`;
  return `${what}. ${alarmRemedy(alarm)} → keybearer mirror; then keybearer mirror ack ${gateway}`;
}

/** What to do about it. The same words in the log, `mirror`, `status` and `doctor`. */
export function alarmRemedy({ tools, replaced }: Alarm): string {
  if (replaced)
    return "it was replaced here, but still works at the gateway: delete this old key in the console now";
  if (tools.length === 0) return "delete this key in the console now";
  return `rotate it now: ${rotateCommands(tools)}, then delete the old key in the console`;
}

/** Every tool that has the key needs a new one. */
function rotateCommands(tools: readonly string[]): string {
  return tools.map((tool) => `keybearer tools rotate ${tool}`).join(" and ");
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
