import type Database from "libsql";
import { errorMessage } from "../core/errors.ts";
import type { AckLine, KeyHeldLine } from "../usage/journal/lines.ts";
import { ConsoleError } from "./consoles/console.ts";
import type { Amendment } from "./store/amendments.ts";
import type { MirrorDatabase } from "./store/database.ts";

/** What the mirror needs of the usage log besides reading its index. */
export interface MirrorUsage {
  /** Brings the index up to date with the journal. Throws if that is not possible. */
  catchUp(): Promise<void>;
  /** Returns false if the lines could not be written. */
  amend(lines: readonly Amendment[]): boolean;
  append(line: AckLine | KeyHeldLine): void;
  /** The newest record in the journal; null: there is none. */
  last(): LastRecord | null;
}

export interface LastRecord {
  readonly id: string;
  readonly started_at: number;
}

/** Throws a ConsoleError if the database cannot be used: a failure must not look like success. */
export function askOrFail<T>(
  database: Pick<MirrorDatabase, "ask">,
  question: (db: Database.Database) => T,
): T {
  // The answer itself can be null.
  const answer = database.ask((db) => ({ found: question(db) }));
  if (answer === null)
    throw new ConsoleError("failing", "could not be compared: the usage log cannot be read or written");
  return answer.found;
}

/** Brings the index up to date, and returns the newest record that it must have then. Throws a ConsoleError. */
export async function catchUp(usage: Pick<MirrorUsage, "catchUp" | "last">): Promise<LastRecord | null> {
  // Read first: a record that begins meanwhile may not be in the index yet.
  const newest = usage.last();
  try {
    await usage.catchUp();
  } catch (error) {
    throw new ConsoleError(
      "failing",
      `could not be compared: the usage log cannot be read (${errorMessage(error)})`,
    );
  }
  return newest;
}
