import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { KeyHeldLine } from "../../usage/journal/lines.ts";
import { restartHeld } from "./held.ts";
import { firstOf } from "./raw-row.ts";

/** A span in which something cannot be seen, from (without) to, milliseconds UTC. */
export interface Gap {
  readonly from: number;
  readonly to: number;
  /** Of one key only, by its fingerprint. See ConsoleGap. */
  readonly key?: string;
  readonly why?: "many" | "refused";
}

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

/** When the last walk over this console's rows was complete, by our clock. Nothing younger can be called missing. */
export function readSynced(db: Database.Database, gateway: string): number | null {
  return readTime(db, gateway, "last_sync");
}

export function writeSynced(db: Database.Database, gateway: string, at: number): void {
  writeFact(db, gateway, "last_sync", String(at));
}

/** From when on this console's rows are read (the `since` of the first walk): records from before it are never missing. */
export function coverFrom(db: Database.Database, gateway: string, since: number, now = Infinity): void {
  // A beginning that is still to come was written before the clock was set back.
  const from = Math.max(since, Math.min(readTime(db, gateway, "begun_at") ?? since, now));
  const before = readTime(db, gateway, "covered_from");
  if (before === null || from < before) writeFact(db, gateway, "covered_from", String(from));
}

/** By the console's clock. */
export function readGaps(db: Database.Database, gateway: string): readonly Gap[] {
  const text = readFact(db, gateway, "gaps");
  return text === null ? [] : JSON.parse(text);
}

/** Those that touch become one, so that the same gap said again changes nothing. */
export function addGap(db: Database.Database, gateway: string, gap: Gap): void {
  const isAlike = (one: Gap) => one.key === gap.key && one.why === gap.why;
  const before = readGaps(db, gateway);
  const joined: Gap[] = [];
  for (const one of [...before.filter(isAlike), gap].toSorted((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last === undefined || one.from > last.to) joined.push(one);
    else joined[joined.length - 1] = { ...last, to: Math.max(last.to, one.to) };
  }
  const others = before.filter((one) => !isAlike(one));
  writeFact(db, gateway, "gaps", JSON.stringify([...others, ...joined]));
}

/** What the alarm keeps for itself. */
export function readTold(db: Database.Database, gateway: string): string | null {
  return readFact(db, gateway, "told");
}

export function writeTold(db: Database.Database, gateway: string, told: string): void {
  writeFact(db, gateway, "told", told);
}

/**
 * Another gateway, or another console, has this name from now on: nothing that the one before told, or was compared with it,
 * is of this one. What records took from it stays theirs, and an alarm that nobody acknowledged stands. Returns what changed
 * about held keys, for the journal.
 */
export function forgetConsole(
  db: Database.Database,
  gateway: string,
  now: number,
  alarms: boolean,
): KeyHeldLine[] {
  return transact(db, () => {
    const standing = alarms ? `AND NOT (${STANDING})` : "";
    db.prepare(`DELETE FROM mirror.console_rows WHERE gateway = ? ${standing}`).run(gateway);
    // Under a name that no row of the new console can have, and found by nothing but its key.
    db.prepare(
      `UPDATE mirror.console_rows SET identity = ? || identity, request_id = NULL, upstream_id = NULL, key_ref = NULL
       WHERE gateway = ? AND identity NOT LIKE 'earlier:%'`,
    ).run(`earlier:${now}:`, gateway);
    for (const table of ["console_keys", "verdicts", "changed_days"])
      db.prepare(`DELETE FROM mirror.${table} WHERE gateway = ?`).run(gateway);
    const held = restartHeld(db, gateway, now);
    const prefix = `mirror:${gateway}:`;
    db.prepare("DELETE FROM mirror.facts WHERE name >= ? AND name < ?").run(prefix, `${prefix}\u{10FFFF}`);
    writeFact(db, gateway, "begun_at", String(now));
    return held;
  });
}

const STANDING = "verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL";

/**
 * Whose console this is. One of another origin, or of another gateway's, has other rows under the same numbers: then what
 * was known is forgotten, and this returns what changed about held keys. null: it is no other than before.
 */
export function claimConsole(
  db: Database.Database,
  gateway: string,
  origins: string,
  now: number,
): KeyHeldLine[] | null {
  const before = readFact(db, gateway, "console");
  if (before === origins) return null;
  const held = before === null ? null : forgetConsole(db, gateway, now, true);
  writeFact(db, gateway, "console", origins);
  return held;
}
