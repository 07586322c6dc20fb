import type { ServerResponse } from "node:http";
import type { Database } from "libsql";
import { HttpError } from "../core/errors.ts";
import { QUARTER_MS } from "../core/units.ts";
import type { RecordEnd, UsageRecord } from "../usage/record.ts";
import { type Chart, type ChartQuestion, countSelected, readChart } from "../usage/reports/chart.ts";
import {
  csvHead,
  csvRecord,
  exportedRecord,
  newestFirst,
  oldestFirst,
  recordById,
  SELECTED_NAMES,
  type Selection,
} from "../usage/reports/records.ts";
import {
  cacheShare,
  combinedParts,
  type UsageRow as Row,
  sumTokens,
  unknownCost,
} from "../usage/reports/sums.ts";
import type { Sums } from "../usage/rollups.ts";
import type {
  Bin,
  By,
  RecordsPage,
  ShownRecord,
  UsageChart,
  UsageRow,
  UsageSeries,
  UsageSums,
} from "./api.ts";
import { PAGE_HEADERS } from "./http.ts";
import type { LogReader } from "./log-reader.ts";

/* What the page asks of the usage log. A wrong query throws an HttpError. */

const MAX_SERIES = 60;
const MAX_ROWS = 1000;
const DEFAULT_RECORDS = 100;
const MAX_RECORDS = 500;
/** A download that is not read for this long ends, because it holds a connection to the log. */
const DOWNLOAD_STALL_MS = 60_000;

/** GET /api/usage */
export async function usageChart(
  query: URLSearchParams,
  reader: LogReader,
  now: number,
  signal: AbortSignal,
): Promise<UsageChart> {
  const selection = selectionIn(query, ["bin", "by"]);
  const unit = oneOf(BINS, query.get("bin") ?? "day", "bin");
  const by = oneOf(BYS, query.get("by") ?? "tool", "by");
  const question = { selection, unit, by };
  const chart = await reader.read((db) => readChart(db, question, now), signal);
  if (chart === null) {
    throw new HttpError(400, `too many ${unit}s for a chart. choose a shorter period, or a longer unit`);
  }
  return chartAnswer(question, chart, Intl.DateTimeFormat().resolvedOptions().timeZone);
}

/** GET /api/records */
export async function recordsPage(
  query: URLSearchParams,
  reader: LogReader,
  now: number,
  signal: AbortSignal,
): Promise<RecordsPage> {
  const selection = selectionIn(query, ["end", "before", "limit"]);
  const before = query.get("before");
  if (before !== null && !isRecordId(before)) throw new HttpError(400, "before is the id of a record");
  const limitText = query.get("limit") ?? String(DEFAULT_RECORDS);
  const limit = Number(limitText);
  if (!/^\d{1,3}$/.test(limitText) || limit < 1 || limit > MAX_RECORDS) {
    throw new HttpError(400, `limit is a number from 1 to ${MAX_RECORDS}`);
  }
  function* readPage(db: Database): Generator<unknown, RecordsPage> {
    const records: UsageRecord[] = [];
    for (const chunk of newestFirst(db, selection, before)) {
      records.push(...chunk.slice(0, limit + 1 - records.length));
      // One record more than wanted shows that there is a next page.
      if (records.length > limit) break;
      yield;
    }
    const page = records.slice(0, limit).map(exportedRecord);
    const next = records.length > limit ? (page.at(-1)?.id ?? null) : null;
    return { records: page, next, count: yield* countSelected(db, selection, now) };
  }
  return reader.read(readPage, signal);
}

/** GET /api/records/<id> */
export async function oneRecord(id: string, reader: LogReader, signal: AbortSignal): Promise<ShownRecord> {
  function* readRecord(db: Database): Generator<unknown, UsageRecord | null> {
    yield;
    return recordById(db, id);
  }
  const record = isRecordId(id) ? await reader.read(readRecord, signal) : null;
  if (record === null) throw new HttpError(404, `there is no record ${id}`);
  return exportedRecord(record);
}

function isRecordId(text: string): boolean {
  return /^[0-9A-Z]{26}$/.test(text);
}

/** GET /api/csv. The reader's pace is that of the client, so memory does not grow with the number of records. */
export async function sendCsv(
  query: URLSearchParams,
  res: ServerResponse,
  reader: LogReader,
  stallMs = DOWNLOAD_STALL_MS,
): Promise<void> {
  const selection = selectionIn(query, ["end"]);
  // The head is sent with the first records, so that a log that cannot be read is still an error response.
  const begin = () => {
    if (res.headersSent) return;
    res.writeHead(200, {
      ...PAGE_HEADERS,
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": 'attachment; filename="keybearer-usage.csv"',
    });
    res.write(csvHead());
  };
  await reader.stream(
    (db) => oldestFirst(db, selection),
    async (records) => {
      if (res.destroyed) throw new HttpError(503, "request canceled");
      begin();
      const text = records.map(csvRecord).join("");
      if (text !== "" && !res.write(text)) await drained(res, stallMs);
    },
  );
  begin();
  res.end();
}

/** Resolves when the response can be written again, or is closed. */
function drained(res: ServerResponse, stallMs: number): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      res.off("drain", finish).off("close", finish);
      resolve();
    };
    // Destroyed rather than ended: a partial file must not look complete.
    const timer = setTimeout(() => res.destroy(), stallMs);
    res.once("drain", finish).once("close", finish);
    if (res.destroyed) finish();
  });
}

const ENDS: readonly RecordEnd[] = ["complete", "client-left", "gateway-failed", "refused", "interrupted"];
const BINS: readonly Bin[] = ["hour", "day", "month"];
const BYS: readonly By[] = ["tool", "model", "group", "key"];
/** Far below SQLite's limit for the values of a statement. */
const MAX_NAMES = 100;
const MAX_NAME_LENGTH = 300;

function selectionIn(query: URLSearchParams, otherNames: readonly string[]): Selection {
  const known = ["since", "until", ...SELECTED_NAMES, ...otherNames];
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined) throw new HttpError(400, `unknown parameter ${JSON.stringify(unknown)}`);
  const since = timeIn(query, "since");
  const until = timeIn(query, "until");
  if (since !== null && until !== null && since >= until) {
    throw new HttpError(400, "since must be before until");
  }
  const names = {
    tool: query.getAll("tool"),
    model: query.getAll("model"),
    group: query.getAll("group"),
    key: query.getAll("key"),
  };
  const all = Object.values(names).flat();
  if (all.length > MAX_NAMES || all.some((name) => name.length > MAX_NAME_LENGTH)) {
    throw new HttpError(400, `at most ${MAX_NAMES} names of ${MAX_NAME_LENGTH} characters each`);
  }
  const ends = new Set(query.getAll("end").map((end) => oneOf(ENDS, end, "end")));
  return { period: { since, until }, names, ends: [...ends] };
}

function timeIn(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  if (text === null) return null;
  // The largest time a Date can hold.
  const isValid = /^\d{1,16}$/.test(text) && Number(text) <= 8_640_000_000_000_000;
  if (!isValid) throw new HttpError(400, `${name} is a time in milliseconds`);
  return Number(text);
}

function oneOf<T extends string>(values: readonly T[], text: string, name: string): T {
  const value = values.find((each) => each === text);
  if (value === undefined) throw new HttpError(400, `${name} is one of ${values.join(", ")}`);
  return value;
}

/** The chart as JSON. An empty name means unknown, which is null there. */
export function chartAnswer({ selection, unit, by }: ChartQuestion, chart: Chart, zone: string): UsageChart {
  const { intervals, rows, names } = chart;
  const last = intervals.at(-1);
  const others = rows.slice(MAX_SERIES);
  const namesOf = (column: By) => names[column].slice(0, MAX_ROWS).map((name) => (name === "" ? null : name));
  return {
    since: selection.period.since,
    until: selection.period.until,
    bin: unit,
    by,
    zone,
    bins: intervals.map(({ from }) => from * QUARTER_MS),
    bins_end: last === undefined ? null : last.to * QUARTER_MS,
    series: rows
      .slice(0, MAX_SERIES)
      .map((row) => seriesOf(row.names[0] ?? null, row.parts, intervals.length)),
    others: others.length === 0 ? null : seriesOf(null, combinedParts(others), intervals.length),
    total: sumsOf(chart.total),
    rows: rows.slice(0, MAX_ROWS).map((row): UsageRow => ({ name: row.names[0] ?? null, ...sumsOf(row) })),
    unpriced: chart.unpriced.slice(0, MAX_ROWS),
    first_byte_exact: chart.firstByteExact,
    names: { tool: namesOf("tool"), model: namesOf("model"), group: namesOf("group"), key: namesOf("key") },
  };
}

function seriesOf(name: string | null, parts: ReadonlyMap<number, Sums>, length: number): UsageSeries {
  const list = (value: (sums: Sums) => number) =>
    Array.from({ length }, (_, index) => {
      const sums = parts.get(index);
      return sums === undefined ? 0 : value(sums);
    });
  return {
    name,
    requests: list((sums) => sums.requests),
    tokens: list(sumTokens),
    input_tokens: list((sums) => sums.input_tokens),
    cache_read_tokens: list((sums) => sums.cache_read_tokens),
    cache_write_tokens: list((sums) => sums.cache_write_tokens),
    output_tokens: list((sums) => sums.output_tokens),
    cost_microdollars: list((sums) => sums.cost_microdollars),
    unknown_cost: list(unknownCost),
  };
}

function sumsOf({ sums, firstByte }: Row): UsageSums {
  return {
    ...sums,
    tokens: sumTokens(sums),
    // Without a console row nothing is known, which is not zero.
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    cache_share: cacheShare(sums),
    first_byte_p50_ms: firstByte.p50,
    first_byte_p95_ms: firstByte.p95,
  };
}
