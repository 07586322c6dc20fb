import type Database from "libsql";

/** What was shown: of every gateway and every key where these are null; `until` is the newest row's time, the console's. */
export interface Shown {
  readonly gateway: string | null;
  readonly key: string | null;
  readonly until: number | null;
}

/** The alarm has been heard. Answers how many rows that was. */
export function acknowledge(db: Database.Database, { gateway, key, until }: Shown, now: number): number {
  const gateways = gateway === null ? gatewaysIn(db) : [gateway];
  const mark = db.prepare(
    `UPDATE log.console_rows INDEXED BY console_rows_alarming SET acknowledged_at = ?
     WHERE gateway = ? AND verdict = 'foreign' AND certain = 1
     AND acknowledged_at IS NULL AND key = coalesce(?, key) AND created_at <= coalesce(?, created_at)`,
  );
  return gateways.reduce((sum, one) => sum + mark.run(now, one, key, until).changes, 0);
}

/** Those with console rows: one step of the primary key each. */
export function gatewaysIn(db: Database.Database): string[] {
  const next = db.prepare("SELECT min(gateway) FROM log.console_rows WHERE gateway > ?").raw();
  const names: string[] = [];
  for (let last = ""; ; ) {
    const [name] = next.get(last) as [string | null];
    if (name === null) return names;
    names.push(name);
    last = name;
  }
}
