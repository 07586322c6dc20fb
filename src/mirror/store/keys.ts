import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { KeyHeldLine } from "../../usage/journal/lines.ts";
import type { HeldTime } from "../reconcile/context.ts";
import { touchFrom } from "./changed-days.ts";
import { execute, queryAll, queryNumber } from "./query.ts";

/* Since when tools here held which keys, and which of them a console means by its own names. */

export interface HeldKey {
  readonly gateway: string;
  /** Fingerprint. null: the tool's key cannot be read now, and the tool keeps the key it had. */
  readonly key: string | null;
  readonly tool: string;
}

type StoredKey = Omit<KeyHeldLine, "kind">;

/**
 * Writes which keys are held now, at all gateways. A key that was not held for a while starts over, because others may have
 * used it meanwhile. Returns the changes, for the journal.
 * @param cameAt when keys came that could not be written at that time, by heldKeyName.
 */
export function holdKeys(
  db: Database.Database,
  held: readonly HeldKey[],
  now: number,
  cameAt: ReadonlyMap<string, number> = new Map(),
): KeyHeldLine[] {
  const known = readHeldKeys(db).filter(({ until }) => until === null);
  const changed: StoredKey[] = [];
  for (const one of known) {
    const isHeld = held.some(
      ({ gateway, tool, key }) =>
        gateway === one.gateway && tool === one.tool && (key === null || key === one.key),
    );
    if (!isHeld) changed.push({ ...one, until: now });
    // The clock was ahead when this was written. Until it caught up, all rows would be from before the key was held.
    else if (one.since > now) changed.push({ ...one, since: now });
  }
  const knownNames = new Set(known.map(heldKeyName));
  for (const one of held) {
    const name = heldKeyName(one);
    if (one.key === null || knownNames.has(name)) continue;
    changed.push({ ...one, key: one.key, since: Math.min(cameAt.get(name) ?? now, now), until: null });
  }
  if (changed.length > 0) transact(db, () => writeHeldKeys(db, changed));
  return changed.map((one) => ({ kind: "key-held", ...one }));
}

/**
 * Another console has this gateway's name from now on: keys that are held start over, the others are forgotten. Runs in the
 * caller's transaction. Returns the changes, for the journal.
 */
export function restartHeldKeys(db: Database.Database, gateway: string, now: number): KeyHeldLine[] {
  const known = readHeldKeys(db).filter((one) => one.gateway === gateway);
  const restarted = known.map((one) => ({ ...one, since: now, until: one.until === null ? null : now }));
  execute(db, "DELETE FROM mirror.held_keys WHERE gateway = ?", gateway);
  writeHeldKeys(
    db,
    restarted.filter(({ until }) => until === null),
  );
  // The journal cannot remove a key. A new mirror.db leaves out one that was held for no time at all.
  return restarted.map((one) => ({ kind: "key-held", ...one }));
}

export interface HeldBy extends HeldTime {
  /** The tools that hold the key, or if none does, those that held it. */
  readonly tools: readonly string[];
}

/** By fingerprint. */
export function heldTimes(db: Database.Database, gateway: string): Map<string, HeldBy> {
  const all = readHeldKeys(db).filter((one) => one.gateway === gateway);
  const holdingTools = new Set(all.filter(({ until }) => until === null).map(({ tool }) => tool));
  const times = new Map<string, HeldBy>();
  for (const key of new Set(all.map((one) => one.key))) {
    const periods = all.filter((one) => one.key === key);
    const open = periods.filter(({ until }) => until === null);
    const tools = (open.length > 0 ? open : periods).map(({ tool }) => tool).toSorted();
    times.set(key, {
      since: lastSince(periods),
      until: open.length > 0 ? null : Math.max(...periods.map(({ until }) => until ?? 0)),
      replaced: open.length === 0 && tools.some((tool) => holdingTools.has(tool)),
      tools,
    });
  }
  return times;
}

/** When the last period without a break began, no matter which tools held the key. */
function lastSince(periods: readonly StoredKey[]): number {
  const latestFirst = periods.toSorted(
    (a, b) => (b.until ?? Infinity) - (a.until ?? Infinity) || a.since - b.since,
  );
  let since = latestFirst[0]?.since ?? 0;
  for (const one of latestFirst) {
    if (one.until === null || one.until >= since) since = Math.min(since, one.since);
  }
  return since;
}

export function heldKeyName({ gateway, key, tool }: HeldKey): string {
  return JSON.stringify([gateway, key, tool]);
}

function readHeldKeys(db: Database.Database): StoredKey[] {
  return queryAll(db, "SELECT gateway, key, tool, since, until FROM mirror.held_keys");
}

function writeHeldKeys(db: Database.Database, keys: readonly StoredKey[]): void {
  const write = db.prepare(
    "INSERT OR REPLACE INTO mirror.held_keys (gateway, key, tool, since, until) VALUES (?, ?, ?, ?, ?)",
  );
  for (const { gateway, key, tool, since, until } of keys) write.run(gateway, key, tool, since, until);
}

/** Which key a console means by a name of its own. */
export interface KeyLink {
  readonly ref: string;
  /** Fingerprint. null: the key is not ours. That never replaces a known key, because keys are rotated. */
  readonly key: string | null;
  /** A key that ends like this one was held here. Whether it is this one shows a row with the id of a request of ours. */
  readonly mayBeOurs?: boolean;
}

/**
 * How a link became known. list: from the console's list of keys. row: from a row with the id of one of our requests.
 * unclear: several keys have this name (one-api shows nothing better), so the name does not identify a key.
 */
type LinkSource = "list" | "row" | "unclear";

interface StoredLink {
  readonly key: string | null;
  readonly source: LinkSource;
}

const UNCLEAR: StoredLink = { key: "", source: "unclear" };

/**
 * Writes what the console's list of keys says. Returns the refs that were known not to be ours, and now are or may be: their
 * rows were skipped so far.
 */
export function linkKeys(db: Database.Database, gateway: string, links: readonly KeyLink[]): string[] {
  const keysByRef = new Map<string, Set<string | null>>();
  for (const { ref, key } of links) keysByRef.set(ref, (keysByRef.get(ref) ?? new Set()).add(key));
  const undecided = new Set(links.filter(({ mayBeOurs }) => mayBeOurs === true).map(({ ref }) => ref));
  return transact(db, () => {
    const known = readLinks(db, gateway);
    const becameOurs: string[] = [];
    for (const [ref, keys] of keysByRef) {
      const before = known.get(ref);
      if (undecided.has(ref)) {
        if (before?.key !== null) continue;
        execute(db, "DELETE FROM mirror.console_keys WHERE gateway = ? AND ref = ?", gateway, ref);
        becameOurs.push(ref);
        continue;
      }
      const next = linkFromList(before, [...keys]);
      if (isSameLink(before, next)) continue;
      writeLink(db, gateway, ref, next);
      if (before?.key === null && next.key !== null) becameOurs.push(ref);
    }
    return becameOurs;
  });
}

function linkFromList(before: StoredLink | undefined, keys: readonly (string | null)[]): StoredLink {
  const [key = null] = keys;
  if (keys.length > 1) return UNCLEAR;
  if (key === null && before !== undefined) return before;
  // A match by id proves the key; a list shows only its ends.
  if (before?.source === "row" && before.key === key) return before;
  return { key, source: "list" };
}

/** Writes what rows that were matched by id show. */
export function learnKeys(
  db: Database.Database,
  gateway: string,
  keysByRef: ReadonlyMap<string, ReadonlySet<string>>,
): void {
  const known = readLinks(db, gateway);
  for (const [ref, found] of keysByRef) {
    const before = known.get(ref);
    if (before !== undefined && isDecided(before)) continue;
    const keys = new Set(found);
    if (before !== undefined && before.key !== null) keys.add(before.key);
    const [key = ""] = keys;
    const next: StoredLink = keys.size === 1 ? { key, source: "row" } : UNCLEAR;
    if (!isSameLink(before, next)) writeLink(db, gateway, ref, next);
  }
}

export interface KeyLinks {
  /** By ref. null: known not to be ours. Absent: not known. */
  readonly keys: ReadonlyMap<string, string | null>;
  /** Refs that a row matched by id can no longer change. */
  readonly decided: ReadonlySet<string>;
}

export function keyLinks(db: Database.Database, gateway: string): KeyLinks {
  const keys = new Map<string, string | null>();
  const decided = new Set<string>();
  for (const [ref, link] of readLinks(db, gateway)) {
    if (link.source !== "unclear") keys.set(ref, link.key);
    if (isDecided(link)) decided.add(ref);
  }
  return { keys, decided };
}

function isDecided({ key, source }: StoredLink): boolean {
  return source === "unclear" || (source === "list" && key !== null);
}

function isSameLink(before: StoredLink | undefined, next: StoredLink): boolean {
  return before?.key === next.key && before.source === next.source;
}

function readLinks(db: Database.Database, gateway: string): Map<string, StoredLink> {
  const rows = queryAll<StoredLink & { readonly ref: string }>(
    db,
    "SELECT ref, key, learnt AS source FROM mirror.console_keys WHERE gateway = ?",
    gateway,
  );
  return new Map(rows.map(({ ref, key, source }) => [ref, { key, source }]));
}

/** The rows with this name are compared again. */
function writeLink(db: Database.Database, gateway: string, ref: string, { key, source }: StoredLink): void {
  execute(
    db,
    "INSERT OR REPLACE INTO mirror.console_keys (gateway, ref, key, learnt) VALUES (?, ?, ?, ?)",
    gateway,
    ref,
    key,
    source,
  );
  const first = queryNumber(
    db,
    "SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND key_ref = ?",
    gateway,
    ref,
  );
  if (first !== null) touchFrom(db, gateway, first);
}
