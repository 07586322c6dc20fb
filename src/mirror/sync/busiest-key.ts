import type Database from "libsql";
import { numberIn } from "../store/query.ts";

/** How many of our requests since then went out with the key that was used most. */
export function busiestKey(db: Database.Database, gateway: string, since: number): number {
  const most = db
    .prepare(
      `SELECT max(calls) FROM (SELECT count(*) AS calls FROM usage.records
         WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? GROUP BY key)`,
    )
    .raw();
  return numberIn(most.get(gateway, since)) ?? 0;
}
