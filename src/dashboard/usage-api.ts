import type { ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { advice } from "../core/advice.ts";
import { HttpError, hasCode } from "../core/errors.ts";
import { IndexError } from "../usage/index/database.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { everythingIn, type UsageChart } from "../usage/reports/chart.ts";
import { OUTCOMES, SELECTED_NAMES } from "../usage/reports/names.ts";
import { type CsvPage, csvHead, exportedRecord, type Selection } from "../usage/reports/records.ts";
import type { Bin } from "./api.ts";
import { failure } from "./failure.ts";

/* What the page asks of the usage log. A wrong query throws an HttpError. */

const PAGE_RECORDS = 50;
const MAX_WAITING = 32;
const MAX_DOWNLOADS = 2;
/** A download that is not read for this long ends, because each of its parts keeps the index's thread busy. */
const DOWNLOAD_STALL_MS = 60_000;

export type RecordsPage = Awaited<ReturnType<UsageQuestions["page"]>>;

/** Asks the index for the pages, and says in HTTP's words why it cannot be read. */
export class UsageQuestions {
  readonly #ask: Ask;
  #waiting = 0;
  #downloads = 0;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  readonly ask: Ask = async (name, values, signal) => {
    if (this.#waiting >= MAX_WAITING) throw failure(503, "too-many-questions");
    this.#waiting += 1;
    try {
      return await this.#ask(name, values, signal);
    } catch (error) {
      if (signal?.aborted) throw new HttpError(503, "request canceled");
      if (!(error instanceof IndexError)) throw error;
      const next = error.message.includes("→") ? "" : ` → ${advice.status()}`;
      throw new HttpError(503, `the usage index cannot be read: ${error.message}${next}`);
    } finally {
      this.#waiting -= 1;
    }
  };

  /** GET /api/usage */
  async chart(query: URLSearchParams, now: number, signal: AbortSignal): Promise<UsageChart> {
    const selection = selectionIn(query, ["bin", "by"]);
    const unit = oneOf(BINS, query.get("bin") ?? "day", "bin");
    const by = oneOf(SELECTED_NAMES, query.get("by") ?? "tool", "by");
    const chart = await this.ask("chart", [{ selection, unit, by }, now], signal);
    if (chart === null)
      throw new HttpError(400, `too many ${unit}s for a chart. choose a shorter period, or a longer unit`);
    return chart;
  }

  /**
   * GET /api/records: newest first. before= and after= are the `older` and `newer` of another page; null: there are no more
   * in that direction.
   */
  async page(query: URLSearchParams, signal: AbortSignal) {
    const selection = selectionIn(query, ["before", "after"]);
    const cursor = { before: idIn(query, "before"), after: idIn(query, "after") };
    const { records, older, newer } = await this.ask("page", [selection, cursor, PAGE_RECORDS], signal);
    return { records: records.map(exportedRecord), older, newer };
  }

  /** With it, the others of the same request, oldest first; see attemptsAt(). Empty: it was sent once. */
  async record(id: string, signal: AbortSignal) {
    const found = isRecordId(id) ? await this.ask("record", [id], signal) : null;
    if (found === null) throw new HttpError(404, `there is no record ${id}`);
    return { record: exportedRecord(found.record), attempts: found.attempts.map(exportedRecord) };
  }

  /** GET /api/csv. The next part is read when the client has taken the one before, so memory does not grow with the log. */
  async download(
    query: URLSearchParams,
    res: ServerResponse,
    signal: AbortSignal,
    stallMs = DOWNLOAD_STALL_MS,
  ): Promise<void> {
    const selection = selectionIn(query, []);
    if (this.#downloads >= MAX_DOWNLOADS) {
      throw new HttpError(503, `${MAX_DOWNLOADS} downloads are running. try again when one of them is done`);
    }
    this.#downloads += 1;
    try {
      // Read first, so that a log that cannot be read is still an error response.
      const first = await this.ask("csv", [selection, null], signal);
      res.setTimeout(stallMs, () => res.destroy());
      res.writeHead(200, {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": 'attachment; filename="keybearer-usage.csv"',
      });
      // Destroyed rather than ended if a part fails or is not read: a partial file must not look complete.
      await pipeline(this.#csv(selection, first, signal), res);
    } catch (error) {
      // The client went away, or read nothing for too long.
      throw hasCode(error, "ERR_STREAM_PREMATURE_CLOSE") ? new HttpError(503, "request canceled") : error;
    } finally {
      this.#downloads -= 1;
    }
  }

  async *#csv(selection: Selection, first: CsvPage, signal: AbortSignal): AsyncGenerator<string> {
    yield csvHead();
    for (let part = first; ; part = await this.ask("csv", [selection, part.next], signal)) {
      if (part.text !== "") yield part.text;
      if (part.next === null) return;
    }
  }
}

function isRecordId(text: string): boolean {
  return /^[0-9A-Z]{26}$/.test(text);
}

function idIn(query: URLSearchParams, name: string): string | null {
  const id = query.get(name);
  if (id !== null && !isRecordId(id)) throw new HttpError(400, `${name} is the id of a record`);
  return id;
}

const BINS: readonly Bin[] = ["hour", "day", "month"];
/** Far below SQLite's limit for the values of a statement. */
const MAX_NAMES = 100;
const MAX_NAME_LENGTH = 300;

function selectionIn(query: URLSearchParams, otherNames: readonly string[]): Selection {
  const known = ["since", "until", "end", "search", ...SELECTED_NAMES, ...otherNames];
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined) throw new HttpError(400, `unknown parameter ${JSON.stringify(unknown)}`);
  const since = timeIn(query, "since");
  const until = timeIn(query, "until");
  if (since !== null && until !== null && since >= until) {
    throw new HttpError(400, "since must be before until");
  }
  const names = { ...everythingIn().names };
  for (const name of SELECTED_NAMES) names[name] = query.getAll(name);
  const search = query.get("search") ?? "";
  const all = [...Object.values(names).flat(), search];
  if (all.length > MAX_NAMES || all.some((name) => name.length > MAX_NAME_LENGTH)) {
    throw new HttpError(400, `at most ${MAX_NAMES} names of ${MAX_NAME_LENGTH} characters each`);
  }
  const ends = new Set(query.getAll("end").map((end) => oneOf(OUTCOMES, end, "end")));
  return { period: { since, until }, names, ends: [...ends], search };
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
