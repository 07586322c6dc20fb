import type { RecordsPage, ShownRecord } from "../../api.ts";

/** The records that were fetched so far, newest first, and where to go on. */
export interface Listed {
  readonly records: readonly ShownRecord[];
  /** null: there are no more. */
  readonly next: string | null;
  /** How many there are in all; null: more than these, not counted. */
  readonly count: number | null;
}

export const NOTHING_LISTED: Listed = { records: [], next: null, count: 0 };

/** At most this many are fetched again at once. The pages below follow when they are scrolled to. */
const MOST_ANEW = 5000;

/** From the top as far down as was listed before, so that the reader keeps their place. */
export async function listAgain(
  fetchPage: (before: string | null) => Promise<RecordsPage>,
  reach: number,
): Promise<Listed> {
  let listed = withPage(NOTHING_LISTED, await fetchPage(null));
  while (listed.next !== null && listed.records.length < Math.min(reach, MOST_ANEW))
    listed = withPage(listed, await fetchPage(listed.next));
  return listed;
}

/** Older ones come below. What came by itself meanwhile is not listed twice. */
export function withPage(listed: Listed, { records, next, count }: RecordsPage): Listed {
  const oldest = listed.records.at(-1)?.id;
  const older = oldest === undefined ? records : records.filter(({ id }) => id < oldest);
  const all = [...listed.records, ...older];
  if (next === null) return { records: all, next, count: all.length };
  return { records: all, next, count: count === null ? null : Math.max(count, all.length) };
}

/** One that is over just now. Ids sort by the time it began, and who began later may be over earlier. */
export function withRecord(listed: Listed, record: ShownRecord): Listed {
  const { records, next, count } = listed;
  const oldest = records.at(-1);
  // It belongs below what was fetched so far, and comes with its page.
  if (oldest !== undefined && next !== null && record.id < oldest.id) return listed;
  const found = records.findIndex(({ id }) => id <= record.id);
  const at = found === -1 ? records.length : found;
  const isThere = records[at]?.id === record.id;
  return {
    records: [...records.slice(0, at), record, ...records.slice(isThere ? at + 1 : at)],
    next,
    count: count === null || isThere ? count : count + 1,
  };
}
