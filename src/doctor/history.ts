import type Database from "libsql";
import { type Connection, IndexFault, indexFault, openIndexForReading } from "../usage/index/database.ts";
import { quarterOf } from "../usage/rollups.ts";

/** How a tool used one model with one key. */
export interface ModelUse {
  readonly tool: string;
  /** Fingerprint; empty: none. */
  readonly key: string;
  /** Empty: the request named none. */
  readonly model: string;
  readonly requests: number;
  /** How many of them the gateway answered well. */
  readonly answered: number;
}

const THIRTY_DAYS_MS = 30 * 86_400_000;

/** What tools asked for lately. From the log's sums, so that no log is too long for it. */
export function readUses(db: Database.Database, now: number): ModelUse[] {
  return uses(db, quarterOf(now - THIRTY_DAYS_MS));
}

/** The keys that a tool's requests were ever answered with, each as tool and fingerprint. */
export function readWorked(db: Database.Database): ReadonlySet<string> {
  const good = uses(db, 0).filter(({ answered }) => answered > 0);
  return new Set(good.map(({ tool, key }) => workedName(tool, key)));
}

export function workedName(tool: string, key: string): string {
  return JSON.stringify([tool, key]);
}

function uses(db: Database.Database, from: number): ModelUse[] {
  const rows = db
    .prepare(
      `SELECT tool, key, model, sum(requests), sum(requests - refused - failed - client_left - interrupted)
       FROM usage.rollups WHERE quarter >= ? GROUP BY tool, key, model`,
    )
    .raw()
    .all(from);
  return rows.map((row) => {
    const [tool, key, model, requests, answered] = Array.isArray(row) ? row : [];
    return {
      tool: String(tool),
      key: String(key),
      model: String(model),
      requests: Number(requests),
      answered: Number(answered),
    };
  });
}

export interface History {
  readonly uses: readonly ModelUse[];
  readonly worked: ReadonlySet<string>;
  /** Why nothing could be read although there is a log; null: all is well. */
  readonly problem: string | null;
}

/** The same from the index file, daemon or not. */
export function readHistory(file: string, now: number): History {
  const nothing = { uses: [], worked: new Set<string>() };
  let connection: Connection | null = null;
  try {
    connection = openIndexForReading(file);
    return { uses: readUses(connection.db, now), worked: readWorked(connection.db), problem: null };
  } catch (error) {
    const fault = indexFault(error);
    if (!(fault instanceof IndexFault)) throw error;
    return {
      ...nothing,
      problem: fault.kind === "missing" ? null : `the usage index cannot be read: ${fault.message}`,
    };
  } finally {
    connection?.close();
  }
}
