import { setImmediate as turn } from "node:timers/promises";
import { DAY_MS } from "../../core/units.ts";
import type { ConsoleAdapter, Page } from "../consoles/console.ts";
import { type UnreadKey, writeUnreadKeys } from "../store/coverage-gaps.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { coverFrom, readTime, writeFact } from "../store/facts.ts";
import { queryNumber } from "../store/query.ts";
import { readCursor, writePage, writeRows } from "../store/rows.ts";
import { askOrFail } from "../usage.ts";

/* Reads the rows of a console, and writes them to the database in small steps. */

interface ReadOptions {
  readonly gateway: string;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly now: number;
  /** The sync must not write any more. */
  readonly isStale: () => boolean;
  readonly onProgress: (progress: { readonly done: number; readonly total: number | null }) => void;
}

/** The first walk goes back this far, or to the start of our own log. */
const HISTORY_MS = 30 * DAY_MS;
/** Rows in one transaction, which runs on the thread that serves requests. */
const ROWS_PER_WRITE = 100;

/** Reads the rows since the last walk. Throws a ConsoleError. */
export async function readRows(adapter: ConsoleAdapter, options: ReadOptions): Promise<void> {
  const { gateway, database, isStale, onProgress } = options;
  const since = beginCoverage(options);
  const cursor = askOrFail(database, (db) => readCursor(db, gateway));
  for await (const page of adapter.walk(cursor, since)) {
    await storePage(page, options);
    if (isStale()) return;
    onProgress({ done: page.done, total: page.total });
    await turn();
  }
}

/** In small transactions, with requests in between. The last one has the cursor: until then the page is read again. */
async function storePage(page: Page, { gateway, database, isStale }: ReadOptions): Promise<void> {
  let rest = page.rows;
  while (rest.length > ROWS_PER_WRITE) {
    if (isStale()) return;
    const rows = rest.slice(0, ROWS_PER_WRITE);
    askOrFail(database, (db) => writeRows(db, gateway, rows));
    rest = rest.slice(ROWS_PER_WRITE);
    await turn();
  }
  if (isStale()) return;
  const last = { ...page, rows: rest };
  askOrFail(database, (db) => writePage(db, gateway, last));
}

/** Returns how far back a first walk goes. Older records of ours are never missing. */
function beginCoverage({ gateway, database, now }: ReadOptions): number {
  const first = database.ask((db) => {
    const sql = "SELECT min(started_at) FROM usage.records WHERE gateway = ? AND end IS NOT NULL";
    const oldest = queryNumber(db, sql, gateway) ?? now;
    const since = Math.min(now - HISTORY_MS, oldest - DAY_MS);
    // A walk that has begun does not go back, although older records of another machine may have come since. A time in the
    // future was written before the clock was set back.
    const covered = readTime(db, gateway, "covered_from") ?? Infinity;
    if (readCursor(db, gateway) === null || covered > now) coverFrom(db, gateway, since, now);
    return since;
  });
  return first ?? now - HISTORY_MS;
}

/** A walk is complete. @param withoutAccount fingerprints of held keys that no account lists */
export function noteWalk(
  adapter: ConsoleAdapter,
  withoutAccount: readonly string[],
  { gateway, database, now }: Pick<ReadOptions, "gateway" | "database" | "now">,
): void {
  const skipped = adapter.skippedKeys?.() ?? [];
  const unreadKeys = [
    ...skipped.map((one): UnreadKey => ({ ...one, cause: "not-read" })),
    ...withoutAccount.map((key): UnreadKey => ({ key, until: null, cause: "no-account" })),
  ];
  database.ask((db) => {
    // If an account could not be read, its requests must not become missing.
    if ((adapter.lastError?.("rows") ?? null) === null) writeFact(db, gateway, "last_sync", String(now));
    writeUnreadKeys(db, gateway, unreadKeys);
  });
}
