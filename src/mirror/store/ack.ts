import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AckLine } from "../../usage/journal/lines.ts";
import { firstOf } from "./raw-row.ts";

/** What was shown: of every gateway and every key where these are null; `until` is the newest row's time, the console's. */
export interface Shown {
  readonly gateway: string | null;
  readonly key: string | null;
  readonly until: number | null;
  /** So many were shown; null: whatever there is. */
  readonly count: number | null;
}

/** The alarm has been heard. Returns a line for each of its rows; null: there are others now than those that were shown. */
export function acknowledge(db: Database.Database, shown: Shown, now: number): AckLine[] | null {
  const { gateway, key, until, count } = shown;
  const gateways = gateway === null ? gatewaysIn(db) : [gateway];
  const these = `gateway = ? AND verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL
    AND key = coalesce(?, key) AND created_at <= coalesce(?, created_at)`;
  return transact(db, () => {
    const there = db.prepare(`SELECT identity FROM mirror.console_rows WHERE ${these}`).raw();
    const lines = gateways.flatMap((one) =>
      there
        .all(one, key, until)
        .map((row): AckLine => ({ kind: "ack", gateway: one, row: String(firstOf(row)), at: now })),
    );
    if (count !== null && lines.length !== count) return null;
    const mark = db.prepare(`UPDATE mirror.console_rows SET acknowledged_at = ? WHERE ${these}`);
    for (const one of gateways) mark.run(now, one, key, until);
    return lines;
  });
}

/** Those with console rows: one step of the primary key each. */
export function gatewaysIn(db: Database.Database): string[] {
  const next = db.prepare("SELECT min(gateway) FROM mirror.console_rows WHERE gateway > ?").raw();
  const names: string[] = [];
  for (let last = ""; ; ) {
    const [name] = next.get(last) as [string | null];
    if (name === null) return names;
    names.push(name);
    last = name;
  }
}
