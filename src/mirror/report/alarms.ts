import type Database from "libsql";
import { type HeldBy, heldTimes } from "../store/held.ts";
import { columnsOf, firstOf } from "../store/raw-row.ts";
import type { Alarm } from "./shape.ts";

export interface AlarmOptions {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys that are used elsewhere on purpose. */
  readonly quiet: (key: string) => boolean;
}

/** Rows that raise an alarm, and the index to find them with. */
interface Source {
  readonly certain: boolean;
  readonly from: string;
  readonly where: string;
}

const OPEN = "gateway = ? AND verdict = 'foreign' AND acknowledged_at IS NULL";

/** This index has only these rows, so its size is the number of open alarm rows. */
const CERTAIN: Source = {
  certain: true,
  from: "mirror.console_rows INDEXED BY console_rows_alarming",
  where: `${OPEN} AND certain = 1`,
};

/**
 * This index has the suspected rows of each key together, the acknowledged ones too; quiet keys are skipped in one step.
 * A foreign row has no `how`: it matched nothing. A refund is not a use of the key, see leftover.ts.
 */
const SUSPECTED: Source = {
  certain: false,
  from: "mirror.console_rows INDEXED BY console_rows_counted",
  where: `${OPEN} AND how IS NULL AND certain = 0 AND kind <> 'refund'`,
};

/** Alarms that are not acknowledged: the certain ones before the suspected, each the latest first. */
export function readAlarms(db: Database.Database, gateway: string, options: AlarmOptions): Alarm[] {
  const held = heldTimes(db, gateway);
  return [CERTAIN, SUSPECTED].flatMap((source) =>
    keysIn(db, gateway, source)
      .filter((key) => !options.quiet(key))
      .flatMap((key) => readAlarm(db, gateway, source, key, held.get(key) ?? null, options.skew) ?? [])
      .toSorted((a, b) => b.last_at - a.last_at),
  );
}

/** One index seek per key, however many rows it has. Some keys may have acknowledged rows only. */
function keysIn(db: Database.Database, gateway: string, { certain, from, where }: Source): string[] {
  // The other conditions of a suspicion are not in its index: to test them here would read every row of a quiet key.
  const indexed = certain ? where : "gateway = ? AND verdict = 'foreign' AND how IS NULL AND certain = 0";
  const next = db.prepare(`SELECT min(key) FROM ${from} WHERE ${indexed} AND key > ?`).raw();
  const keys: string[] = [];
  for (let key = firstOf(next.get(gateway, "")); typeof key === "string"; ) {
    keys.push(key);
    key = firstOf(next.get(gateway, key));
  }
  return keys;
}

/** null: nothing of this key is open. */
function readAlarm(
  db: Database.Database,
  gateway: string,
  { certain, from, where }: Source,
  key: string,
  held: HeldBy | null,
  skew: number,
): Alarm | null {
  const rows = `FROM ${from} WHERE ${where} AND key = ?`;
  const sums = db
    .prepare(
      `SELECT count(*), coalesce(sum(billed_microdollars), 0), min(created_at), max(created_at) ${rows}`,
    )
    .raw();
  const [count, billed, first, last] = columnsOf(sums.get(gateway, key));
  if (count === 0) return null;
  const newest = db.prepare(`SELECT reason ${rows} ORDER BY created_at DESC LIMIT 1`).raw();
  const reason = firstOf(newest.get(gateway, key));
  const distinct = (column: "model" | "ip") =>
    db
      .prepare(`SELECT DISTINCT ${column} ${rows} AND ${column} IS NOT NULL ORDER BY 1`)
      .raw()
      .all(gateway, key)
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
