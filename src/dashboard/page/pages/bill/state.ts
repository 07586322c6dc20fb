import type { MirrorReport } from "../../../../mirror/report/shape.ts";

/**
 * The state of a console, the worst first. blind: whether a key is used elsewhere cannot be seen. stale: it was seen once,
 * and what happened since is not known. early: it is being read. fine: it was read, and nothing is wrong.
 */
type Standing = "alarm" | "suspected" | "blind" | "stale" | "early" | "look" | "fine";

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

/** What all consoles come to. */
interface Bill {
  /** Rows that belong to requests of ours, of all whose key is held here. */
  readonly ours: number;
  readonly total: number;
  /** By their log and by ours, in micro-dollars, of the tools that both sides know amounts of; null: there is none. */
  readonly amounts: { readonly billed: number; readonly expected: number } | null;
}

export function billOf(reports: readonly MirrorReport[]): Bill {
  const known = reports
    .flatMap(({ tools }) => tools)
    .flatMap(({ ours_microdollars: expected, theirs_microdollars: billed }) =>
      // Without its other side an amount says nothing about the difference.
      expected === null || billed === null ? [] : { expected, billed },
    );
  const amounts = {
    billed: sum(known, ({ billed }) => billed),
    expected: sum(known, ({ expected }) => expected),
  };
  return {
    ours: sum(reports, ({ rows }) => rows.by_id + rows.by_pair + rows.by_sum + rows.presumed + rows.differs),
    total: sum(reports, ({ rows }) => rows.total),
    amounts: known.length === 0 ? null : amounts,
  };
}

function sum<Each>(all: readonly Each[], numberOf: (each: Each) => number): number {
  return all.reduce((total, each) => total + numberOf(each), 0);
}
