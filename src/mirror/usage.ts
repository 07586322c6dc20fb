import { reason } from "../reason.ts";
import type { AckLine, AmendLine, KeyHeldLine } from "../usage/journal/lines.ts";
import { ConsoleFault } from "./consoles/fault.ts";

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
