import type { Database } from "libsql";
import { idSteps } from "./record-sums.ts";
import { buildConditions, type Filter, idRange, RECORD_SERIES } from "./records.ts";
import { type Range, stepsOf, widened } from "./sums.ts";

/** Requests that one model answered although another was asked for, going by their names. */
export interface OtherModel {
  readonly tool: string;
  readonly asked: string;
  readonly answered: string;
  readonly requests: number;
}

/** The most frequent first. Whether two names mean the same model is decided by metering/same-model.ts. */
export function countOtherModels(db: Database, filter: Filter, range: Range): OtherModel[] {
  const found = new Map<string, OtherModel>();
  const add = (rows: unknown[]) => {
    for (const [tool, asked, answered, requests] of rows as [string, string, string, number][]) {
      const name = JSON.stringify([tool, asked, answered]);
      found.set(name, {
        tool,
        asked,
        answered,
        requests: Number(requests) + (found.get(name)?.requests ?? 0),
      });
    }
  };
  const inRollups = buildConditions(filter, "rollups");
  const rollups = db
    .prepare(
      `SELECT tool, model, answered, sum(requests) FROM rollups
       WHERE quarter >= ? AND quarter < ? AND answered <> ''${inRollups.sql} GROUP BY 1, 2, 3`,
    )
    .raw();
  for (const { from, to } of stepsOf(db, range.inner)) {
    add(rollups.all(from, to, ...inRollups.values));
  }
  const inRecords = buildConditions(filter, "records");
  const records = db
    .prepare(
      `SELECT ${RECORD_SERIES.tool}, model, model_answered, count(*) FROM records
       WHERE id >= ? AND id < ? AND started_at >= ? AND started_at < ? AND "end" IS NOT NULL
         AND model <> model_answered${inRecords.sql} GROUP BY 1, 2, 3`,
    )
    .raw();
  for (const period of range.edges) {
    const times = [period.since ?? 0, period.until ?? Number.MAX_SAFE_INTEGER];
    for (const ids of idSteps(db, ...idRange(widened(period)))) {
      add(records.all(...ids, ...times, ...inRecords.values));
    }
  }
  return [...found.values()].sort((a, b) => b.requests - a.requests || (a.tool < b.tool ? -1 : 1));
}
