import { openForReading } from "../../src/usage/ledger/connect.ts";
import { readFirstBytes } from "../../src/usage/ledger/first-bytes.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { until } from "./until.ts";

/** A record as it lies in the file, and where. */
export type StoredRecord = UsageRecord & { readonly seq: number };

type Row = Record<string, unknown>;

/** Reads a usage log over a connection of its own, as anybody else could. */
function readUsageFile<T>(file: string, read: (rows: (sql: string) => Row[]) => T, missing?: T): T {
  const opened = openForReading(file);
  // A file that is being created looks like one of an older version for a moment.
  const none = !opened.ok && (opened.why === "missing" || opened.why === "older");
  if (none && missing !== undefined) return missing;
  if (!opened.ok) throw new Error(opened.words);
  const { db, close } = opened.connection;
  const rows = (sql: string) =>
    db
      .prepare(sql)
      .all()
      .map((row) => {
        const { _metadata, ...columns } = row as Row;
        return columns;
      });
  try {
    return read(rows);
  } finally {
    close();
  }
}

/** None where there is no log yet. */
export function recordsIn(file: string): StoredRecord[] {
  const read = (rows: (sql: string) => Row[]) =>
    rows("SELECT * FROM log.records ORDER BY seq").map(storedRecord);
  return readUsageFile(file, read, []);
}

function storedRecord(row: Row): StoredRecord {
  const stream = row.stream === null ? null : row.stream === 1;
  return { ...row, stream, gateway_ids: idsIn(String(row.gateway_ids)) } as unknown as StoredRecord;
}

/** As the program reads them, also what a damaged page has made of them. */
function idsIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

const LANE = `coalesce(tool, '') AS tool, coalesce(gateway, '') AS gateway, coalesce("group", '') AS "group",
  coalesce(key, '') AS key, coalesce(model, model_answered, '') AS model`;

/** Of the endpoints that tests call. */
const FREE = `endpoint LIKE '%/count_tokens' OR endpoint LIKE '%:countTokens' OR endpoint LIKE '/v1/files%'
  OR endpoint LIKE '/v1/moderations%' OR endpoint LIKE '/v1/batches%' OR endpoint LIKE '/v1/uploads%'`;
const MAY_COST = `((method = 'POST' AND NOT (${FREE})) OR status IS 101) AND end <> 'refused'
  AND refusal IS NOT 'gateway-unreachable' AND (refusal IS NOT NULL OR coalesce(status, 0) < 400)
  AND NOT (end = 'client-left' AND bytes_in = 0 AND first_byte_at IS NULL)`;
const KNOWN = "(input_tokens IS NOT NULL AND output_tokens IS NOT NULL)";

/** The cells again, from the records alone and in the database's own words. */
const RECOUNTED = `SELECT ${LANE}, started_at / 900000 AS slot, count(*) AS requests,
  sum(end = 'refused') AS refused,
  sum(end = 'gateway-failed' OR (end = 'complete' AND coalesce(status, 0) >= 400)) AS failed,
  sum(end = 'client-left') AS client_left, sum(end = 'interrupted') AS interrupted,
  sum(${MAY_COST} AND NOT ${KNOWN}) AS unmetered, sum(${KNOWN} AND list_microdollars IS NULL) AS unpriced,
  total(input_tokens) AS input_tokens, total(cache_read_tokens) AS cache_read_tokens,
  total(cache_write_tokens) AS cache_write_tokens, total(output_tokens) AS output_tokens,
  total(reasoning_tokens) AS reasoning_tokens, total(list_microdollars) AS list_microdollars,
  total(cost_microdollars) AS cost_microdollars, total(billed_microdollars) AS billed_microdollars,
  count(billed_microdollars) AS billed_requests,
  total(CASE WHEN counts IS 0 THEN 0 ELSE coalesce(billed_microdollars, counted_microdollars,
    held_microdollars, 0) END) AS counted_microdollars, count(first_byte_at) AS first_bytes
  FROM log.records WHERE end IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6`;

/** What is wrong with the file: damage, and cells that are not the sum of their records. Nothing, where all is well. */
export function faultsIn(file: string): string[] {
  return readUsageFile(file, (rows) => {
    const integrity = rows("PRAGMA log.integrity_check").map((row) => String(Object.values(row)[0]));
    const recounted = new Map(rows(RECOUNTED).map((row) => [placeOf(row), JSON.stringify(sorted(row))]));
    const cells = rows("SELECT * FROM log.cells WHERE requests > 0").map((row) => {
      const histogram = readFirstBytes(String(row.first_bytes));
      const counted = [...histogram.values()].reduce((sum, count) => sum + count, 0);
      return { ...row, first_bytes: counted };
    });
    const faults = integrity.filter((words) => words !== "ok");
    for (const cell of cells) {
      const expected = recounted.get(placeOf(cell));
      recounted.delete(placeOf(cell));
      const found = JSON.stringify(sorted(cell));
      if (found !== expected) faults.push(`cell ${found} should be ${expected}`);
    }
    return [...faults, ...[...recounted.values()].map((cell) => `there is no cell ${cell}`)];
  });
}

function placeOf({ slot, tool, gateway, group, key, model }: Row): string {
  return JSON.stringify([slot, tool, gateway, group, key, model]);
}

function sorted(row: Row): Row {
  return Object.fromEntries(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The one record with this id, once it is finished. */
export function finished(file: string, id: string | null | undefined): Promise<StoredRecord> {
  return finishedWhere(file, `request ${id}`, (record) => record.id === id);
}

/** The same for a client that never saw an id: the one record of this model. */
export function finishedModel(file: string, model: string): Promise<StoredRecord> {
  return finishedWhere(file, `model ${model}`, (record) => record.model === model);
}

/** The one record that `isMine` accepts, once it is finished. Fails where there are two. */
export async function finishedWhere(
  file: string,
  what: string,
  isMine: (record: StoredRecord) => boolean,
): Promise<StoredRecord> {
  let mine: StoredRecord[] = [];
  await until(`${what} has a finished record`, () => {
    mine = recordsIn(file).filter(isMine);
    return mine.some(({ end }) => end !== null);
  });
  const [record, ...more] = mine;
  if (record === undefined || more.length > 0) throw new Error(`${what} has ${more.length + 1} records`);
  return record;
}
