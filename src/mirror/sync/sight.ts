import type Database from "libsql";
import { numberIn } from "../store/raw-row.ts";

/** So many in a row that the console should list, and does not, are no accident. */
const MOST_MISSING = 3;

/** Why what the console lists says nothing about a leak, in words; null: it lists what passes here. */
export function blindness(db: Database.Database, gateway: string, now: number): string | null {
  // What has a time to come is from before the clock was set back, and says nothing of today.
  const ofVerdicts = "FROM mirror.verdicts WHERE gateway = ? AND started_at <= ?";
  const last = numberIn(
    db
      .prepare(`SELECT max(started_at) ${ofVerdicts} AND verdict IN ('matched', 'differs')`)
      .raw()
      .get(gateway, now),
  );
  const missing = numberIn(
    db
      .prepare(`SELECT count(*) ${ofVerdicts} AND verdict = 'missing' AND started_at > ?`)
      .raw()
      .get(gateway, now, last ?? 0),
  );
  if ((missing ?? 0) >= MOST_MISSING)
    return `lists none of the last ${missing} requests that passed here: its operator may have switched its log off, or this is another account`;
  const strange = numberIn(
    db
      .prepare(
        "SELECT count(*) FROM mirror.console_rows WHERE gateway = ? AND key IS NULL AND created_at > ?",
      )
      .raw()
      .get(gateway, last ?? 0),
  );
  if ((strange ?? 0) >= MOST_MISSING && last === null)
    return "does not tell which of its rows belong to the keys that are held here";
  return null;
}
