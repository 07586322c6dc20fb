import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import { markFrom } from "./changed-days.ts";
import type { Gap } from "./facts.ts";
import { answerOf, firstOf } from "./raw-row.ts";

/** Of all gateways: it is our own log that knows nothing of these times. */
const FACT = "mirror:unwatched";
/** Beyond it the two oldest become one: to see less is better than to take our own for a leak. */
const MOST = 50;
/** A row is a little earlier than its request where the clocks are compared to about a second only. */
const MARGIN_MS = 60_000;

/** Times, by our clock, in which something of ours may not have been recorded, the oldest first. */
export function readUnwatched(db: Database.Database): readonly Gap[] {
  const kept = keptFrom(db);
  return listed(db).filter(({ to }) => to > kept);
}

/** Kept, so that whoever judges again says the same; and what was judged of that time is judged again. */
export function addUnwatched(db: Database.Database, gap: Gap): void {
  transact(db, () => {
    const gaps = joined([...readUnwatched(db), gap]);
    db.prepare("INSERT OR REPLACE INTO mirror.facts (name, value) VALUES (?, ?)").run(
      FACT,
      JSON.stringify(gaps),
    );
    for (const gateway of judgedGateways(db)) markFrom(db, gateway, gap.from - MARGIN_MS);
  });
}

/** The usage log has everything from then on; 0: nothing was ever removed from it. */
export function keptFrom(db: Database.Database): number {
  return Number(answerOf(db, "SELECT value FROM usage.meta WHERE name = 'kept_from'") ?? 0);
}

function listed(db: Database.Database): readonly Gap[] {
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

function isGap(value: unknown): value is Gap {
  const { from, to } = (value ?? {}) as Partial<Gap>;
  return typeof from === "number" && typeof to === "number";
}

function joined(gaps: readonly Gap[]): Gap[] {
  const all: Gap[] = [];
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
