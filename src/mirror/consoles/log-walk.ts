import { createHash } from "node:crypto";
import type { ConsoleRow } from "../console-row.ts";
import { ConsoleFault, type Page } from "./console.ts";
import { required } from "./http.ts";
import { asObject, countAt, fieldAt, type JsonObject, listAt, parseObject } from "./json.ts";

/*
 * Walks the usage logs of new-api and one-api. They list rows newest first between two times (whole seconds of the
 * console's clock, both included), count at most 10,000 of them, and give rows no stable id.
 */

/** Fetches a path of the console and returns the `data` of its response. `about` names it in messages. */
export type Get = (path: string, about: string) => Promise<unknown>;

export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface LogSource {
  readonly get: Get;
  readonly numbers: PageNumbers;
  readonly path: (page: number, span: Span) => string;
  readonly readRow: RowReader;
}

export type UnnamedRow = Omit<ConsoleRow, "identity">;
/** other: not usage, such as a top-up. unreadable: it lacks even a time or a type. */
type RowReader = (raw: JsonObject) => UnnamedRow | "other" | "unreadable";

/** Consoles count no further than this. */
const MAX_COUNTED = 10_000;
/** A span with more pages is split, so that an interrupted walk loses little. A single second cannot be split. */
const MAX_SPAN_PAGES = 200;
const MAX_SECOND_PAGES = 1000;
/** After a span with at most this many pages, the next one is twice as wide. */
const FEW_PAGES = 25;
/** The first span where lists have no total. */
const FIRST_SPAN_S = 6 * 3600;
/** A walk begins no further span after this many pages; the next walk continues. */
const MAX_WALK_PAGES = 2800;

interface Progress {
  pages: number;
  rows: number;
}

/**
 * Walks forward in spans of time, each from its newest row to its oldest. The cursor moves on when a span is complete.
 * @param since where a first walk begins, in console time like `now`
 */
export async function* walkLog(
  source: LogSource,
  cursor: string | null,
  since: number,
  now: number,
): AsyncGenerator<Page, void> {
  const plan = planWalk(readCursor(cursor), since, now);
  const progress: Progress = { pages: 0, rows: 0 };
  let width = plan.end - plan.from + 1;
  let from = plan.from;
  while (from <= plan.end && progress.pages < MAX_WALK_PAGES) {
    const span = { from, to: Math.min(plan.end, from + width - 1) };
    const pagesBefore = progress.pages;
    const narrower = yield* walkSpan(source, span, plan, progress);
    if (narrower !== null) {
      width = narrower;
      continue;
    }
    width = span.to - span.from + 1;
    if (progress.pages - pagesBefore <= FEW_PAGES) width *= 2;
    from = span.to + 1;
  }
}

/** Returns the width to try again with, or null when the span is complete. */
async function* walkSpan(
  source: LogSource,
  span: Span,
  plan: WalkPlan,
  progress: Progress,
): AsyncGenerator<Page, number | null> {
  const seconds = span.to - span.from + 1;
  const maxPages = seconds > 1 ? MAX_SPAN_PAGES : MAX_SECOND_PAGES;
  const cursorBefore = span.from === plan.from ? plan.cursor : cursorAt(plan, span.from - 1);
  const reader = new PageReader(source.readRow);
  const rowsBefore = progress.rows;
  const path = (page: number) => source.path(page, span);
  let pages = 0;
  for await (const listed of listPages(source.get, "its usage log", source.numbers, path)) {
    pages += 1;
    progress.pages += 1;
    if (pages === 1) {
      const narrower = narrowerSpan(seconds, listed.total, progress.pages === 1);
      if (narrower !== null) return narrower;
    }
    const { rows, count } = reader.read(listed);
    progress.rows += count;
    const tooMany = !listed.last && pages >= maxPages;
    const complete = listed.last || (tooMany && seconds === 1);
    const isIncomplete = complete && seconds === 1 && (tooMany || (listed.total ?? 0) >= MAX_COUNTED);
    const isLastSpan = span.to >= plan.end;
    yield {
      rows,
      cursor: JSON.stringify(complete ? cursorAt(plan, span.to) : cursorBefore),
      done: progress.rows,
      total: listed.total === null || !isLastSpan ? null : Math.max(rowsBefore + listed.total, progress.rows),
      gap: isIncomplete ? { from: span.from * 1000 - 1, to: span.to * 1000 + 999 } : null,
    };
    if (complete) return null;
    if (tooMany) return Math.ceil(seconds / 2);
  }
  return null;
}

/** From the first page of a span: the width to try instead, or null if the span can be read whole. */
function narrowerSpan(seconds: number, total: number | null, isFirstPage: boolean): number | null {
  if (total === null) return isFirstPage && seconds > FIRST_SPAN_S ? FIRST_SPAN_S : null;
  return total >= MAX_COUNTED && seconds > 1 ? Math.ceil(seconds / 2) : null;
}

/** How far the log was read, in seconds of the console's clock. */
export interface LogCursor {
  /** Everything up to here was read. */
  readonly until: number;
  /** When a whole day was last read again. */
  readonly day: number;
  /** Where reading a day again was interrupted. */
  readonly again: number | null;
}

export interface WalkPlan {
  readonly from: number;
  /** Fixed for the whole walk: rows written meanwhile would shift the pages. The next walk reads them. */
  readonly end: number;
  readonly cursor: LogCursor;
  /** This walk reads a whole day again. */
  readonly wholeDay: boolean;
}

/** created_at is the end of a request, and rows are written late: read an hour again, and once a day a whole day. */
const OVERLAP_S = 3600;
const DAY_S = 24 * 3600;
/** A clock set back by less than this is ignored. */
const SET_BACK_S = 60;

export function planWalk(cursor: LogCursor | null, since: number, now: number): WalkPlan {
  const end = Math.floor(now / 1000);
  if (cursor === null) {
    const from = Math.min(Math.max(0, Math.floor(since / 1000)), end);
    return { from, end, cursor: { until: from, day: end, again: null }, wholeDay: false };
  }
  const wasSetBack = cursor.until > end + SET_BACK_S || cursor.day > end + SET_BACK_S;
  const wholeDay = wasSetBack || cursor.again !== null || end - cursor.day >= DAY_S;
  const until = Math.min(cursor.until, end);
  const overlap = until - OVERLAP_S;
  const from = wholeDay ? Math.min(cursor.again ?? until - DAY_S, overlap) : overlap;
  return { from: Math.max(0, from), end, cursor: { ...cursor, until }, wholeDay };
}

/** The cursor once everything up to `read` was read. */
function cursorAt({ cursor, end, wholeDay }: WalkPlan, read: number): LogCursor {
  const until = Math.max(cursor.until, read);
  if (!wholeDay) return { ...cursor, until };
  return read >= end ? { until, day: end, again: null } : { ...cursor, until, again: read + 1 };
}

/** null: none, or unreadable. Then the walk starts over, which stores nothing twice. */
export function readCursor(text: string | null): LogCursor | null {
  const object = parseObject(text ?? "") ?? {};
  const until = countAt(object, "until");
  const day = countAt(object, "day");
  return until === null || day === null ? null : { until, day, again: countAt(object, "again") };
}

export interface ListPage {
  readonly rows: readonly unknown[];
  /** null: this version does not list it. */
  readonly total: number | null;
  readonly last: boolean;
}

/** Whether page numbers begin with 0 or 1. Updated when the console answers in the other shape. */
export interface PageNumbers {
  first: 0 | 1;
}

/**
 * Reads a list page by page. Lists come in two shapes: `{page, page_size, total, items}` with pages from 1; and, from
 * one-api and early new-api, a bare array with pages from 0 and no total.
 */
export async function* listPages(
  get: Get,
  about: string,
  numbers: PageNumbers,
  path: (page: number) => string,
): AsyncGenerator<ListPage, void> {
  let fullPage = SMALLEST_PAGE;
  let read = 0;
  for (let index = 0; ; index += 1) {
    let data = await get(path(numbers.first + index), about);
    const first = asObject(data) === null ? 0 : 1;
    if (first !== numbers.first) {
      numbers.first = first;
      data = await get(path(first + index), about);
    }
    const { rows, total } = readList(data, about);
    read += rows.length;
    // Consoles do not always honor the requested page size: the first page shows the real one.
    if (index === 0) fullPage = Math.max(rows.length, SMALLEST_PAGE);
    const last = total === null ? rows.length < fullPage : rows.length === 0 || read >= total;
    yield { rows, total, last };
    if (last) return;
  }
}

/** Reads a list that is not long, such as an account's keys. */
export async function readAll(pages: AsyncIterable<ListPage>): Promise<unknown[]> {
  const all: unknown[] = [];
  let read = 0;
  for await (const { rows } of pages) {
    all.push(...rows);
    read += 1;
    if (read >= MAX_LIST_PAGES) break;
  }
  return all;
}

const MAX_LIST_PAGES = 50;
/** No version has smaller pages. */
const SMALLEST_PAGE = 10;

function readList(data: unknown, about: string) {
  // Go writes an empty list as null.
  if (data === null) return { rows: [], total: null };
  if (Array.isArray(data)) return { rows: data, total: null };
  const object = required(asObject(data), "data", about);
  const rows = fieldAt(object, "items") === null ? [] : required(listAt(object, "items"), "items", about);
  return { rows, total: required(countAt(object, "total"), "total", about) };
}

/** Reads the consecutive pages of one span, and names their rows. */
export class PageReader {
  readonly #readRow: RowReader;
  /** How many rows without a request id had each fingerprint. */
  readonly #alike = new Map<string, number>();
  #before: readonly string[] = [];
  #totalBefore: number | null = null;

  constructor(readRow: RowReader) {
    this.#readRow = readRow;
  }

  /** `count` includes rows that are not usage, but not those that the page before already had. */
  read({ rows: items, total }: Pick<ListPage, "rows" | "total">) {
    const page = items.map((item) => {
      const raw = asObject(item) ?? {};
      return { raw, fingerprint: fingerprintOf(raw) };
    });
    const fingerprints = page.map(({ fingerprint }) => fingerprint);
    const totalBefore = this.#totalBefore;
    const grown = total === null || totalBefore === null ? Number.POSITIVE_INFINITY : total - totalBefore;
    const fresh = page.slice(countRepeats(this.#before, fingerprints, grown));
    this.#before = fingerprints;
    this.#totalBefore = total;
    const rows: ConsoleRow[] = [];
    let unreadable = 0;
    for (const { raw, fingerprint } of fresh) {
      const row = this.#readRow(raw);
      if (row === "unreadable") unreadable += 1;
      else if (row !== "other") rows.push({ identity: this.#identityOf(raw, fingerprint), ...row });
    }
    if (unreadable > 0 && unreadable === fresh.length) {
      throw new ConsoleFault("other-shape", 'lists rows without a usable "created_at" and "type"');
    }
    return { rows, count: fresh.length };
  }

  /**
   * Rows without a request id can be alike, so they get a number. The number is the same in every walk: rows that are alike
   * are of the same second, and spans have whole seconds.
   */
  #identityOf(raw: JsonObject, fingerprint: string): string {
    const id = fieldAt(raw, "request_id");
    if (typeof id === "string" && id !== "") return fingerprint;
    const number = (this.#alike.get(fingerprint) ?? 0) + 1;
    this.#alike.set(fingerprint, number);
    return `${fingerprint}#${number}`;
  }
}

/** Without `id`, which is the position in the list for everyone but admins. */
const FINGERPRINT_FIELDS = [
  "request_id",
  "type",
  "quota",
  "created_at",
  "token_id",
  "token_name",
  "model_name",
  "prompt_tokens",
  "completion_tokens",
] as const;

function fingerprintOf(raw: JsonObject): string {
  const values = FINGERPRINT_FIELDS.map((name) => fieldAt(raw, name) ?? null);
  return createHash("sha256").update(JSON.stringify(values)).digest("hex").slice(0, 24);
}

/**
 * How many rows at the top of a page were at the bottom of the page before: rows written between two requests push the
 * others down.
 * @param max how many were written, if known: then rows that are alike on both pages stay two
 */
function countRepeats(before: readonly string[], page: readonly string[], max: number): number {
  for (let count = Math.min(before.length, page.length, max); count > 0; count -= 1) {
    const start = before.length - count;
    if (page.slice(0, count).every((fingerprint, at) => fingerprint === before[start + at])) return count;
  }
  return 0;
}
