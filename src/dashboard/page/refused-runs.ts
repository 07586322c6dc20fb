import type { RefusedRecord } from "../api.ts";

/** The same refusal several times in a row. */
export interface RefusedRun {
  /** The newest of them. */
  readonly record: RefusedRecord;
  readonly times: number;
}

/** A client that tries again and again would hide every other refusal. */
export function refusedRuns(records: readonly RefusedRecord[]): RefusedRun[] {
  const runs: RefusedRun[] = [];
  for (const record of records) {
    const last = runs.at(-1);
    if (last !== undefined && isSame(last.record, record))
      runs[runs.length - 1] = { ...last, times: last.times + record.requests };
    else runs.push({ record, times: record.requests });
  }
  return runs;
}

function isSame(one: RefusedRecord, other: RefusedRecord): boolean {
  return one.tool === other.tool && one.refusal === other.refusal && one.model === other.model;
}
