import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { KeyHeldLine } from "../../usage/journal/lines.ts";
import type { HeldTime } from "../reconcile/context.ts";
import { columnsOf } from "./raw-row.ts";

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
