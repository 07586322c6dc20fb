import type Database from "libsql";
import { DAY_MS } from "../core/units.ts";
import { IndexError, queryIndex } from "../usage/index/database.ts";
import { quarterOf } from "../usage/rollups.ts";

/** How a tool used one model with one key. */
export interface ModelUse {
  readonly tool: string;
  /** Fingerprint; empty: none. */
  readonly key: string;
  /** Empty: the request named none. */
  readonly model: string;
  readonly requests: number;
  /** How many of them succeeded. */
  readonly answered: number;
}

/** The models that tools of this machine requested in the last 30 days. Reads rollups, so the length of the log does not matter. */
export function readUses(db: Database.Database, now: number): ModelUse[] {
  return usesSince(db, quarterOf(now - 30 * DAY_MS));
}

/** Every tool and key with which a request of this machine ever succeeded, as workedName writes them. */
export function readWorked(db: Database.Database): ReadonlySet<string> {
  const succeeded = usesSince(db, 0).filter(({ answered }) => answered > 0);
  return new Set(succeeded.map(({ tool, key }) => workedName(tool, key)));
}

export function workedName(tool: string, key: string): string {
  return JSON.stringify([tool, key]);
}

function usesSince(db: Database.Database, quarter: number): ModelUse[] {
  const rows = db
    .prepare(
      `SELECT tool, key, model, sum(requests), sum(requests - refused - failed - client_left - interrupted)
       FROM usage.rollups WHERE quarter >= ? AND machine = '' GROUP BY tool, key, model`,
    )
    .raw()
    .all(quarter) as [string, string, string, number, number][];
  return rows.map(([tool, key, model, requests, answered]) => ({ tool, key, model, requests, answered }));
}

/** The gateway's answer to the last request of a tool for a model was a refusal. */
export interface LastFailure {
  readonly tool: string;
  readonly model: string;
  readonly cause: string;
  readonly detail: string | null;
  readonly at: number;
}

/** This many records are read, however long the log is. */
const MAX_RECORDS = 2000;

/** The models whose last request failed, by the newest records of this machine. */
function readLastFailures(db: Database.Database): LastFailure[] {
  const rows = db
    .prepare(
      `SELECT tool, model, cause, cause_detail, started_at FROM usage.records
       WHERE "end" IS NOT NULL AND "end" <> 'refused' AND machine IS NULL ORDER BY id DESC LIMIT ?`,
    )
    .raw()
    .all(MAX_RECORDS) as [string | null, string | null, string | null, string | null, number][];
  const seen = new Set<string>();
  const failures: LastFailure[] = [];
  for (const [tool, model, cause, detail, at] of rows) {
    const name = JSON.stringify([tool, model]);
    if (tool === null || model === null || seen.has(name)) continue;
    seen.add(name);
    if (cause !== null) failures.push({ tool, model, cause, detail, at });
  }
  return failures;
}

interface History {
  readonly uses: readonly ModelUse[];
  readonly lastFailures: readonly LastFailure[];
  readonly worked: ReadonlySet<string>;
  /** Why an existing index could not be read; null: it was, or there is none. */
  readonly problem: string | null;
}

/** Reads all of it from the index file, whether a daemon runs or not. */
export function readHistory(file: string, now: number): History {
  const found = queryIndex(file, (db) => ({
    uses: readUses(db, now),
    lastFailures: readLastFailures(db),
    worked: readWorked(db),
    problem: null,
  }));
  if (!(found instanceof IndexError)) return found;
  const problem = found.kind === "missing" ? null : `the usage index cannot be read: ${found.message}`;
  return { uses: [], lastFailures: [], worked: new Set<string>(), problem };
}
