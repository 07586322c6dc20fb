import type { MirrorReport } from "../../../../mirror/report/shape.ts";

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
