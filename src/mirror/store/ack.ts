import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AckLine } from "../../usage/journal/lines.ts";
import { firstOf } from "./raw-row.ts";

/** The alarm as it was shown. null: whatever there is. */
export interface Shown {
  readonly gateway: string | null;
  readonly key: string | null;
  /** Certain rows, or suspected ones. */
  readonly certain: boolean | null;
  /** Time of the newest row, by the console's clock. */
  readonly until: number | null;
  readonly count: number | null;
}

/** Returns a line for each acknowledged row; null: there are other rows now than were shown, and nothing is changed. */
export function acknowledge(db: Database.Database, shown: Shown, now: number): AckLine[] | null {
  const { gateway, key, until, count } = shown;
  const gateways = gateway === null ? gatewaysIn(db) : [gateway];
  const certain = shown.certain === null ? null : Number(shown.certain);
  const these = `gateway = ? AND verdict = 'foreign' AND acknowledged_at IS NULL
    AND certain = coalesce(?, certain) AND key = coalesce(?, key) AND created_at <= coalesce(?, created_at)`;
  return transact(db, () => {
    const found = db.prepare(`SELECT identity FROM mirror.console_rows WHERE ${these}`).raw();
    const lines = gateways.flatMap((one) =>
      found
        .all(one, certain, key, until)
        .map((row): AckLine => ({ kind: "ack", gateway: one, row: String(firstOf(row)), at: now })),
    );
    if (count !== null && lines.length !== count) return null;
    const mark = db.prepare(`UPDATE mirror.console_rows SET acknowledged_at = ? WHERE ${these}`);
    for (const one of gateways) mark.run(now, one, certain, key, until);
    return lines;
  });
}

/** Gateways with console rows. One seek of the primary key for each. */
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
