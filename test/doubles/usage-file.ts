import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import { UsageIndex } from "../../src/usage/index/usage-index.ts";
import { journalFiles, readLines } from "../../src/usage/journal/files.ts";
import { AMENDED, parseLine, recordOfRefusals } from "../../src/usage/journal/lines.ts";
import { recordOfFields, type UsageRecord } from "../../src/usage/record.ts";
import { parseHistogram } from "../../src/usage/rollups.ts";
import { until } from "./until.ts";

/** The records in a journal's folder, read line by line as docs/usage-log.md says. None where there is none yet. */
export function recordsIn(folder: string): UsageRecord[] {
  const records = new Map<string, UsageRecord>();
  for (const file of journalFiles(folder)) {
    for (const { texts } of readLines(file, 0, true)) {
      for (const text of texts) {
        const line = parseLine(text);
        if (line?.kind === "refusals") {
          const run = recordOfRefusals(line);
          if ((records.get(run.id)?.requests ?? 0) < run.requests) records.set(run.id, run);
        }
        if (line === null || !("id" in line)) continue;
        const known = records.get(line.id);
        const { kind, ...fields } = line;
        if (kind === "open" && known === undefined) records.set(line.id, recordOfFields({ ...line }));
        if ((kind === "head" || kind === "sent") && known?.end === null)
          records.set(line.id, { ...known, ...fields } as UsageRecord);
        if (kind === "close" && known?.end == null) records.set(line.id, recordOfFields({ ...line }));
        if (kind === "sibling" && known === undefined) records.set(line.id, fields as UsageRecord);
        if (line.kind !== "amend" && line.kind !== "sibling-amend") continue;
        const machine = line.kind === "amend" ? null : line.machine_id;
        if (known?.machine_id === machine)
          records.set(line.id, {
            ...known,
            ...Object.fromEntries(AMENDED.map((name) => [name, line[name]])),
          });
      }
    }
  }
  return [...records.values()];
}

const SERIES = `coalesce(tool, '') AS tool, coalesce(gateway, '') AS gateway, coalesce("group", '') AS "group",
  coalesce(key, '') AS key, coalesce(model, model_answered, '') AS model, coalesce(machine, '') AS machine,
  coalesce(project, '') AS project, coalesce(branch, '') AS branch, coalesce(token, '') AS token,
  CASE WHEN model <> model_answered THEN model_answered ELSE '' END AS answered`;

/** Of the endpoints that tests call. */
const FREE = `endpoint LIKE '%/count_tokens' OR endpoint LIKE '%:countTokens' OR endpoint LIKE '/v1/files%'
  OR endpoint LIKE '/v1/moderations%' OR endpoint LIKE '/v1/batches%' OR endpoint LIKE '/v1/uploads%'`;
const MAY_COST = `((method = 'POST' AND NOT (${FREE})) OR status IS 101) AND sent_at IS NOT NULL
  AND (refusal IS NOT NULL OR coalesce(status, 0) < 400)`;
const METERED = "(input_tokens IS NOT NULL AND output_tokens IS NOT NULL)";

/** The rollups again, from the records alone and in the database's own words. */
const RECOUNTED = `SELECT ${SERIES}, started_at / 900000 AS quarter, sum(requests) AS requests,
  sum(("end" = 'refused') * requests) AS refused,
  sum("end" = 'gateway-failed' OR ("end" = 'complete' AND coalesce(status, 0) >= 400)) AS failed,
  sum(("end" = 'client-left') * requests) AS client_left, sum("end" = 'interrupted') AS interrupted,
  sum(${MAY_COST} AND NOT ${METERED}) AS unmetered, sum(${METERED} AND list_microdollars IS NULL) AS unpriced,
  total(input_tokens) AS input_tokens, total(cache_read_tokens) AS cache_read_tokens,
  total(cache_write_tokens) AS cache_write_tokens, total(output_tokens) AS output_tokens,
  total(reasoning_tokens) AS reasoning_tokens, total(list_microdollars) AS list_microdollars,
  total(cost_microdollars) AS cost_microdollars, total(billed_microdollars) AS billed_microdollars,
  count(billed_microdollars) AS billed_requests, count(first_byte_at) AS first_bytes
  FROM usage.records WHERE "end" IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11`;

type Row = Record<string, unknown>;

/** What is wrong with an index: damage, and rollups that are not the sum of their records. Nothing, where all is well. */
export function indexFaults(file: string): string[] {
  const { db, close } = openIndexForReading(file);
  const rows = (sql: string): Row[] =>
    db
      .prepare(sql)
      .all()
      .map((row) => {
        const { _metadata, ...columns } = row as Row;
        return columns;
      });
  try {
    const integrity = rows("PRAGMA usage.integrity_check").map((row) => String(Object.values(row)[0]));
    const faults = integrity.filter((words) => words !== "ok");
    const recounted = new Map(rows(RECOUNTED).map((row) => [placeOf(row), JSON.stringify(sorted(row))]));
    for (const row of rows("SELECT * FROM usage.rollups")) {
      const counted = [...parseHistogram(String(row.first_bytes)).values()].reduce((sum, n) => sum + n, 0);
      const found = JSON.stringify(sorted({ ...row, first_bytes: counted }));
      const expected = recounted.get(placeOf(row));
      recounted.delete(placeOf(row));
      if (found !== expected) faults.push(`rollup ${found} should be ${expected}`);
    }
    return [...faults, ...[...recounted.values()].map((rollup) => `there is no rollup ${rollup}`)];
  } finally {
    close();
  }
}

/** The same for the index that a rebuild makes of a journal's folder, which must have the records that are in there. */
export function faultsIn(folder: string): string[] {
  const temporary = mkdtempSync(join(tmpdir(), "kb-index-"));
  try {
    const file = join(temporary, "index.db");
    const index = new UsageIndex({ file, folder }, null);
    for (const _ of index.rebuild());
    const { damagedLines } = index.progress();
    index.close();
    const faults = indexFaults(file);
    const indexed = indexedRecords(file).length;
    const there = recordsIn(folder).length;
    if (indexed !== there) faults.push(`${indexed} records are in the index, ${there} in the journal`);
    if (damagedLines > 0) faults.push(`${damagedLines} lines are damaged`);
    return faults;
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

/** The ids and ends in an index, in order. */
export function indexedRecords(file: string): { readonly id: string; readonly end: string | null }[] {
  const { db, close } = openIndexForReading(file);
  try {
    const rows = db.prepare('SELECT id, "end" FROM usage.records ORDER BY id').raw().all() as [
      string,
      string | null,
    ][];
    return rows.map(([id, end]) => ({ id, end }));
  } finally {
    close();
  }
}

function placeOf({
  quarter,
  tool,
  gateway,
  group,
  key,
  model,
  machine,
  project,
  branch,
  token,
  answered,
}: Row): string {
  const place = [quarter, tool, gateway, group, key, model, machine, project, branch, token, answered];
  return JSON.stringify(place);
}

function sorted(row: Row): Row {
  return Object.fromEntries(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The one record with this id, once it is finished. */
export function finished(folder: string, id: string | null | undefined): Promise<UsageRecord> {
  return finishedWhere(folder, `request ${id}`, (record) => record.id === id);
}

/** The same for a client that never saw an id: the one record of this model. */
export function finishedModel(folder: string, model: string): Promise<UsageRecord> {
  return finishedWhere(folder, `model ${model}`, (record) => record.model === model);
}

/** The one record that `isMine` accepts, once it is finished. Fails where there are two. */
export async function finishedWhere(
  folder: string,
  what: string,
  isMine: (record: UsageRecord) => boolean,
): Promise<UsageRecord> {
  let mine: UsageRecord[] = [];
  await until(`${what} has a finished record`, () => {
    mine = recordsIn(folder).filter(isMine);
    return mine.some(({ end }) => end !== null);
  });
  const [record, ...more] = mine;
  if (record === undefined || more.length > 0) throw new Error(`${what} has ${more.length + 1} records`);
  return record;
}
