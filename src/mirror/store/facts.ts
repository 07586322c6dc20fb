import type Database from "libsql";
import { firstOf } from "./query.ts";

/*
 * What the mirror of one gateway remembers, in the table of facts.
 * mark: where the next walk begins. gaps: what of the console can no longer be seen, by its clock. covered_from, last_sync:
 * between them the console was read. begun_at: before that, another gateway had this name. compared_at: when the last
 * comparison began; running_since: when the oldest request had begun that ran then. changed_from, changed_from_mark,
 * mark_count: see changed-days.ts. own_ids: see learning.ts. start_fit: see StartFit.
 */
type Name =
  | "console"
  | "mark"
  | "changed_from"
  | "changed_from_mark"
  | "mark_count"
  | "compared_at"
  | "running_since"
  | "covered_from"
  | "begun_at"
  | "gaps"
  | "own_ids"
  | "start_fit"
  | "unseen"
  | "last_sync"
  | "told";

export function readFact(db: Database.Database, gateway: string, name: Name): string | null {
  const value = firstOf(
    db.prepare("SELECT value FROM mirror.facts WHERE name = ?").raw().get(nameOf(gateway, name)),
  );
  return value === undefined ? null : String(value);
}

/** null: it is forgotten. */
export function writeFact(db: Database.Database, gateway: string, name: Name, value: string | null): void {
  if (value === null) db.prepare("DELETE FROM mirror.facts WHERE name = ?").run(nameOf(gateway, name));
  else
    db.prepare("INSERT OR REPLACE INTO mirror.facts (name, value) VALUES (?, ?)").run(
      nameOf(gateway, name),
      value,
    );
}

export function readTime(db: Database.Database, gateway: string, name: Name): number | null {
  const text = readFact(db, gateway, name);
  return text === null ? null : Number(text);
}

function nameOf(gateway: string, name: Name): string {
  return `mirror:${gateway}:${name}`;
}

/** From when on this console's rows are read (the `since` of the first walk): records from before it are never missing. */
export function coverFrom(db: Database.Database, gateway: string, since: number, now = Infinity): void {
  // A beginning that is still to come was written before the clock was set back.
  const from = Math.max(since, Math.min(readTime(db, gateway, "begun_at") ?? since, now));
  const before = readTime(db, gateway, "covered_from");
  if (before === null || from < before) writeFact(db, gateway, "covered_from", String(from));
}
