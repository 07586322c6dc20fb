import type { ConsoleRow } from "../../console-row.ts";
import type { Page } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { asObject, type JsonObject } from "../json.ts";
import { createNaming, printOf, repeatsOf } from "./identity.ts";
import type { Listed, Pages } from "./pager.ts";
import type { SiteStatus } from "./status.ts";
import { markAt, planWalk, readMark, type Span, type WalkPlan, writeMark } from "./windows.ts";

/** A log that is listed newest first, within times. */
export interface LogSource {
  /** The rows of a stretch of time. */
  pages(span: Span): Pages;
  /** `other`: no usage, such as a top-up; `unreadable`: not even when it was written. */
  readonly readRow: RowReader;
  /** Lists tell how long they are. */
  readonly counted: boolean;
}

export type UnnamedRow = Omit<ConsoleRow, "identity">;
export type RowReader = (raw: JsonObject) => UnnamedRow | "other" | "unreadable";

/** Consoles count no further than this. */
const COUNTED_MOST = 10_000;
/** A stretch with more pages than this is taken in smaller ones, so that a walk that breaks off loses little. */
const STRETCH_PAGES = 200;
const SECOND_PAGES = 1000;
/** A stretch with fewer pages than this was small. */
const FEW_PAGES = 25;
const FIRST_STRETCH_S = 6 * 3600;
/** Leaves room for the last stretch below 3000. */
const WALK_PAGES = 2800;

interface Tally {
  pages: number;
  done: number;
  counted: boolean;
}

/** By the console's clock, which writes the rows' times: one that is slow would have its newest rows passed over. */
export interface WalkTimes {
  readonly since: number;
  readonly now: number;
}

export function timesOf(since: number, ours: number, { time }: SiteStatus): WalkTimes {
  const now = time ?? ours;
  return { since: since + now - ours, now };
}

/**
 * Walks forward through stretches of time, each from its newest row to its oldest, and notes each that is complete. A
 * stretch that is too long to be listed is taken in halves.
 */
export async function* walkLog(
  source: LogSource,
  mark: string | null,
  { since, now }: WalkTimes,
): AsyncGenerator<Page, void> {
  const plan = planWalk(readMark(mark), since, now);
  const tally: Tally = { pages: 0, done: 0, counted: source.counted };
  let width = source.counted ? plan.end - plan.from + 1 : FIRST_STRETCH_S;
  let from = plan.from;
  while (from <= plan.end && tally.pages < WALK_PAGES) {
    const span = { from, to: Math.min(plan.end, from + width - 1) };
    const before = tally.pages;
    const narrower = yield* walkSpan(source, span, plan, tally);
    width = span.to - span.from + 1;
    if (narrower !== null) width = narrower;
    else {
      from = span.to + 1;
      if (tally.pages - before <= FEW_PAGES) width *= 2;
    }
  }
}

/** The width to try again with; null: the stretch is complete. */
async function* walkSpan(
  source: LogSource,
  span: Span,
  plan: WalkPlan,
  tally: Tally,
): AsyncGenerator<Page, number | null> {
  const length = span.to - span.from + 1;
  const marks = {
    before: writeMark(span.from === plan.from ? plan.mark : markAt(plan, span.from - 1)),
    after: writeMark(markAt(plan, span.to)),
  };
  const pages = source.pages(span);
  const read = createPageReader(source.readRow);
  const already = tally.done;
  for (let index = 0; ; index += 1) {
    const listed = await pages.next();
    tally.pages += 1;
    if (index === 0) {
      const narrower = narrowerThan(length, listed.total, tally);
      if (narrower !== null) return narrower;
    }
    const { rows, count } = read(listed);
    tally.done += count;
    const tooMany = !listed.last && index + 1 >= (length > 1 ? STRETCH_PAGES : SECOND_PAGES);
    const complete = listed.last || (tooMany && length === 1);
    const unseen = complete && length === 1 && (tooMany || (listed.total ?? 0) >= COUNTED_MOST);
    yield {
      rows,
      cursor: complete ? marks.after : marks.before,
      done: tally.done,
      total:
        listed.total === null || span.to < plan.end ? null : Math.max(already + listed.total, tally.done),
      gap: unseen ? { from: span.from * 1000 - 1, to: span.to * 1000 + 999 } : null,
    };
    if (complete) return null;
    if (tooMany) return Math.ceil(length / 2);
  }
}

/** Looks at the first page of a stretch: null where it can be read whole. */
function narrowerThan(length: number, total: number | null, tally: Tally): number | null {
  const wasCounted = tally.counted;
  tally.counted = total !== null;
  if (total === null) return wasCounted && length > FIRST_STRETCH_S ? FIRST_STRETCH_S : null;
  return total >= COUNTED_MOST && length > 1 ? Math.ceil(length / 2) : null;
}

interface ReadPage {
  readonly rows: readonly ConsoleRow[];
  /** With those that are no usage, and without those that the page before had. */
  readonly count: number;
}

/** Reads the pages of one stretch, one after the other. */
export function createPageReader(readRow: RowReader): (listed: Pick<Listed, "rows" | "total">) => ReadPage {
  const nameOf = createNaming();
  let before: readonly string[] = [];
  let totalBefore: number | null = null;
  return ({ rows: items, total }) => {
    const page = items.map((item) => asObject(item) ?? {}).map((raw) => ({ raw, print: printOf(raw) }));
    const prints = page.map(({ print }) => print);
    const grown = total === null || totalBefore === null ? Number.POSITIVE_INFINITY : total - totalBefore;
    const fresh = page.slice(repeatsOf(before, prints, grown));
    before = prints;
    totalBefore = total;
    const rows: ConsoleRow[] = [];
    let unreadable = 0;
    for (const { raw, print } of fresh) {
      const row = readRow(raw);
      if (row === "unreadable") unreadable += 1;
      else if (row !== "other") rows.push({ identity: nameOf(raw, print), ...row });
    }
    if (unreadable > 0 && unreadable === fresh.length) {
      throw new ConsoleFault("other-shape", 'lists rows without a usable "created_at" and "type"');
    }
    return { rows, count: fresh.length };
  };
}
