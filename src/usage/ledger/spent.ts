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

/** No request waits longer for room than this, so that one that was let in since `from` began after from less this. */
const LONGEST_WAIT = 3_600_000;

/*
 * What a record takes from its tool's limits, as the running program counts it (proxy/recording.ts, usedBy): what was
 * reported or billed; nothing where the gateway itself refused; else what was held for it.
 */
const REFUSED_THERE = "(status IS NOT NULL AND status BETWEEN 400 AND 499)";
const TOKENS = `CASE
  WHEN input_tokens IS NOT NULL
    THEN input_tokens + coalesce(cache_read_tokens, 0) + coalesce(cache_write_tokens, 0) + coalesce(output_tokens, 0)
  WHEN ${REFUSED_THERE} THEN 0
  ELSE coalesce(held_tokens, 0) END`;
const SPEND = `coalesce(billed_microdollars, cost_microdollars,
  CASE WHEN ${REFUSED_THERE} THEN 0 ELSE coalesce(held_microdollars, 0) END)`;
/** It reached the gateway, or may have. What left before it was let in has neither an answer nor anything held for it. */
const WENT = `end IS NOT 'refused' AND refusal IS NOT 'gateway-unreachable'
  AND NOT (status IS NULL AND held_tokens IS NULL)`;
/** What still runs holds its own reservation. */
const ENDED = "end IS NOT NULL";

/** What a tool used: in each span, and in all the time the log knows of, pruned records included. */
export function readSpent(db: Database.Database, tool: string, spans: Readonly<Record<Period, Span>>): Spent {
  const within = db
    .prepare(
      `SELECT count(*), sum(CASE WHEN ${ENDED} THEN ${TOKENS} END), sum(CASE WHEN ${ENDED} THEN ${SPEND} END)
       FROM log.records
       WHERE tool = ? AND started_at >= ? AND started_at < ? AND started_at + waited_ms >= ? AND ${WENT}`,
    )
    .raw();
  const amounts = ({ from, to }: Span): Amounts => {
    const [requests, tokens, spend] = numbers(within.get(tool, from - LONGEST_WAIT, to, from));
    return { requests: requests ?? 0, tokens: tokens ?? 0, spend: spend ?? 0 };
  };
  return {
    sums: {
      second: amounts(spans.second),
      minute: amounts(spans.minute),
      hour: amounts(spans.hour),
      day: amounts(spans.day),
      month: amounts(spans.month),
    },
    ever: everSpent(db, tool),
    lifts: readLifts(db, tool),
  };
}

/** Known costs from the cells, which outlive their records; then those records of which only the reservation is known. */
function everSpent(db: Database.Database, tool: string): number {
  const known = db.prepare("SELECT sum(cost_microdollars) FROM log.cells WHERE tool = ?").raw();
  const held = db
    .prepare(
      `SELECT sum(${SPEND}) FROM log.records
       WHERE tool = ? AND cost_microdollars IS NULL AND held_microdollars > 0 AND ${ENDED} AND ${WENT}`,
    )
    .raw();
  return (numbers(known.get(tool))[0] ?? 0) + (numbers(held.get(tool))[0] ?? 0);
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

export function readLastUses(db: Database.Database): Map<string, number> {
  const uses = new Map<string, number>();
  const next = db.prepare("SELECT min(tool) FROM log.records WHERE tool > ?").raw();
  const last = db.prepare("SELECT max(started_at) FROM log.records WHERE tool = ?").raw();
  // One step of the index for each tool, however many records it has.
  for (let tool = firstOf(next.get("")); typeof tool === "string"; tool = firstOf(next.get(tool))) {
    uses.set(tool, Number(firstOf(last.get(tool))));
  }
  return uses;
}

function firstOf(row: unknown): unknown {
  return Array.isArray(row) ? row[0] : null;
}
