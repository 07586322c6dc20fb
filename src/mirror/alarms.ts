import type Database from "libsql";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { localTime } from "../usage/reports/calendar.ts";
import type { Alarm } from "./report/shape.ts";
import { alarmClaim, alarmRemedy } from "./report/words.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { readFact, writeFact } from "./store/facts.ts";
import { heldTimes } from "./store/keys.ts";
import { queryValue } from "./store/query.ts";

/** This index has only these rows, so its size is the number of open alarm rows. */
const OPEN = `FROM mirror.console_rows INDEXED BY console_rows_alarming
  WHERE gateway = ? AND certain = ? AND verdict = 'foreign' AND acknowledged_at IS NULL`;

/**
 * Alarms that are not acknowledged: the certain ones before the suspected, each the latest first. Keys that are used
 * elsewhere on purpose raise none.
 */
export function readAlarms(
  db: Database.Database,
  gateway: string,
  skew: number,
  quietKeys: ReadonlySet<string>,
): Alarm[] {
  const held = heldTimes(db, gateway);
  const alarmsOf = (certain: boolean) =>
    keysIn(db, gateway, certain)
      .filter((key) => !quietKeys.has(key))
      .map((key): Alarm => {
        const holder = held.get(key);
        return {
          gateway,
          key,
          certain,
          tools: holder?.tools ?? [],
          replaced: holder !== undefined && holder.until !== null,
          ...readRows(db, gateway, certain, key, skew),
        };
      })
      .toSorted((a, b) => b.last_at - a.last_at);
  return [...alarmsOf(true), ...alarmsOf(false)];
}

/** One index seek per key, however many rows it has. */
function keysIn(db: Database.Database, gateway: string, certain: boolean): string[] {
  const keys: string[] = [];
  for (;;) {
    const nextKey = `SELECT min(key) ${OPEN} AND key > ?`;
    const key = queryValue(db, nextKey, gateway, Number(certain), keys.at(-1) ?? "");
    if (key === null) return keys;
    keys.push(String(key));
  }
}

interface OpenRows {
  readonly count: number;
  readonly billed_microdollars: number;
  readonly first_at: number;
  readonly last_at: number;
  /** JSON lists. */
  readonly models: string;
  readonly ips: string;
}

function readRows(db: Database.Database, gateway: string, certain: boolean, key: string, skew: number) {
  const rows = `${OPEN} AND key = ?`;
  const sums = db.prepare(
    `SELECT count(*) AS count, coalesce(sum(billed_microdollars), 0) AS billed_microdollars,
       min(created_at) AS first_at, max(created_at) AS last_at,
       json_group_array(DISTINCT model) AS models, json_group_array(DISTINCT ip) AS ips ${rows}`,
  );
  const found = sums.get(gateway, Number(certain), key) as OpenRows;
  const newestReason = `SELECT reason ${rows} ORDER BY created_at DESC LIMIT 1`;
  return {
    reason: queryValue(db, newestReason, gateway, Number(certain), key) as string | null,
    count: found.count,
    billed_microdollars: found.billed_microdollars,
    first_at: found.first_at - skew,
    last_at: found.last_at - skew,
    models: textsIn(found.models),
    ips: textsIn(found.ips),
  };
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
const AGAIN_MS = 24 * 3_600_000;
const MORE_MS = 3_600_000;

interface LogDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
}

/** Logs the alarms of a gateway that are due. What was logged when is kept across restarts. */
export function logAlarms(
  gateway: string,
  alarms: readonly Alarm[],
  { clock, log, database }: LogDeps,
): void {
  const now = clock.now();
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
    // Unreadable: then every alarm is logged once more.
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
  const why = certain || reason === null ? "" : ` (${reason})`;
  const what = `${alarmClaim(alarm)}: ${count} request${count === 1 ? "" : "s"}${why}`;
  return `${what}. ${alarmRemedy(alarm, localTime)} → keybearer mirror; then keybearer mirror ack ${gateway}`;
}
