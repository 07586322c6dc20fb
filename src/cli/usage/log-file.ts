import { findPlaces } from "../../places.ts";
import { reason } from "../../reason.ts";
import { EXIT } from "../../start-failure.ts";
import { type Connection, openForReading } from "../../usage/ledger/connect.ts";
import { fail } from "../fail.ts";

/**
 * The log is read from its file, daemon or not: a report never holds up a request. Nothing recorded yet is an answer;
 * a file that cannot be read is a failure, and said so.
 */
export async function withLog(
  read: (db: Connection["db"]) => Promise<void> | void,
  nothingYet: (words: string) => void,
): Promise<void> {
  const opened = openForReading(findPlaces().usage);
  if (!opened.ok) {
    if (opened.why === "missing")
      return nothingYet(`${opened.words}; it begins with the first request → keybearer run`);
    return fail(opened.words, EXIT.failed);
  }
  const { db, close } = opened.connection;
  try {
    await read(db);
  } catch (error) {
    // SQLite's codes say what is wrong with the file; everything else is a mistake of ours and must not hide.
    if (!isSqlite(error)) throw error;
    fail(`the usage log cannot be read: ${reason(error)}`, EXIT.failed);
  } finally {
    close();
  }
}

function isSqlite(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && code.startsWith("SQLITE_");
}
