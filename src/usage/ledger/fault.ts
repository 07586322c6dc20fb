import { dirname } from "node:path";
import { reason } from "../../reason.ts";

/**
 * What a failure of the database asks for.
 * busy: somebody else holds the lock, try again soon · disk: full, read-only, gone, failing: try again later ·
 * corrupt: move the file aside · newer, foreign: not ours to touch · row: only this row, the others can go on ·
 * broken: a mistake of our own.
 */
export type FaultKind = "busy" | "disk" | "corrupt" | "newer" | "foreign" | "row" | "broken";

/** A failure for which the words are known already. */
export class LedgerFault extends Error {
  readonly kind: FaultKind;

  constructor(kind: FaultKind, message: string) {
    super(message);
    this.name = "LedgerFault";
    this.kind = kind;
  }
}

/** SQLite's primary result codes: the low byte of the extended ones, of which libsql names only some. */
const KINDS: Readonly<Record<number, FaultKind>> = {
  3: "disk", // PERM
  5: "busy", // BUSY
  6: "busy", // LOCKED
  8: "disk", // READONLY
  10: "disk", // IOERR
  11: "corrupt", // CORRUPT
  13: "disk", // FULL
  14: "disk", // CANTOPEN
  15: "busy", // PROTOCOL: the race for the lock was lost too often
  18: "row", // TOOBIG
  19: "row", // CONSTRAINT
  20: "row", // MISMATCH
  22: "disk", // NOLFS
  23: "disk", // AUTH
  26: "corrupt", // NOTADB
};

/** A page that lies beyond the end of the file. SQLite calls it an I/O error; waiting does not mend it. */
const SHORT_READ = 522;

export function faultOf(error: unknown): LedgerFault {
  if (error instanceof LedgerFault) return error;
  const raw = (error as { rawCode?: unknown }).rawCode;
  if (typeof raw !== "number") return new LedgerFault("broken", reason(error));
  const kind = raw === SHORT_READ ? "corrupt" : (KINDS[raw & 0xff] ?? "broken");
  return new LedgerFault(kind, inWords(raw, reason(error)));
}

/** What a person can do about it. */
export function nextStep({ kind, message }: LedgerFault, file: string): string {
  switch (kind) {
    case "newer":
      return "update keybearer";
    case "foreign":
      return `mv ${file} elsewhere`;
    case "busy":
      return "close the program that has it open; it goes on by itself then";
    case "corrupt":
      return "keybearer run, which keeps the file aside and saves what can be read";
    case "disk":
      return message === FULL
        ? "free some space; it goes on by itself then"
        : `look at ${dirname(file)}; it goes on by itself once files can be written there`;
    case "row":
    case "broken":
      return `start keybearer again; if it says the same then: mv ${file} elsewhere, and report it`;
  }
}

/** Over by itself some day: nothing is proven by it, and what met it is to be tried again. */
export function isPassing({ kind }: LedgerFault): boolean {
  return kind === "busy" || kind === "disk";
}

export const FULL = "the disk is full";

function inWords(raw: number, message: string): string {
  switch (raw & 0xff) {
    case 5:
    case 6:
      return "another program holds the lock on it";
    case 8:
      return "it cannot be written to (read-only)";
    case 13:
      return FULL;
    case 14:
      return "it cannot be opened";
    case 26:
      return "it is not a database";
    case 11:
      return "it is damaged";
    case 10:
      return raw === SHORT_READ ? "a part of it is missing" : `the disk failed (${message})`;
    default:
      return message;
  }
}

/** For what node:fs throws. */
export function systemFault(error: unknown): LedgerFault {
  return new LedgerFault("disk", systemWords(error));
}

function systemWords(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code;
  switch (code) {
    case "ENOENT":
      return "its folder is gone";
    case "EACCES":
    case "EPERM":
      return "its folder cannot be written to";
    case "EEXIST":
      return "there is a link in its place that leads nowhere";
    case "EROFS":
      return "the disk is read-only";
    case "ENOSPC":
      return FULL;
    default:
      return `the system says ${code ?? "no"}`;
  }
}
