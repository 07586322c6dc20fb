import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import { firstIdAt } from "../../usage/reports/filter.ts";
import { gatewaysIn } from "./ack.ts";
import { firstOf } from "./raw-row.ts";
import { keptFrom } from "./unwatched.ts";

/** So many are deleted at a time: requests wait meanwhile. */
const STEP = 250;

/**
 * Deletes what is older than the usage log: console rows, and verdicts on records that are no longer there. A small part of
 * it; true: there may be more.
 */
export function pruneStep(db: Database.Database, size: number = STEP): boolean {
  const before = keptFrom(db);
  if (before === 0) return false;
  return transact(db, () => pruneRows(db, before, size) || pruneVerdicts(db, before, size));
}

function pruneRows(db: Database.Database, before: number, size: number): boolean {
  const remove = db.prepare(
    `DELETE FROM mirror.console_rows WHERE gateway = ? AND identity IN
       (SELECT identity FROM mirror.console_rows WHERE gateway = ? AND created_at < ? ORDER BY created_at LIMIT ?)`,
  );
  return gatewaysIn(db).some((gateway) => remove.run(gateway, gateway, before, size).changes > 0);
}

/** A record that began before, but ended later, is in the log as long as its end is. */
function pruneVerdicts(db: Database.Database, before: number, size: number): boolean {
  const found = db
    .prepare(
      `SELECT record FROM mirror.verdicts WHERE record < ?
         AND NOT EXISTS (SELECT 1 FROM usage.records WHERE id = record) ORDER BY record LIMIT ?`,
    )
    .raw();
  const old = found.all(firstIdAt(before), size).map((row) => String(firstOf(row)));
  const remove = db.prepare("DELETE FROM mirror.verdicts WHERE record = ?");
  for (const record of old) remove.run(record);
  return old.length > 0;
}
