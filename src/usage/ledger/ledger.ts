import type Database from "libsql";
import type { Beat } from "../../beat.ts";
import type { Clock } from "../../clock.ts";
import type { Logger } from "../../logger.ts";
import type { Closing, Opening } from "../record.ts";
import type { LedgerState } from "./state.ts";
import { FileLedger } from "./writing/file-ledger.ts";

/** The usage log, as the rest of the program sees it. */
export interface Ledger {
  /** true once the record is on disk: only then may a byte go to the gateway. false: it could not be written in time. */
  open(opening: Opening): boolean | Promise<boolean>;
  /** Completes it, exactly once; a second time changes nothing. Waits in a bounded buffer while the disk says no. */
  close(id: string, closing: Closing): void;
  /** A request that ended before anything was sent to a gateway (a refusal): whole at once. */
  add(opening: Opening, closing: Closing): void;
  /** Can a request be let in now? */
  available(): boolean;
  state(): LedgerState;
  /** Asks the log itself (see spent.ts), with everything that is finished by now in it. null: it cannot be asked now. */
  ask<T>(question: (db: Database.Database) => T): T | null;
  /** Everything written, the WAL taken over into the file, closed. */
  stop(): Promise<void>;
}

export interface LedgerMeans {
  readonly file: string;
  readonly clock: Clock;
  /** What makes it look at its file. Default one of its own. */
  readonly beat?: Beat;
  readonly log: Logger;
  /** How long records are kept, milliseconds. Read whenever old ones are looked for. */
  readonly keep: () => number;
  /** full: survives a power cut, at a cost per request. */
  readonly sync: "normal" | "full";
  /** Records of an earlier log were saved into this one, so that sums over the past are no longer what they were. */
  readonly onSaved?: () => void;
}

/** Never throws: a log that cannot be opened is unavailable, and opened as soon as it can be. */
export function createLedger(means: LedgerMeans): Ledger {
  return new FileLedger(means);
}
