import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import { touchFrom } from "./changed-days.ts";
import { readFact, writeFact } from "./facts.ts";
import { answerOf, firstOf } from "./query.ts";

/** A span in which something cannot be seen, from (without) to, milliseconds UTC. */
export interface CoverageGap {
  readonly from: number;
  readonly to: number;
  /** Of one key only, by its fingerprint. See ConsoleGap. */
  readonly key?: string;
  readonly why?: "many" | "refused";
}

/** Of all gateways: it is our own log that knows nothing of these times. */
const FACT = "mirror:unwatched";
/** Beyond it the two oldest become one: to see less is better than to take our own for a leak. */
const MOST = 50;
/** A row is a little earlier than its request where the clocks are compared to about a second only. */
const MARGIN_MS = 60_000;

/** Times, by our clock, in which something of ours may not have been recorded, the oldest first. */
export function readLogGaps(db: Database.Database): readonly CoverageGap[] {
  const kept = keptFrom(db);
  return listed(db).filter(({ to }) => to > kept);
}

/** Kept, so that whoever judges again says the same; and what was judged of that time is judged again. */
export function addLogGap(db: Database.Database, gap: CoverageGap): void {
  transact(db, () => {
    const gaps = joined([...readLogGaps(db), gap]);
    db.prepare("INSERT OR REPLACE INTO mirror.facts (name, value) VALUES (?, ?)").run(
      FACT,
      JSON.stringify(gaps),
    );
    for (const gateway of judgedGateways(db)) touchFrom(db, gateway, gap.from - MARGIN_MS);
  });
}

/** The usage log has everything from then on; 0: nothing was ever removed from it. */
export function keptFrom(db: Database.Database): number {
  return Number(answerOf(db, "SELECT value FROM usage.meta WHERE name = 'kept_from'") ?? 0);
}

function listed(db: Database.Database): readonly CoverageGap[] {
  try {
    const gaps: unknown = JSON.parse(
      String(answerOf(db, `SELECT value FROM mirror.facts WHERE name = '${FACT}'`) ?? "[]"),
    );
    return Array.isArray(gaps) ? gaps.filter(isGap) : [];
  } catch (error) {
    // Only the text is ours to forgive.
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

function isGap(value: unknown): value is CoverageGap {
  const { from, to } = (value ?? {}) as Partial<CoverageGap>;
  return typeof from === "number" && typeof to === "number";
}

function joined(gaps: readonly CoverageGap[]): CoverageGap[] {
  const all: CoverageGap[] = [];
  for (const gap of gaps.toSorted((a, b) => a.from - b.from)) {
    const last = all.at(-1);
    if (last === undefined || gap.from > last.to) all.push(gap);
    else all[all.length - 1] = { from: last.from, to: Math.max(last.to, gap.to) };
  }
  const [first, ...later] = all.slice(0, Math.max(1, all.length - MOST + 1));
  if (first === undefined || later.length === 0) return all;
  return [{ from: first.from, to: later.at(-1)?.to ?? first.to }, ...all.slice(later.length + 1)];
}

function judgedGateways(db: Database.Database): string[] {
  const [before, after] = ["mirror:", ":compared_at"];
  const names = db.prepare("SELECT name FROM mirror.facts WHERE name >= ? AND name < ?").raw();
  return names
    .all(before, `${before}\u{10FFFF}`)
    .map((row) => String(firstOf(row)))
    .filter((name) => name.endsWith(after))
    .map((name) => name.slice(before.length, -after.length));
}

/** A key that is held here, and that the last sync did not read. */
export interface UnreadKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
  /** no-account: no account that is logged in lists it. not-read: the console allowed no further call. */
  readonly why: "no-account" | "not-read";
}

export function readUnreadKeys(db: Database.Database, gateway: string): readonly UnreadKey[] {
  const text = readFact(db, gateway, "unseen");
  return text === null ? [] : JSON.parse(text);
}

export function writeUnreadKeys(db: Database.Database, gateway: string, unseen: readonly UnreadKey[]): void {
  const before = readUnreadKeys(db, gateway);
  writeFact(db, gateway, "unseen", unseen.length === 0 ? null : JSON.stringify(unseen));
  const isNowOther = (one: UnreadKey) => !unseen.some(({ key, why }) => key === one.key && why === one.why);
  // What could not be called missing can be now.
  if (before.some(isNowOther)) touchFrom(db, gateway, 0);
}

/** By the console's clock. */
export function readConsoleGaps(db: Database.Database, gateway: string): readonly CoverageGap[] {
  const text = readFact(db, gateway, "gaps");
  return text === null ? [] : JSON.parse(text);
}

/** Those that touch become one, so that the same gap said again changes nothing. */
export function addConsoleGap(db: Database.Database, gateway: string, gap: CoverageGap): void {
  const isAlike = (one: CoverageGap) => one.key === gap.key && one.why === gap.why;
  const before = readConsoleGaps(db, gateway);
  const joined: CoverageGap[] = [];
  for (const one of [...before.filter(isAlike), gap].toSorted((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last === undefined || one.from > last.to) joined.push(one);
    else joined[joined.length - 1] = { ...last, to: Math.max(last.to, one.to) };
  }
  const others = before.filter((one) => !isAlike(one));
  writeFact(db, gateway, "gaps", JSON.stringify([...others, ...joined]));
}
