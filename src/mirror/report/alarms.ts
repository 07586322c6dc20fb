import type Database from "libsql";
import { type HeldBy, heldTimes } from "../store/keys.ts";
import { columnsOf, firstOf } from "../store/query.ts";
import type { Alarm } from "./shape.ts";

export interface AlarmOptions {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys that are used elsewhere on purpose. */
  readonly quiet: (key: string) => boolean;
}

/** This index has only these rows, so its size is the number of open alarm rows. */
const OPEN = `FROM mirror.console_rows INDEXED BY console_rows_alarming
  WHERE gateway = ? AND certain = ? AND verdict = 'foreign' AND acknowledged_at IS NULL`;

/** Alarms that are not acknowledged: the certain ones before the suspected, each the latest first. */
export function readAlarms(db: Database.Database, gateway: string, options: AlarmOptions): Alarm[] {
  const held = heldTimes(db, gateway);
  return [true, false].flatMap((certain) =>
    keysIn(db, gateway, certain)
      .filter((key) => !options.quiet(key))
      .flatMap((key) => readAlarm(db, gateway, certain, key, held.get(key) ?? null, options.skew) ?? [])
      .toSorted((a, b) => b.last_at - a.last_at),
  );
}

/** One index seek per key, however many rows it has. */
function keysIn(db: Database.Database, gateway: string, certain: boolean): string[] {
  const next = db.prepare(`SELECT min(key) ${OPEN} AND key > ?`).raw();
  const keys: string[] = [];
  for (let key = firstOf(next.get(gateway, Number(certain), "")); typeof key === "string"; ) {
    keys.push(key);
    key = firstOf(next.get(gateway, Number(certain), key));
  }
  return keys;
}

/** null: nothing of this key is open. */
function readAlarm(
  db: Database.Database,
  gateway: string,
  certain: boolean,
  key: string,
  held: HeldBy | null,
  skew: number,
): Alarm | null {
  const rows = `${OPEN} AND key = ?`;
  const sums = db
    .prepare(
      `SELECT count(*), coalesce(sum(billed_microdollars), 0), min(created_at), max(created_at) ${rows}`,
    )
    .raw();
  const [count, billed, first, last] = columnsOf(sums.get(gateway, Number(certain), key));
  if (count === 0) return null;
  const newest = db.prepare(`SELECT reason ${rows} ORDER BY created_at DESC LIMIT 1`).raw();
  const reason = firstOf(newest.get(gateway, Number(certain), key));
  const distinct = (column: "model" | "ip") =>
    db
      .prepare(`SELECT DISTINCT ${column} ${rows} AND ${column} IS NOT NULL ORDER BY 1`)
      .raw()
      .all(gateway, Number(certain), key)
      .map((row) => String(firstOf(row)));
  return {
    gateway,
    key,
    certain,
    reason: typeof reason === "string" ? reason : null,
    tools: held?.tools ?? [],
    count: Number(count),
    models: distinct("model"),
    billed_microdollars: Number(billed),
    first_at: Number(first) - skew,
    last_at: Number(last) - skew,
    ips: distinct("ip"),
    replaced: held !== null && held.until !== null,
  };
}
