import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { KeyHeldLine } from "../../usage/journal/lines.ts";
import type { HeldTime } from "../reconcile/context.ts";
import { touchFrom } from "./changed-days.ts";
import { columnsOf, numberIn } from "./query.ts";

export interface HeldKey {
  readonly gateway: string;
  /** Fingerprint; null: the tool is there, but its key cannot be had just now. What it held it goes on holding. */
  readonly key: string | null;
  readonly tool: string;
}

export interface HeldBy extends HeldTime {
  /** Those that hold it; where none does, those that held it. */
  readonly tools: readonly string[];
}

/**
 * `held` is all that is held now, at all gateways. A key that was away begins anew: who used it in between is not known
 * here. `came`: when those keys came, by their names, that could not be written then. Returns what changed, for the journal.
 */
export function holdKeys(
  db: Database.Database,
  held: readonly HeldKey[],
  now: number,
  came: ReadonlyMap<string, number> = new Map(),
): KeyHeldLine[] {
  const known = readHeld(db);
  const open = new Map(known.filter(({ until }) => until === null).map((one) => [heldKeyName(one), one]));
  const begun: Held[] = [];
  const stays = new Set<string>();
  for (const one of held) {
    if (one.key === null) {
      const mine = [...open].filter(([, { gateway, tool }]) => gateway === one.gateway && tool === one.tool);
      for (const [name] of mine) stays.add(name);
    } else if (open.has(heldKeyName(one))) stays.add(heldKeyName(one));
    else {
      const since = Math.min(came.get(heldKeyName(one)) ?? now, now);
      begun.push({ ...one, key: one.key, since, until: null });
    }
  }
  const ended = [...open]
    .filter(([name]) => !stays.has(name))
    .map(([, one]): Held => ({ ...one, until: now }));
  // The clock was ahead: until it has caught up, everything would be from before.
  const lowered = [...open]
    .filter(([name, { since }]) => stays.has(name) && since > now)
    .map(([, one]): Held => ({ ...one, since: now }));
  const changed = [...lowered, ...ended, ...begun];
  if (changed.length > 0) transact(db, () => writeHeld(db, changed));
  return changed.map(lineOf);
}

/**
 * Another console has this gateway's name from now on: the keys that are held begin again, and the others are forgotten. Runs
 * in the caller's transaction. Returns what changed, for the journal.
 */
export function restartHeld(db: Database.Database, gateway: string, now: number): KeyHeldLine[] {
  const known = readHeld(db).filter((one) => one.gateway === gateway);
  db.prepare("DELETE FROM mirror.held_keys WHERE gateway = ?").run(gateway);
  const held = known.filter(({ until }) => until === null).map((one): Held => ({ ...one, since: now }));
  writeHeld(db, held);
  // No line takes a key out of the journal: held for no time at all, it is left out when a new mirror.db begins.
  const forgotten = known
    .filter(({ until }) => until !== null)
    .map((one): Held => ({ ...one, since: now, until: now }));
  return [...held, ...forgotten].map(lineOf);
}

function writeHeld(db: Database.Database, held: readonly Held[]): void {
  const write = db.prepare(
    "INSERT OR REPLACE INTO mirror.held_keys (gateway, key, tool, since, until) VALUES (?, ?, ?, ?, ?)",
  );
  for (const { gateway, key, tool, since, until } of held) write.run(gateway, key, tool, since, until);
}

function lineOf({ gateway, key, tool, since, until }: Held): KeyHeldLine {
  return { kind: "key-held", gateway, key, tool, since, until };
}

/** By fingerprint. */
export function heldTimes(db: Database.Database, gateway: string): Map<string, HeldBy> {
  const all = readHeld(db).filter((one) => one.gateway === gateway);
  const holding = new Set(all.filter(({ until }) => until === null).map(({ tool }) => tool));
  const times = new Map<string, HeldBy>();
  for (const key of new Set(all.map((one) => one.key))) {
    const mine = all.filter((one) => one.key === key);
    const open = mine.filter(({ until }) => until === null);
    const tools = (open.length > 0 ? open : mine).map(({ tool }) => tool).toSorted();
    times.set(key, {
      since: sinceOf(mine),
      until: open.length > 0 ? null : Math.max(...mine.map(({ until }) => until ?? 0)),
      replaced: open.length === 0 && tools.some((tool) => holding.has(tool)),
      tools,
    });
  }
  return times;
}

/** The beginning of the last time that was without a break, whichever tool held it. */
function sinceOf(times: readonly Held[]): number {
  const latest = times.toSorted((a, b) => (b.until ?? Infinity) - (a.until ?? Infinity) || a.since - b.since);
  let since = latest[0]?.since ?? 0;
  for (const one of latest) {
    if (one.until === null || one.until >= since) since = Math.min(since, one.since);
  }
  return since;
}

interface Held extends HeldKey {
  readonly key: string;
  readonly since: number;
  readonly until: number | null;
}

/** There are few: a row for each key that each tool ever had. */
function readHeld(db: Database.Database): Held[] {
  const rows = db.prepare("SELECT gateway, key, tool, since, until FROM mirror.held_keys").raw();
  return rows.all().map((row) => {
    const [gateway, key, tool, since, until] = columnsOf(row);
    return {
      gateway: String(gateway),
      key: String(key),
      tool: String(tool),
      since: Number(since),
      until: until === null ? null : Number(until),
    };
  });
}

export function heldKeyName({ gateway, key, tool }: HeldKey): string {
  return JSON.stringify([gateway, key, tool]);
}

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
  if (from !== null) touchFrom(db, gateway, from);
}
