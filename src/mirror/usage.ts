import type Database from "libsql";
import { reason } from "../reason.ts";
import type { AckLine, AmendLine, KeyHeldLine } from "../usage/journal/lines.ts";
import { ConsoleFault } from "./consoles/console.ts";
import type { MirrorDatabase } from "./store/database.ts";

/** What the mirror needs of the usage log, beside reading its index. */
export interface MirrorUsage {
  /** Brings the index up to date with everything that is in the journal now. Throws where that is not possible. */
  catchUp(): Promise<void>;
  /** Appends corrections of records. false: they could not be written, and must not count. */
  amend(lines: readonly AmendLine[]): boolean;
  append(line: AckLine | KeyHeldLine): void;
  /** The newest record in the journal; null: there is none. */
  last(): LastRecord | null;
  /** When it was last noticed that records were lost from the journal while it was open; null: never. */
  lostAt(): number | null;
}

export interface LastRecord {
  readonly id: string;
  readonly started_at: number;
}

/** Asks the mirror's database. What cannot be read or written must not look as if all were well: throws a ConsoleFault. */
export function askOrFail<T>(
  database: Pick<MirrorDatabase, "ask">,
  question: (db: Database.Database) => T,
): T {
  // null can be an answer, too.
  const answer = database.ask((db) => ({ found: question(db) }));
  if (answer === null)
    throw new ConsoleFault("failing", "could not be compared: the usage log cannot be read or written");
  return answer.found;
}

/** Returns the newest record that the index must have now. Throws a ConsoleFault. */
export async function catchUp(usage: Pick<MirrorUsage, "catchUp" | "last">): Promise<LastRecord | null> {
  // Before, not after: those that begin meanwhile may not be in the index yet.
  const newest = usage.last();
  try {
    await usage.catchUp();
  } catch (error) {
    throw new ConsoleFault(
      "failing",
      `could not be compared: the usage log cannot be read (${reason(error)})`,
    );
  }
  return newest;
}
