import type { ConsoleRow } from "../console-row.ts";
import type { Page } from "./console.ts";
import { countAt, flagAt, type JsonObject, numberAt, objectAt, parseObject, wholeAt } from "./json.ts";

/*
 * Walks sub2api's usage log: from the newest row down, by row id. Pages are counted from the top, and new rows push the
 * others down, so an interrupted walk remembers how many unread rows are below it.
 */

export interface UsagePage {
  /** From 1. */
  readonly page: number;
  /** Rows per page. */
  readonly size: number;
  /** Rows in the whole log. */
  readonly total: number;
  /** Newest first. */
  readonly rows: readonly NumberedRow[];
  readonly last: boolean;
}

export interface NumberedRow {
  readonly id: number;
  readonly row: ConsoleRow;
}

/** How far the log was read. */
interface Cursor {
  /** The newest row of the last complete walk; null: there was none. */
  readonly complete: Position | null;
  /** When the last complete walk that also looked for late rows began. */
  readonly overlapAt: number;
  /** The walk that was interrupted. */
  readonly going: InterruptedWalk | null;
}

interface Position {
  readonly id: number;
  /** Console time. */
  readonly time: number;
}

interface InterruptedWalk {
  /** The newest row when the walk began. */
  readonly top: Position;
  /** How many rows are older than those read. Stays true however many rows are added above, unlike a page number. */
  readonly below: number;
  /** Whether it also looks for late rows. */
  readonly overlap: boolean;
  readonly began: number;
}

const HOUR = 3600_000;
/** Once an hour a walk goes this far back for late rows: a lower id can appear after a higher one. */
const OVERLAP_MS = 24 * HOUR;
/** The next walk reads what is left after this many pages. */
const MAX_PAGES = 500;

/** First finishes an interrupted walk, then reads what was added meanwhile. */
export async function* walkUsage(
  readPage: (page: number) => Promise<UsagePage>,
  now: () => number,
  text: string | null,
  since: number,
): AsyncGenerator<Page> {
  const budget = { pages: MAX_PAGES };
  let cursor = readCursor(text);
  do {
    const resumed = cursor.going !== null;
    for await (const step of walkDown(readPage, now(), cursor, since, budget)) {
      cursor = step.cursor;
      yield step.page;
    }
    if (!resumed || cursor.going !== null) return;
  } while (budget.pages > 0);
}

/** Reads downwards until it reaches rows that were read before. */
async function* walkDown(
  readPage: (page: number) => Promise<UsagePage>,
  now: number,
  before: Cursor,
  since: number,
  budget: { pages: number },
): AsyncGenerator<{ readonly page: Page; readonly cursor: Cursor }> {
  // Always starts with page 1, whose place does not depend on the page size, and which tells the total.
  let usage = await readPage(1);
  budget.pages -= 1;
  const start = isReset(before, usage) ? NEW_CURSOR : before;
  const { top, overlap, began } = start.going ?? {
    top: newestOf(usage) ?? start.complete ?? { id: 0, time: since },
    overlap: isOverlapDue(start, now),
    began: now,
  };
  let below = start.going?.below ?? usage.total;
  for (;;) {
    const { page, size, total } = usage;
    // Rows above were deleted, so unread rows moved up past the beginning of this page.
    const isTooFar = (page - 1) * size > Math.max(0, total - below);
    if (!isTooFar) below = Math.max(0, Math.min(below, total - page * size));
    const isComplete = !isTooFar && (below === 0 || reachesReadRows(usage, start, overlap, since));
    const cursor: Cursor = isComplete
      ? { complete: top, overlapAt: overlap ? began : start.overlapAt, going: null }
      : { ...start, going: { top, below, overlap, began } };
    yield {
      cursor,
      page: {
        rows: usage.rows.map(({ row }) => row),
        cursor: JSON.stringify({ v: VERSION, ...cursor }),
        done: Math.max(0, total - below),
        // How far down a later walk goes is not known in advance.
        total: start.complete === null ? total : null,
        gap: null,
      },
    };
    if (isComplete || budget.pages <= 0) return;
    const unread = Math.floor(Math.max(0, total - below) / size) + 1;
    // After a jump, one page before the unread one is read again.
    usage = await readPage(isTooFar ? unread : Math.max(page + 1, unread - 1));
    budget.pages -= 1;
  }
}

/** The newest row is older than one that was read: the log was reset. */
function isReset(cursor: Cursor, first: UsagePage): boolean {
  const read = Math.max(cursor.complete?.id ?? 0, cursor.going?.top.id ?? 0);
  return (newestOf(first)?.id ?? 0) < read;
}

/** Not simply the first row: old versions sort by time, whatever they are asked for. */
function newestOf({ rows }: UsagePage): Position | null {
  let newest: Position | null = null;
  for (const { id, row } of rows) {
    if (newest === null || id > newest.id) newest = { id, time: row.created_at };
  }
  return newest;
}

function isOverlapDue({ complete, overlapAt }: Cursor, now: number): boolean {
  return complete === null || now - overlapAt >= HOUR || overlapAt > now;
}

/** Whether everything on this page, and so below it, was read before or is older than `since`. */
function reachesReadRows(usage: UsagePage, { complete }: Cursor, overlap: boolean, since: number): boolean {
  if (usage.last) return true;
  const areOlderThan = (time: number) => usage.rows.every(({ row }) => row.created_at < time);
  if (complete === null) return areOlderThan(since);
  const wereRead = usage.rows.every(({ id }) => id <= complete.id);
  return wereRead && (!overlap || areOlderThan(complete.time - OVERLAP_MS));
}

const VERSION = 1;
const NEW_CURSOR: Cursor = { complete: null, overlapAt: 0, going: null };

/** An unreadable cursor starts from the beginning, which stores nothing twice. */
function readCursor(text: string | null): Cursor {
  const cursor = parseObject(text ?? "") ?? {};
  const overlapAt = numberAt(cursor, "overlapAt");
  if (overlapAt === null || wholeAt(cursor, "v") !== VERSION) return NEW_CURSOR;
  return { complete: positionAt(cursor, "complete"), overlapAt, going: readInterrupted(cursor) };
}

function positionAt(object: JsonObject, name: string): Position | null {
  const position = objectAt(object, name) ?? {};
  const id = countAt(position, "id");
  const time = numberAt(position, "time");
  return id === null || time === null ? null : { id, time };
}

function readInterrupted(cursor: JsonObject): InterruptedWalk | null {
  const going = objectAt(cursor, "going") ?? {};
  const top = positionAt(going, "top");
  const below = countAt(going, "below");
  const overlap = flagAt(going, "overlap");
  const began = numberAt(going, "began");
  if (top === null || below === null || overlap === null || began === null) return null;
  return { top, below, overlap, began };
}
