import type Database from "libsql";
import type { Period } from "../../config/shape.ts";

/** From `from` up to, and without, `to`; milliseconds UTC. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Amounts {
  readonly requests: number;
  readonly tokens: number;
  /** Micro-dollars. */
  readonly spend: number;
}

/** One extra allowance that an owner gave. */
export interface GivenLift {
  readonly kind: "requests" | "tokens" | "spend";
  readonly amount: number;
  readonly givenAt: number;
  readonly until: number | null;
}

export interface Spent {
  readonly sums: Readonly<Record<Period, Amounts>>;
  readonly ever: number;
  readonly lifts: readonly GivenLift[];
}

/*
 * What a record takes from its tool's limits is decided once, by whoever completes it (proxy/counting.ts), and stands in
 * the record. What was never completed takes what was held for it; what runs holds that itself.
 */
const TOKENS = "coalesce(counted_tokens, held_tokens, 0)";
const SPEND = "coalesce(billed_microdollars, counted_microdollars, held_microdollars, 0)";
/*
 * In two parts, each with an index of its own. The plus keeps SQLite from looking through all that ever ran: few run at a
 * time.
 */
const WITHIN = `
  SELECT count(*), sum(tokens), sum(spend) FROM (
    SELECT ${TOKENS} AS tokens, ${SPEND} AS spend FROM log.records
    WHERE end IS NOT NULL AND tool = ?1 AND admitted_at >= ?2 AND admitted_at < ?3 AND counts IS NOT 0
    UNION ALL
    SELECT NULL, NULL FROM log.records
    WHERE end IS NULL AND +tool = ?1 AND +admitted_at >= ?2 AND +admitted_at < ?3 AND counts IS NOT 0)`;

/** What a tool used: in each span, and in all the time the log knows of, pruned records included. */
export function readSpent(db: Database.Database, tool: string, spans: Readonly<Record<Period, Span>>): Spent {
  const within = db.prepare(WITHIN).raw();
  const amounts = ({ from, to }: Span): Amounts => {
    const [requests, tokens, spend] = numbers(within.get(tool, from, to));
    return { requests: requests ?? 0, tokens: tokens ?? 0, spend: spend ?? 0 };
  };
  // The cells outlive their records.
  const ever = db.prepare("SELECT sum(counted_microdollars) FROM log.cells WHERE tool = ?").raw();
  return {
    sums: {
      second: amounts(spans.second),
      minute: amounts(spans.minute),
      hour: amounts(spans.hour),
      day: amounts(spans.day),
      month: amounts(spans.month),
    },
    ever: numbers(ever.get(tool))[0] ?? 0,
    lifts: readLifts(db, tool),
  };
}

function readLifts(db: Database.Database, tool: string): GivenLift[] {
  const rows = db
    .prepare("SELECT kind, amount, given_at, until FROM log.lifts WHERE tool = ?")
    .raw()
    .all(tool);
  return rows.flatMap((row) => {
    const [kind, amount, givenAt, until] = Array.isArray(row) ? row : [];
    if (kind !== "requests" && kind !== "tokens" && kind !== "spend") return [];
    return [
      {
        kind,
        amount: Number(amount),
        givenAt: Number(givenAt),
        until: until === null ? null : Number(until),
      },
    ];
  });
}

function numbers(row: unknown): number[] {
  return Array.isArray(row) ? row.map((value) => Number(value ?? 0)) : [];
}

export function writeLift(db: Database.Database, tool: string, lift: GivenLift, givenBy: string): true {
  db.prepare(
    "INSERT INTO log.lifts (tool, kind, amount, given_at, until, given_by) VALUES (?, ?, ?, ?, ?, ?)",
  ).run(tool, lift.kind, lift.amount, lift.givenAt, lift.until, givenBy);
  return true;
}

/** When each tool was last let in, of what is finished. Of one that never was: when it last asked. */
export function readLastUses(db: Database.Database): Map<string, number> {
  const uses = new Map<string, number>();
  const next = db.prepare("SELECT min(tool) FROM log.records WHERE tool > ? AND end IS NOT NULL").raw();
  const last = db
    .prepare(
      `SELECT started_at FROM log.records WHERE tool = ? AND end IS NOT NULL
       ORDER BY admitted_at DESC, seq DESC LIMIT 1`,
    )
    .raw();
  // One step of the index for each tool, however many records it has.
  for (let tool = firstOf(next.get("")); typeof tool === "string"; tool = firstOf(next.get(tool))) {
    uses.set(tool, Number(firstOf(last.get(tool))));
  }
  return uses;
}

function firstOf(row: unknown): unknown {
  return Array.isArray(row) ? row[0] : null;
}
