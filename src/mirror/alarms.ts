import type Database from "libsql";
import { advice } from "../core/advice.ts";
import type { Logger } from "../core/log.ts";
import { DAY_MS, HOUR_MS, localTime } from "../core/units.ts";
import { alarmClaim, alarmRemedy } from "./report/messages.ts";
import type { Alarm } from "./report/shape.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { readFact, writeFact } from "./store/facts.ts";
import { heldTimes } from "./store/keys.ts";
import { queryAll, queryValue } from "./store/query.ts";

/** The rows of one key that raise an alarm and are not acknowledged. */
interface OpenRows {
  readonly certain: 0 | 1;
  readonly key: string;
  readonly count: number;
  readonly billed_microdollars: number;
  readonly first_at: number;
  readonly last_at: number;
  /** JSON lists. */
  readonly models: string;
  readonly ips: string;
  /** Of the newest row. */
  readonly reason: string | null;
}

/** Whether there are alarms to read. One index seek, so that `status` needs no thread while there are none. */
export function hasAlarms(db: Database.Database, gateway: string): boolean {
  const any = `SELECT 1 FROM mirror.console_rows INDEXED BY console_rows_alarming
    WHERE gateway = ? AND verdict = 'foreign' AND acknowledged_at IS NULL LIMIT 1`;
  return queryValue(db, any, gateway) !== null;
}

/**
 * Alarms that are not acknowledged: the certain before the suspected, each the latest first. Keys that are used elsewhere
 * on purpose raise none.
 */
export function readAlarms(
  db: Database.Database,
  gateway: string,
  skew: number,
  quietKeys: ReadonlySet<string>,
): Alarm[] {
  const held = heldTimes(db, gateway);
  // The index has only the rows of open alarms.
  const openRows = (name: string) =>
    `FROM mirror.console_rows AS ${name} INDEXED BY console_rows_alarming
     WHERE ${name}.gateway = ? AND ${name}.verdict = 'foreign' AND ${name}.acknowledged_at IS NULL`;
  const found = queryAll<OpenRows>(
    db,
    `SELECT certain, key, count(*) AS count, coalesce(sum(billed_microdollars), 0) AS billed_microdollars,
       min(created_at) AS first_at, max(created_at) AS last_at,
       json_group_array(DISTINCT model) AS models, json_group_array(DISTINCT ip) AS ips,
       (SELECT newest.reason ${openRows("newest")} AND newest.certain = one.certain AND newest.key = one.key
        ORDER BY newest.created_at DESC LIMIT 1) AS reason
     ${openRows("one")} AND key IS NOT NULL GROUP BY certain, key ORDER BY certain DESC, last_at DESC`,
    gateway,
    gateway,
  );
  return found
    .filter(({ key }) => !quietKeys.has(key))
    .map((rows): Alarm => {
      const { tools = [], until = null } = held.get(rows.key) ?? {};
      return {
        gateway,
        key: rows.key,
        certain: rows.certain === 1,
        reason: rows.reason,
        tools,
        count: rows.count,
        models: textsIn(rows.models),
        billed_microdollars: rows.billed_microdollars,
        first_at: rows.first_at - skew,
        last_at: rows.last_at - skew,
        ips: textsIn(rows.ips),
        replaced: until !== null,
      };
    });
}

function textsIn(json: string): string[] {
  const values: (string | null)[] = JSON.parse(json);
  return values.filter((value) => value !== null).toSorted();
}

/** When an alarm was last logged, and how many requests it was about. */
interface Logged {
  readonly at: number;
  readonly count: number;
}

/** An alarm that is not acknowledged is logged again after a day, or after an hour if there are more requests. */
const AGAIN_MS = DAY_MS;
const MORE_MS = HOUR_MS;

/** Logs the alarms of a gateway that are due. What was logged when is kept across restarts. */
export function logAlarms(
  gateway: string,
  alarms: readonly Alarm[],
  database: Pick<MirrorDatabase, "ask">,
  log: Logger,
  now: number,
): void {
  const before = parseLogged(database.ask((db) => readFact(db, gateway, "logged_alarms")));
  const logged: Record<string, Logged> = {};
  for (const alarm of alarms) {
    const name = alarm.certain ? alarm.key : `${alarm.key} suspected`;
    const last = before[name];
    if (last !== undefined && !isDue(last, alarm.count, now)) {
      logged[name] = last;
      continue;
    }
    log[alarm.certain ? "error" : "warn"](logFields(alarm), logMessage(alarm));
    logged[name] = { at: now, count: alarm.count };
  }
  const text = JSON.stringify(logged);
  if (text !== JSON.stringify(before)) database.ask((db) => writeFact(db, gateway, "logged_alarms", text));
}

function parseLogged(text: string | null): Readonly<Record<string, Logged>> {
  try {
    return JSON.parse(text ?? "{}") ?? {};
  } catch {
    // Unreadable: every alarm is logged again.
    return {};
  }
}

function isDue(last: Logged, count: number, now: number): boolean {
  // A clock that is set back must not silence the alarm.
  const passed = Math.abs(now - last.at);
  return passed >= AGAIN_MS || (count > last.count && passed >= MORE_MS);
}

/** The key is not under the name `key`, because the logger redacts that field as a secret. */
function logFields(alarm: Alarm): object {
  const { gateway, key, certain, tools, count, models, billed_microdollars, first_at, last_at } = alarm;
  return { gateway, fingerprint: key, certain, tools, count, models, billed_microdollars, first_at, last_at };
}

function logMessage(alarm: Alarm): string {
  const { count, reason, certain, gateway } = alarm;
  const doubt = certain || reason === null ? "" : ` (${reason})`;
  const what = `${alarmClaim(alarm)}: ${count} request${count === 1 ? "" : "s"}${doubt}`;
  return `${what}. ${alarmRemedy(alarm, localTime)} → ${advice.mirror()}; then ${advice.mirrorAck(gateway)}`;
}
