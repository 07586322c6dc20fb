import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import { markFrom } from "./changed-days.ts";
import { columnsOf, numberIn } from "./raw-row.ts";

/** Whose key a console means by a name of its own. */
export interface KeyLink {
  readonly ref: string;
  /** Fingerprint; null: known not to be ours. It never takes back a key that was known: keys are rotated. */
  readonly key: string | null;
}

/**
 * list: the console's list of keys told it. row: a row with the id of one of our requests did. unclear: several keys go by
 * this name (one-api tells nothing better), so that nothing can be said of it.
 */
type Learnt = "list" | "row" | "unclear";

/**
 * What the console's list of keys tells. Answers the refs that were known not to be ours, and are now: their rows were
 * passed over so far.
 */
export function linkKeys(
  db: Database.Database,
  gateway: string,
  links: readonly KeyLink[],
): readonly string[] {
  return transact(db, () => {
    const known = read(db, gateway);
    const told = new Map<string, KeyLink | null>();
    // The same name twice, and not for the same key: unclear, also where one of them is not ours.
    for (const link of links) {
      const before = told.get(link.ref);
      told.set(link.ref, before === undefined || before?.key === link.key ? link : null);
    }
    const became: string[] = [];
    for (const [ref, link] of told) {
      const before = known.get(ref);
      const next = afterList(before, link);
      if (next === null || same(before, next)) continue;
      write(db, gateway, ref, next);
      if (before?.key === null && next.key !== null) became.push(ref);
    }
    return became;
  });
}

/** null: it stays as it is. */
function afterList(before: Link | undefined, link: KeyLink | null): Link | null {
  if (link === null) return { key: "", learnt: "unclear" };
  if (link.key === null && before !== undefined) return null;
  // A row that was matched by id proves what a list only shows the ends of.
  if (before?.learnt === "row" && before.key === link.key) return null;
  return { key: link.key, learnt: "list" };
}

/** What rows tell that were matched by id. */
export function learnKeys(
  db: Database.Database,
  gateway: string,
  learnt: ReadonlyMap<string, ReadonlySet<string>>,
): void {
  const known = read(db, gateway);
  for (const [ref, keys] of learnt) {
    const before = known.get(ref);
    if (before?.learnt === "unclear" || (before?.learnt === "list" && before.key !== null)) continue;
    const all = new Set([...keys, ...(before?.key == null ? [] : [before.key])]);
    const [key = ""] = all;
    const next: Link = all.size === 1 ? { key, learnt: "row" } : { key: "", learnt: "unclear" };
    if (!same(before, next)) write(db, gateway, ref, next);
  }
}

export interface KeyLinks {
  /** By ref; null: known not to be ours; not there: not known. */
  readonly keys: ReadonlyMap<string, string | null>;
  /** Refs of which a row that is matched by id teaches nothing new. */
  readonly decided: ReadonlySet<string>;
}

export function keyLinks(db: Database.Database, gateway: string): KeyLinks {
  const keys = new Map<string, string | null>();
  const decided = new Set<string>();
  for (const [ref, { key, learnt }] of read(db, gateway)) {
    if (learnt !== "unclear") keys.set(ref, key);
    if (learnt === "unclear" || (learnt === "list" && key !== null)) decided.add(ref);
  }
  return { keys, decided };
}

interface Link {
  readonly key: string | null;
  readonly learnt: Learnt;
}

function same(before: Link | undefined, next: Link): boolean {
  return before?.key === next.key && before.learnt === next.learnt;
}

function read(db: Database.Database, gateway: string): Map<string, Link> {
  const rows = db.prepare("SELECT ref, key, learnt FROM mirror.console_keys WHERE gateway = ?").raw();
  return new Map(
    rows.all(gateway).map((row) => {
      const [ref, key, learnt] = columnsOf(row);
      return [String(ref), { key: key === null ? null : String(key), learnt: learnt as Learnt }];
    }),
  );
}

function write(db: Database.Database, gateway: string, ref: string, { key, learnt }: Link): void {
  db.prepare(
    "INSERT OR REPLACE INTO mirror.console_keys (gateway, ref, key, learnt) VALUES (?, ?, ?, ?)",
  ).run(gateway, ref, key, learnt);
  const first = db
    .prepare("SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND key_ref = ?")
    .raw();
  const from = numberIn(first.get(gateway, ref));
  if (from !== null) markFrom(db, gateway, from);
}
