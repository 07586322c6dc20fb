import { createHash } from "node:crypto";
import {
  asFields,
  countAt,
  fieldAt,
  isObject,
  type JsonObject,
  listAt,
  parseObject,
} from "../../core/json.ts";
import type { ConsoleRow } from "../console-row.ts";
import { ConsoleError, type Page } from "./console.ts";
import { required, requiredData } from "./http.ts";

/*
 * Walks the usage logs of new-api, one-api and LiteLLM. They list rows newest first between two times (whole seconds of the
 * console's clock, both included) and count at most 10,000 of them. The first two give rows no stable id.
 */

/** Fetches a path of the console and returns the `data` of its response. `about` names it in messages. */
export type Get = (path: string, about: string) => Promise<unknown>;

interface Span {
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
/** With the console's own name for it, where there is one. */
export type ReadRow = UnnamedRow & Partial<Pick<ConsoleRow, "identity">>;
/** other: not usage, such as a top-up. unreadable: it lacks even a time or a type. */
type RowReader = (raw: JsonObject) => ReadRow | "other" | "unreadable";

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
/** A walk reads this many pages again of what was read long ago: the rest of the console's budget is for new rows. */
const AGAIN_PAGES = 20;

/** One walk, as far as it has come. */
interface Walk {
  readonly source: LogSource;
  readonly listed: ListedRows;
  readonly end: number;
  /** Nothing was read before, so totals show how much is left. */
  readonly isFirst: boolean;
  cursor: LogCursor;
  pages: number;
  rows: number;
}

/**
 * Walks forward in spans of time, each from its newest row to its oldest. The cursor moves on when a span is complete: when
 * its last page is read, or when the rows that were read, now and by earlier walks, are as many as the console counts. Then
 * reads some of the older rows again, because consoles can write rows very late.
 * @param since where a first walk begins, in console time like `now`
 */
export async function* walkLog(
  source: LogSource,
  cursor: string | null,
  since: number,
  now: number,
  listed: ListedRows,
): AsyncGenerator<Page, void> {
  const stored = readCursor(cursor);
  // The stored cursor is not the one that was written with these rows, so mirror.db may lack them.
  if (cursor === null || cursor !== listed.cursor) listed.clear();
  const plan = planWalk(stored, since, now, listed.overlapFor(stored));
  // The clock was set back.
  if (plan.from < plan.cursor.until - OVERLAP_S) listed.clear();
  const begun = { isFirst: stored === null, pages: 0, rows: 0 };
  const walk: Walk = { source, listed, end: plan.end, cursor: plan.cursor, ...begun };
  const all: SpanLimits = { pages: MAX_WALK_PAGES, spanPages: MAX_SPAN_PAGES, width: Infinity };
  yield* readSpans(walk, { from: plan.from, to: plan.end }, all, (read) => ({
    ...walk.cursor,
    until: Math.max(walk.cursor.until, read),
  }));
  if (walk.cursor.until < plan.end) return;
  listed.noteComplete(plan, stored === null);
  yield* readAgain(walk, plan);
}

/** Reads up to AGAIN_PAGES of the last day, or where nothing else shows a late row, of the last two hours. */
async function* readAgain(walk: Walk, { end, again }: WalkPlan): AsyncGenerator<Page, void> {
  const { listed } = walk;
  const limits: SpanLimits = {
    pages: walk.pages + AGAIN_PAGES,
    spanPages: AGAIN_PAGES,
    width: listed.againWidth,
  };
  if (again !== null) {
    // What is younger is checked by every walk.
    const to = end - OVERLAP_S;
    yield* readSpans(walk, { from: again, to }, limits, (until) => {
      if (until < to) return { ...walk.cursor, again: until + 1 };
      // One bad day does not make every later walk longer.
      return { ...walk.cursor, day: end, again: null, late: Math.floor(walk.cursor.late / 2) };
    });
  } else {
    const span = listed.nextCheck(end);
    if (span === null) return;
    yield* readSpans(walk, span, limits, (until) => {
      listed.noteChecked(until, end);
      return walk.cursor;
    });
  }
  listed.againWidth = limits.width;
}

interface SpanLimits {
  /** No further span begins after this many pages of the walk. */
  readonly pages: number;
  readonly spanPages: number;
  /** Of the next span, in seconds. */
  width: number;
}

/** @param advance returns the cursor once everything up to a time is read */
async function* readSpans(
  walk: Walk,
  { from: start, to: end }: Span,
  limits: SpanLimits,
  advance: (read: number) => LogCursor,
): AsyncGenerator<Page, void> {
  let from = start;
  while (from <= end && walk.pages < limits.pages) {
    const span = { from, to: Math.min(end, from + limits.width - 1) };
    const pagesBefore = walk.pages;
    const narrower = yield* walkSpan(walk, span, limits.spanPages, advance);
    if (narrower !== null) {
      limits.width = narrower;
      continue;
    }
    limits.width = span.to - span.from + 1;
    if (walk.pages - pagesBefore <= Math.min(FEW_PAGES, limits.spanPages / 2)) limits.width *= 2;
    from = span.to + 1;
  }
}

/** Returns the width to try again with, or null when the span is complete. */
async function* walkSpan(
  walk: Walk,
  span: Span,
  maxSpanPages: number,
  advance: (read: number) => LogCursor,
): AsyncGenerator<Page, number | null> {
  const { source, listed } = walk;
  const seconds = span.to - span.from + 1;
  const maxPages = seconds > 1 ? maxSpanPages : MAX_SECOND_PAGES;
  const reader = new PageReader(source.readRow);
  const rowsBefore = walk.rows;
  const path = (page: number) => source.path(page, span);
  let pages = 0;
  for await (const page of listPages(source.get, "its usage log", source.numbers, path)) {
    const { total } = page;
    pages += 1;
    walk.pages += 1;
    if (pages === 1) {
      listed.listsTotals = total !== null;
      const narrower = narrowerSpan(seconds, page, walk.pages === 1, maxPages);
      if (narrower !== null) return narrower;
    }
    const { rows, count } = reader.read(page, span);
    walk.rows += count;
    const late = listed.measureLateness(reader.seen);
    if (late > walk.cursor.late) walk.cursor = { ...walk.cursor, late };
    const isKnown = total !== null && total < MAX_COUNTED && listed.countIn(span, reader.seen) === total;
    const tooMany = !page.last && !isKnown && pages >= maxPages;
    const complete = page.last || isKnown || (tooMany && seconds === 1);
    const isIncomplete = complete && seconds === 1 && (tooMany || (total ?? 0) >= MAX_COUNTED);
    if (complete) walk.cursor = advance(span.to);
    const isLastSpan = span.to >= walk.end;
    listed.cursor = JSON.stringify(walk.cursor);
    yield {
      rows,
      cursor: listed.cursor,
      done: walk.rows,
      // A later walk reads only some of them.
      total: total === null || !isLastSpan || !walk.isFirst ? null : Math.max(rowsBefore + total, walk.rows),
      gap: isIncomplete ? { from: span.from * 1000 - 1, to: span.to * 1000 + 999 } : null,
    };
    // The page is stored once the caller asks for the next one.
    if (page.last) listed.replace(span, reader.seen);
    else listed.add(reader.seen);
    if (complete) return null;
    if (tooMany) return Math.ceil(seconds / 2);
  }
  return null;
}

/** From the first page of a span: the width to try instead, or null if the span can be read whole. */
function narrowerSpan(
  seconds: number,
  { total, rows }: ListPage,
  isFirstPage: boolean,
  maxPages: number,
): number | null {
  if (total === null) return isFirstPage && seconds > FIRST_SPAN_S ? FIRST_SPAN_S : null;
  if (seconds === 1) return null;
  if (total >= MAX_COUNTED) return Math.ceil(seconds / 2);
  const pages = Math.ceil(total / Math.max(rows.length, SMALLEST_PAGE));
  return pages > maxPages ? Math.max(1, Math.floor((seconds * maxPages) / pages)) : null;
}

/** How far the log was read, in seconds of the console's clock. */
interface LogCursor {
  /** Everything up to here was read. */
  readonly until: number;
  /** When a whole day was last read again. */
  readonly day: number;
  /** Where reading a day again goes on. */
  readonly again: number | null;
  /** How many seconds after its time a row was not listed yet, at most. 0: none was late. */
  readonly late: number;
}

interface WalkPlan {
  readonly from: number;
  /** Fixed for the whole walk: rows written meanwhile would shift the pages. The next walk reads them. */
  readonly end: number;
  readonly cursor: LogCursor;
  /** A day is due to be read again, from here. */
  readonly again: number | null;
}

/** created_at is the end of a request, and rows are written late: every walk checks an hour, and a day is read again daily. */
const OVERLAP_S = 3600;
const LEAST_OVERLAP_S = 60;
const DAY_S = 24 * 3600;
/** A clock set back by less than this is ignored. */
const SET_BACK_S = 60;

export function planWalk(
  cursor: LogCursor | null,
  since: number,
  now: number,
  overlap = OVERLAP_S,
): WalkPlan {
  const end = Math.floor(now / 1000);
  if (cursor === null) {
    const from = Math.min(Math.max(0, Math.floor(since / 1000)), end);
    return { from, end, cursor: { until: from, day: end, again: null, late: 0 }, again: null };
  }
  const wasSetBack = cursor.until > end + SET_BACK_S || cursor.day > end + SET_BACK_S;
  const until = Math.min(cursor.until, end);
  if (wasSetBack) {
    const reset = { ...cursor, until, day: end, again: null };
    return { from: Math.max(0, until - DAY_S), end, cursor: reset, again: null };
  }
  const isDue = end - cursor.day >= DAY_S;
  const again = cursor.again ?? (isDue ? Math.max(0, until - DAY_S) : null);
  return { from: Math.max(0, until - overlap), end, cursor: { ...cursor, until }, again };
}

/** null: none, or unreadable. Then the walk starts over, which stores nothing twice. */
export function readCursor(text: string | null): LogCursor | null {
  const object = parseObject(text ?? "");
  const until = countAt(object, "until");
  const day = countAt(object, "day");
  if (until === null || day === null) return null;
  return { until, day, again: countAt(object, "again"), late: countAt(object, "late") ?? 0 };
}

/** How often a row was listed, and its time. By fingerprint. */
type SeenRows = Map<string, { readonly second: number; count: number }>;

/** About 8 MB. */
const MAX_LISTED = 50_000;

/**
 * The rows of the last hour that walks have read. A walk need not read them again where the console counts its rows: late
 * rows and deleted ones show in the total. Lost with the process, whose first walk reads the hour.
 */
export class ListedRows {
  readonly #rows: SeenRows = new Map();
  /** Rows from before this second are not remembered. */
  #from = 0;
  /** Up to here walks were complete; null: this process has completed none. */
  #until: number | null = null;
  /** Where lists have no totals: when the last two hours were last read again, and where that goes on. */
  #checkedAt = 0;
  #checkNext: number | null = null;
  /** The width of the next span of rows that are read again, in seconds. */
  againWidth = Infinity;
  /** null: not known yet. */
  listsTotals: boolean | null = null;
  /** Of the last page, with which its rows were stored. */
  cursor: string | null = null;

  get size(): number {
    return this.#rows.size;
  }

  clear(): void {
    this.#rows.clear();
    this.#from = 0;
    this.#until = null;
  }

  /** How much of what was read the next walk checks, in seconds. */
  overlapFor(cursor: LogCursor | null): number {
    if (cursor === null || this.#until === null) return OVERLAP_S;
    const remembered = cursor.until - this.#from;
    const needed = this.listsTotals === false ? LEAST_OVERLAP_S + 2 * cursor.late : OVERLAP_S;
    return Math.max(LEAST_OVERLAP_S, Math.min(needed, remembered, OVERLAP_S));
  }

  /** How many rows of a span are known, with those that were just seen. */
  countIn({ from, to }: Span, seen: SeenRows): number {
    let total = 0;
    for (const { second, count } of this.#rows.values()) if (second >= from && second <= to) total += count;
    for (const [fingerprint, { count }] of seen)
      total += Math.max(0, count - (this.#rows.get(fingerprint)?.count ?? 0));
    return total;
  }

  /** How many seconds after its time one of these rows was not listed yet; 0: none was late, as far as is known. */
  measureLateness(seen: SeenRows): number {
    let late = 0;
    const until = this.#until ?? 0;
    for (const [fingerprint, { second }] of seen)
      if (second >= this.#from && !this.#rows.has(fingerprint)) late = Math.max(late, until - second);
    return late;
  }

  add(seen: SeenRows): void {
    for (const [fingerprint, { second, count }] of seen) {
      if (second < this.#from) continue;
      const known = this.#rows.get(fingerprint)?.count ?? 0;
      this.#rows.set(fingerprint, { second, count: Math.max(count, known) });
    }
    if (this.#rows.size > MAX_LISTED) this.#forgetHalf();
  }

  /** All rows of a span were read: others that were known in it are deleted by now. */
  replace({ from, to }: Span, seen: SeenRows): void {
    for (const [fingerprint, { second }] of this.#rows)
      if (second >= from && second <= to) this.#rows.delete(fingerprint);
    this.add(seen);
  }

  /** @param isFirst everything was read */
  noteComplete({ from, end }: WalkPlan, isFirst: boolean): void {
    const kept = this.listsTotals === false ? 2 * OVERLAP_S : OVERLAP_S;
    this.#forgetBefore(Math.max(this.#from, end - kept, this.#until === null ? from : 0));
    this.#until = end;
    if (isFirst) this.#checkedAt = end;
  }

  /** Where lists have no totals, once an hour the last two hours are due to be read again. */
  nextCheck(end: number): Span | null {
    const isDue = this.#checkNext !== null || Math.abs(end - this.#checkedAt) >= OVERLAP_S;
    if (this.listsTotals !== false || !isDue) return null;
    const from = Math.min(this.#checkNext ?? Math.max(0, end - 2 * OVERLAP_S), end);
    return { from, to: end };
  }

  noteChecked(until: number, end: number): void {
    this.#checkNext = until >= end ? null : until + 1;
    if (until >= end) this.#checkedAt = end;
  }

  #forgetHalf(): void {
    const seconds = [...this.#rows.values()].map(({ second }) => second).toSorted((a, b) => a - b);
    this.#forgetBefore((seconds[Math.floor(seconds.length / 2)] ?? 0) + 1);
  }

  #forgetBefore(from: number): void {
    this.#from = from;
    for (const [fingerprint, { second }] of this.#rows) if (second < from) this.#rows.delete(fingerprint);
  }
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
    const first = isObject(data) ? 1 : 0;
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
  const object = requiredData(data, about);
  const rows = fieldAt(object, "items") === null ? [] : required(listAt(object, "items"), "items", about);
  return { rows, total: required(countAt(object, "total"), "total", about) };
}

const ALWAYS: Span = { from: 0, to: Number.MAX_SAFE_INTEGER };

/** Reads the consecutive pages of one span, and names their rows. */
export class PageReader {
  readonly #readRow: RowReader;
  /** All rows so far, also those that are not usage. */
  readonly seen: SeenRows = new Map();
  /** How many rows without a request id had each fingerprint. */
  readonly #alike = new Map<string, number>();
  #before: readonly string[] = [];
  #totalBefore: number | null = null;

  constructor(readRow: RowReader) {
    this.#readRow = readRow;
  }

  /**
   * `count` includes rows that are not usage, but not those that the page before already had.
   * @param span what was asked for
   */
  read({ rows: items, total }: Pick<ListPage, "rows" | "total">, span: Span = ALWAYS) {
    const page = items.map((item) => {
      const raw = asFields(item);
      return { raw, fingerprint: hashRow(raw) };
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
      const before = this.seen.get(fingerprint);
      if (before === undefined)
        this.seen.set(fingerprint, { second: countAt(raw, "created_at") ?? span.to, count: 1 });
      else before.count += 1;
      const row = this.#readRow(raw);
      if (row === "unreadable") unreadable += 1;
      else if (row !== "other") rows.push({ identity: this.#identify(raw, fingerprint), ...row });
    }
    if (unreadable > 0 && unreadable === fresh.length) {
      throw new ConsoleError("other-shape", "lists rows without a usable time and type");
    }
    return { rows, count: fresh.length };
  }

  /**
   * Rows without a request id can be alike, so they get a number. The number is the same in every walk: rows that are alike
   * are of the same second, and spans have whole seconds.
   */
  #identify(raw: JsonObject, fingerprint: string): string {
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

function hashRow(raw: JsonObject): string {
  const values = FINGERPRINT_FIELDS.map((name) => fieldAt(raw, name) ?? null);
  return createHash("sha256").update(JSON.stringify(values)).digest("hex").slice(0, 24);
}

/**
 * How many rows at the top of a page were at the bottom of the page before: rows written between two requests push the
 * others down.
 * @param max how many were written, if known: then two equal rows, one on each page, count as two
 */
function countRepeats(before: readonly string[], page: readonly string[], max: number): number {
  for (let count = Math.min(before.length, page.length, max); count > 0; count -= 1) {
    const start = before.length - count;
    if (page.slice(0, count).every((fingerprint, at) => fingerprint === before[start + at])) return count;
  }
  return 0;
}
