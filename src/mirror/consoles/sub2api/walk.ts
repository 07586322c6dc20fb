import type { AdapterDeps, Page } from "../console.ts";
import { type Mark, markOf, markText, type Place } from "./mark.ts";
import type { UsagePage, UsagePages } from "./usage-page.ts";

const HOUR = 3600_000;
/** How far back a walk looks for late rows: a lower id can come to light after a higher one. */
const OVERLAP_MS = 24 * HOUR;
/** What is left after this many goes on in the next walk. */
const MOST_PAGES = 500;

export interface WalkMeans {
  readonly pages: UsagePages;
  readonly now: AdapterDeps["now"];
  readonly mostPages?: number;
}

/**
 * From the newest row down. A walk that was broken off is first brought to its end, from below what it has read; then
 * what came in meanwhile is read.
 */
export async function* walkUsage(means: WalkMeans, text: string | null, since: number): AsyncGenerator<Page> {
  const budget = { left: means.mostPages ?? MOST_PAGES };
  let mark = markOf(text);
  do {
    const resumed = mark.going !== null;
    for await (const [page, next] of stretch(means, mark, since, budget)) {
      mark = next;
      yield page;
    }
    if (!resumed || mark.going !== null) return;
  } while (budget.left > 0);
}

/** One way down, to where everything has been read before. Each page with the mark that is kept with it. */
async function* stretch(
  { pages, now }: WalkMeans,
  before: Mark,
  since: number,
  budget: { left: number },
): AsyncGenerator<readonly [Page, Mark]> {
  // Always begins at the top, where a page's place does not depend on its size, and where the number of rows is told.
  let answer = await pages.read(1);
  budget.left -= 1;
  const mark = stillValid(before, answer);
  const { top, overlap, began } = mark.going ?? {
    top: topOf(answer) ?? mark.complete ?? { id: 0, time: since },
    overlap: isOverlapDue(mark, now()),
    began: now(),
  };
  let below = mark.going?.below ?? answer.total;
  for (;;) {
    const { page, size, total } = answer;
    // Rows above were deleted meanwhile, so that unread ones moved up past the beginning of this page.
    const isAhead = (page - 1) * size > Math.max(0, total - below);
    if (!isAhead) below = Math.max(0, Math.min(below, total - page * size));
    const ended = !isAhead && (below === 0 || reachesRead(answer, mark, overlap, since));
    const next: Mark = ended
      ? { complete: top, overlapAt: overlap ? began : mark.overlapAt, going: null }
      : { ...mark, going: { top, below, overlap, began } };
    yield [pageFor(answer, next, below, mark.complete === null), next];
    if (ended || budget.left <= 0) return;
    answer = await pages.read(isAhead ? unreadPage(answer, below) : pageAfter(answer, below));
    budget.left -= 1;
  }
}

/** A log whose newest row is older than what was read from it has begun anew: so does the walk. */
function stillValid(mark: Mark, first: UsagePage): Mark {
  const newest = topOf(first)?.id ?? 0;
  const read = Math.max(mark.complete?.id ?? 0, mark.going?.top.id ?? 0);
  return newest < read ? markOf(null) : mark;
}

function topOf({ rows }: UsagePage): Place | null {
  const [first, ...others] = rows;
  if (first === undefined) return null;
  // Looked for, because old versions sort by time whatever they are asked.
  const { id, row } = others.reduce((newest, one) => (one.id > newest.id ? one : newest), first);
  return { id, time: row.created_at };
}

function isOverlapDue({ complete, overlapAt }: Mark, now: number): boolean {
  return complete === null || now - overlapAt >= HOUR || overlapAt > now;
}

/** Everything on this page, and so below it, was read before, or is older than anybody wants. */
function reachesRead(answer: UsagePage, { complete }: Mark, overlap: boolean, since: number): boolean {
  const { rows, last } = answer;
  if (last) return true;
  const isOlder = (time: number) => rows.every(({ row }) => row.created_at < time);
  if (complete === null) return isOlder(since);
  return rows.every(({ id }) => id <= complete.id) && (!overlap || isOlder(complete.time - OVERLAP_MS));
}

/** The page on which the newest row lies that was not read. */
function unreadPage({ size, total }: UsagePage, below: number): number {
  return Math.floor(Math.max(0, total - below) / size) + 1;
}

/** Where it jumps, a page is read twice. */
function pageAfter(answer: UsagePage, below: number): number {
  return Math.max(answer.page + 1, unreadPage(answer, below) - 1);
}

function pageFor({ rows, total }: UsagePage, mark: Mark, below: number, isFirst: boolean): Page {
  return {
    rows: rows.map(({ row }) => row),
    cursor: markText(mark),
    done: Math.max(0, total - below),
    // Of a later walk nobody knows how far down it goes.
    total: isFirst ? total : null,
    gap: null,
  };
}
