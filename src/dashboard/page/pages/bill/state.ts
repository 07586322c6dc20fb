import type { MirrorReport, ModelFactor, TokenKind, VerdictCounts } from "../../../../mirror/report/shape.ts";

/**
 * The state of a console, the worst first. blind: whether a key is used elsewhere cannot be seen. stale: it was seen once,
 * and what happened since is not known. early: it is being read. fine: it was read, and nothing is wrong.
 */
export type Standing = "alarm" | "suspected" | "blind" | "stale" | "early" | "look" | "fine";

export function standingOf(report: MirrorReport): Standing {
  const { rows, records, state } = report;
  if (report.alarms.length > 0) return report.alarms.some(({ certain }) => certain) ? "alarm" : "suspected";
  if (state === "cannot-see") return "blind";
  if (state === "waiting" || state === "syncing")
    return report.last_sync === null || state === "syncing" ? "early" : "stale";
  if (state !== "ok") return report.last_sync === null ? "blind" : "stale";
  if (report.last_sync === null) return "early";
  const doubts =
    rows.foreign_certain + rows.foreign_suspected + rows.differs + records.differs + records.missing;
  return doubts > 0 || report.why !== null || report.unseen_machines.length > 0 ? "look" : "fine";
}

interface Bill {
  /** Rows of the consoles that belong to requests of ours, of all whose key is held here. */
  readonly rows: { readonly ours: number; readonly total: number };
  /** Of the tools that both sides know amounts of, in micro-dollars. */
  readonly ours: number;
  readonly theirs: number;
  /** There is such a tool. */
  readonly isKnown: boolean;
}

export function billOf(reports: readonly MirrorReport[]): Bill {
  const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);
  // Without its other side an amount says nothing about the difference.
  const money = reports
    .flatMap(({ tools }) => tools)
    .filter(({ ours_microdollars: ours, theirs_microdollars: theirs }) => ours !== null && theirs !== null);
  return {
    rows: {
      ours: sum(
        reports.map(({ rows }) => rows.by_id + rows.by_pair + rows.by_sum + rows.presumed + rows.differs),
      ),
      total: sum(reports.map(({ rows }) => rows.total)),
    },
    ours: sum(money.map((tool) => tool.ours_microdollars ?? 0)),
    theirs: sum(money.map((tool) => tool.theirs_microdollars ?? 0)),
    isKnown: money.length > 0,
  };
}

export type CountName = Exclude<keyof VerdictCounts, "total">;

export interface HeadlinePart {
  readonly name: CountName;
  /** null: not known, because a foreign row could not have been seen. */
  readonly count: number | null;
}

const ALWAYS: readonly CountName[] = ["by_id", "presumed"];
const ORDER: readonly CountName[] = [
  "by_id",
  "by_pair",
  "by_sum",
  "presumed",
  "differs",
  "pending",
  "foreign_certain",
  "foreign_suspected",
  "elsewhere",
  "before",
  "unwatched",
  "companion",
  "duplicate",
];

/** The counts in the first line of `keybearer mirror`; null: nothing was read, so nothing is known. */
export function headlineOf(report: MirrorReport): readonly HeadlinePart[] | null {
  const { rows, state } = report;
  if (report.last_sync === null && rows.total === 0) return null;
  // Never "0 foreign" beside a suspicion.
  const isShown = (name: CountName) =>
    ALWAYS.includes(name) || rows[name] > 0 || (name === "foreign_certain" && rows.foreign_suspected === 0);
  return ORDER.filter(isShown).map((name) => {
    const blind = name === "foreign_certain" && rows[name] === 0 && state === "cannot-see";
    return { name, count: blind ? null : rows[name] };
  });
}

/** What differs in price is worth a word when it is more than rounding. */
const SAME_FACTOR = 0.01;

export function isOtherPrice(factor: number | null): factor is number {
  return factor !== null && Math.abs(factor - 1) > SAME_FACTOR;
}

/** The operator's price of each kind of token; none: all kinds have one factor, or it is not known. */
export function kindPrices({ explanation }: ModelFactor): readonly [TokenKind, number][] {
  const kinds = Object.entries(explanation?.factors ?? {}) as [TokenKind, number][];
  return new Set(kinds.map(([, factor]) => factor)).size > 1 ? kinds : [];
}

/** The clocks of two machines are never the same; beyond this it is worth a word. */
const SKEW_WORTH_A_WORD_MS = 5000;

export function isSkewed(skew: number | null): skew is number {
  return skew !== null && Math.abs(skew) >= SKEW_WORTH_A_WORD_MS;
}

/** More than this many times the usual, and at least this many requests, is not just a busy day. */
export function isFarAbove({ day, usual }: { readonly day: number; readonly usual: number }): boolean {
  return day >= 10 && day > usual * 3;
}
