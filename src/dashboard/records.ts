import type { ServerResponse } from "node:http";
import { EXPORTED, type UsageRecord } from "../usage/record.ts";
import { countSelected, everythingIn } from "../usage/reports/chart.ts";
import { csvLine } from "../usage/reports/format.ts";
import {
  exportedRecord,
  newestFirst,
  oldestFirst,
  recordById,
  type Selection,
} from "../usage/reports/records.ts";
import { No, PAGE_HEADERS } from "./answer.ts";
import type { RecordsPage, ShownRecord } from "./api.ts";
import type { LogReader, Steps } from "./log-reader.ts";
import type { RecordsQuery } from "./query.ts";

/** The steps that find one page of records. */
export function recordsPage({ selection, before, limit }: RecordsQuery, now: number): Steps<RecordsPage> {
  return function* (db) {
    const records: UsageRecord[] = [];
    for (const piece of newestFirst(db, selection, before)) {
      records.push(...piece.slice(0, limit + 1 - records.length));
      // One more than is wanted tells that there are more.
      if (records.length > limit) break;
      yield;
    }
    const page = records.slice(0, limit).map(exportedRecord);
    const next = records.length > limit ? (page.at(-1)?.id ?? null) : null;
    return { records: page, next, count: yield* countSelected(db, selection, now) };
  };
}

export function oneRecord(id: string): Steps<ShownRecord | No> {
  return function* (db) {
    const record = recordById(db, id);
    yield;
    return record === null ? new No(404, `there is no record ${id}`) : exportedRecord(record);
  };
}

export const MOST_REFUSALS = 20;
/** Without refusals among them, nobody looks further back. */
const MOST_LOOKED_AT = 20_000;

/** The last ones, newest first. */
export function lastRefusals(): Steps<ShownRecord[]> {
  return function* (db) {
    const found: UsageRecord[] = [];
    let looked = 0;
    for (const piece of newestFirst(db, everythingIn(), null)) {
      found.push(...piece.filter(({ refusal }) => refusal !== null));
      looked += piece.length;
      if (found.length >= MOST_REFUSALS || looked >= MOST_LOOKED_AT) break;
      yield;
    }
    return found.slice(0, MOST_REFUSALS).map(exportedRecord);
  };
}

/** Whoever takes nothing of a download for so long gets no more of it: it holds a connection to the log. */
const PATIENCE_MS = 60_000;

/** Not more than one reader takes, and not faster: memory stays the same for a million. */
export async function sendCsv(
  res: ServerResponse,
  reader: LogReader,
  selection: Selection,
  patienceMs = PATIENCE_MS,
): Promise<No | null> {
  const begin = () => {
    if (res.headersSent) return;
    res.writeHead(200, {
      ...PAGE_HEADERS,
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": 'attachment; filename="keybearer-usage.csv"',
    });
    res.write(csvLine(EXPORTED));
  };
  const failed = await reader
    .stream(
      (db) => oldestFirst(db, selection),
      async (piece) => {
        if (res.destroyed) throw new Left();
        begin();
        const text = piece.map((record) => csvLine(EXPORTED.map((name) => record[name]))).join("");
        if (text !== "" && !res.write(text)) await drained(res, patienceMs);
      },
    )
    .catch((error: unknown) => {
      if (error instanceof Left) return null;
      throw error;
    });
  // Cut off in the middle, it must not look whole.
  if (failed !== null && res.headersSent) res.destroy();
  else if (failed === null) {
    begin();
    res.end();
  }
  return failed;
}

/** Until there is room again, or nobody to write to. */
function drained(res: ServerResponse, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      // Cut off, it does not look whole.
      res.destroy();
      over();
    }, patienceMs);
    const over = () => {
      clearTimeout(timer);
      res.off("drain", over).off("close", over);
      resolve();
    };
    res.once("drain", over).once("close", over);
    if (res.destroyed) over();
  });
}

/** Whoever asked has gone. */
class Left extends Error {}
