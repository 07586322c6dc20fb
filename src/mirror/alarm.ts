import type { Clock } from "../clock.ts";
import type { Logger } from "../logger.ts";
import type { Alarm } from "./report/shape.ts";

/** When an alarm was last told in the log, and how many requests it was about. */
interface Told {
  readonly at: number;
  readonly count: number;
}

/** An alarm that nobody acknowledged is told again after a day; sooner where there is more of it. */
const AGAIN_MS = 24 * 3_600_000;
const MORE_MS = 3_600_000;

export interface AlarmMeans {
  readonly gateway: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Kept across restarts. */
  readonly readTold: () => string | null;
  readonly writeTold: (told: string) => void;
}

/** Tells the log of keys that are used by somebody else. */
export function tellAlarms(alarms: readonly Alarm[], means: AlarmMeans): void {
  const { clock, log, gateway } = means;
  const now = clock.now();
  const before = parse(means.readTold());
  const told: Record<string, Told> = {};
  for (const alarm of alarms) {
    const last = before[alarm.key];
    const due = last === undefined || isDue(last, alarm.count, now);
    if (due) log.error({ gateway, ...fieldsOf(alarm) }, alarmInWords(alarm));
    told[alarm.key] = due || last === undefined ? { at: now, count: alarm.count } : last;
  }
  if (JSON.stringify(told) !== JSON.stringify(before)) means.writeTold(JSON.stringify(told));
}

function isDue(told: Told, count: number, now: number): boolean {
  // A clock that was set back must not silence it.
  const passed = Math.abs(now - told.at);
  return passed >= AGAIN_MS || (count > told.count && passed >= MORE_MS);
}

/** Not under the name `key`, which the logger takes for a secret. */
function fieldsOf({ key, tools, count, models, billed_microdollars, first_at, last_at }: Alarm): object {
  return { fingerprint: key, tools, count, models, billed_microdollars, first_at, last_at };
}

export function alarmInWords({ key, tools, count, replaced, gateway }: Alarm): string {
  const whose = tools.length === 0 ? "" : ` of ${tools.join(" and ")}`;
  const what = `key ${key}${whose} was used outside keybearer: ${count} request${count === 1 ? "" : "s"}`;
  const next = replaced
    ? "delete this old key in the console now"
    : "rotate it now, and delete the old key in the console";
  return `${what}. ${next} → keybearer mirror; then keybearer mirror ack ${gateway}`;
}

function parse(text: string | null): Readonly<Record<string, Told>> {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    return typeof value === "object" && value !== null ? (value as Record<string, Told>) : {};
  } catch {
    return {};
  }
}
