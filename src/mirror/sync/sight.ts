import type Database from "libsql";
import { readUnreadKeys } from "../store/coverage-gaps.ts";
import { heldTimes } from "../store/keys.ts";
import { numberIn } from "../store/query.ts";

/** So many in a row that the console should list, and does not, are no accident. */
const MOST_MISSING = 3;

/** Why what the console lists says nothing about a leak, in words; null: it lists what passes here. */
export function blindness(db: Database.Database, gateway: string, now: number): string | null {
  const unlisted = new Set(
    readUnreadKeys(db, gateway).flatMap(({ key, why }) => (why === "no-account" ? [key] : [])),
  );
  const held = [...heldTimes(db, gateway)].filter(([, { until }]) => until === null);
  if (held.length > 0 && held.every(([key]) => unlisted.has(key)))
    return "lists none of the keys that are held here: this is another account";
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
  if (last !== null) return null;
  const strange = numberIn(
    db
      .prepare(
        // Rows of a key that the console no longer lists belong to no key held here: that one was deleted there. But where
        // it links nothing to a held key, or the name of a row is unclear, a leak would not be seen.
        `SELECT count(*) FROM mirror.console_rows r
         LEFT JOIN mirror.console_keys k ON k.gateway = r.gateway AND k.ref = r.key_ref
         WHERE r.gateway = ? AND r.key IS NULL AND (r.key_ref IS NULL OR k.learnt = 'unclear'
           OR NOT EXISTS (SELECT 1 FROM mirror.console_keys WHERE gateway = r.gateway AND key <> ''))`,
      )
      .raw()
      .get(gateway),
  );
  if ((strange ?? 0) >= MOST_MISSING)
    return "does not tell which of its rows belong to the keys that are held here";
  return null;
}
