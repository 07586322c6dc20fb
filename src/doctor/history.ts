import type Database from "libsql";
import { slotOf } from "../usage/ledger/cells.ts";
import { openForReading } from "../usage/ledger/connect.ts";

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
  return uses(db, slotOf(now - THIRTY_DAYS_MS));
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
       FROM log.cells WHERE slot >= ? GROUP BY tool, key, model`,
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

/** The same from the file, daemon or not. */
export function readHistory(file: string, now: number): History {
  const nothing = { uses: [], worked: new Set<string>() };
  const opened = openForReading(file);
  if (!opened.ok) return { ...nothing, problem: opened.why === "missing" ? null : opened.words };
  const { db, close } = opened.connection;
  try {
    return { uses: readUses(db, now), worked: readWorked(db), problem: null };
  } catch (error) {
    return { ...nothing, problem: error instanceof Error ? error.message : String(error) };
  } finally {
    close();
  }
}
