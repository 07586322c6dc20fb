import type Database from "libsql";
import { type HeldBy, heldTimes } from "../store/held.ts";
import { columnsOf, firstOf } from "../store/raw-row.ts";
import type { Alarm } from "./shape.ts";

export interface AlarmMeans {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys whose use elsewhere is on purpose. */
  readonly quiet: (key: string) => boolean;
}

/** Its index holds nothing else: however many rows there are, only these are looked at. */
const ALARMS = "FROM mirror.console_rows INDEXED BY console_rows_alarming";
const ALARMING = "gateway = ? AND verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL";

/** Keys that somebody else uses, and of which nobody has said that they know; the latest first. */
export function readAlarms(db: Database.Database, gateway: string, means: AlarmMeans): Alarm[] {
  const next = db.prepare(`SELECT min(key) ${ALARMS} WHERE ${ALARMING} AND key > ?`).raw();
  const held = heldTimes(db, gateway);
  const alarms: Alarm[] = [];
  for (let key = firstOf(next.get(gateway, "")); typeof key === "string"; ) {
    if (!means.quiet(key)) alarms.push(alarmOf(db, gateway, key, held.get(key) ?? null, means.skew));
    key = firstOf(next.get(gateway, key));
  }
  return alarms.toSorted((a, b) => b.last_at - a.last_at);
}

function alarmOf(
  db: Database.Database,
  gateway: string,
  key: string,
  held: HeldBy | null,
  skew: number,
): Alarm {
  const ofKey = `${ALARMS} WHERE ${ALARMING} AND key = ?`;
  const sums = db
    .prepare(
      `SELECT count(*), coalesce(sum(billed_microdollars), 0), min(created_at), max(created_at) ${ofKey}`,
    )
    .raw();
  const all = (column: "model" | "ip") =>
    db
      .prepare(`SELECT DISTINCT ${column} ${ofKey} AND ${column} IS NOT NULL ORDER BY 1`)
      .raw()
      .all(gateway, key)
      .map((row) => String(firstOf(row)));
  const [count, billed, first, last] = columnsOf(sums.get(gateway, key)).map(Number);
  return {
    gateway,
    key,
    tools: held?.tools ?? [],
    count: count ?? 0,
    models: all("model"),
    billed_microdollars: billed ?? 0,
    first_at: (first ?? 0) - skew,
    last_at: (last ?? 0) - skew,
    ips: all("ip"),
    replaced: held !== null && held.until !== null,
  };
}
