import type { ShownRecord } from "../api.ts";

/** The same refusal several times. */
export interface RefusedGroup {
  /** The newest of them. */
  readonly record: ShownRecord;
  readonly times: number;
}

/** By tool, reason and model, the newest first: a client that tries again and again would hide every other refusal. */
export function refusedGroups(records: readonly ShownRecord[]): RefusedGroup[] {
  const groups = new Map<string, RefusedGroup>();
  for (const record of records) {
    const key = JSON.stringify([record.tool, record.refusal, record.model]);
    const group = groups.get(key);
    groups.set(key, { record: group?.record ?? record, times: (group?.times ?? 0) + record.requests });
  }
  return [...groups.values()];
}
