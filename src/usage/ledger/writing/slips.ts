import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import type { Opening } from "../../record.ts";
import { LedgerFault, systemFault } from "../fault.ts";
import { isOurs, statOf } from "../on-disk.ts";
import { openingIn, SlipText } from "./slip-text.ts";

/** Behind the name of the log. */
export const SLIPS = "-slips";

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDWR } = constants;
/** No run leaves more than what it opened within a few milliseconds. */
const MOST_BYTES = 64 * 1024 * 1024;
const MOST_NOTED = MOST_BYTES / 2;

/**
 * Openings that are on disk, but not in the log's tables yet: a file beside the log to which each is appended, and which is
 * emptied as soon as all of them are in. An append takes two microseconds, a transaction of SQLite more than a hundred, and
 * holds against the same: whatever becomes of this process, the system has it. (What is to survive a power cut is never
 * noted here, see FileLedger.)
 */
export class Slips {
  readonly #path: string;
  readonly #descriptor: number;
  readonly #text = new SlipText();
  #bytes: number;
  #closed = false;

  private constructor(path: string, descriptor: number, bytes: number) {
    this.#path = path;
    this.#descriptor = descriptor;
    this.#bytes = bytes;
  }

  /** Whether there are any, or a place for them. */
  static lieBy(file: string): boolean {
    return statOf(file + SLIPS) !== null;
  }

  /** Throws a LedgerFault. */
  static open(file: string): Slips {
    const path = file + SLIPS;
    let descriptor: number | null = null;
    try {
      // Not blocking: a pipe would wait for a reader.
      descriptor = openSync(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
      const found = fstatSync(descriptor);
      const isRoot = process.geteuid?.() === 0;
      if (!found.isFile() || !(isOurs(found) || isRoot) || found.size > MOST_BYTES)
        throw new LedgerFault("foreign", `${path} is not what keybearer put there`);
      if ((found.mode & 0o077) !== 0) fchmodSync(descriptor, 0o600);
      // Whoever owns the log is to read them once root is gone, as SQLite has it with its own files.
      const owner = isRoot ? statOf(file) : null;
      if (owner !== null && owner.uid !== found.uid) fchownSync(descriptor, owner.uid, owner.gid);
      return new Slips(path, descriptor, found.size);
    } catch (error) {
      if (descriptor !== null) closeSync(descriptor);
      if (error instanceof LedgerFault) throw error;
      const { code } = error as NodeJS.ErrnoException;
      throw code === "EACCES" ? new LedgerFault("foreign", `${path} may not be opened`) : systemFault(error);
    }
  }

  /** What is noted, whoever did it. Throws a LedgerFault. */
  read(): Opening[] {
    if (this.#bytes === 0) return [];
    let text: string;
    try {
      text = readFileSync(this.#path, "utf8");
    } catch (error) {
      throw systemFault(error);
    }
    return text
      .split("\n")
      .map(openingIn)
      .filter((opening) => opening !== null);
  }

  /** false: it could not be written, and nothing of it is there. */
  note(opening: Opening): boolean {
    // They cannot be taken away any more: no file must grow for ever.
    if (this.#bytes > MOST_NOTED) return false;
    const length = this.#text.write(opening);
    try {
      if (writeSync(this.#descriptor, this.#text.bytes, 0, length) === length) {
        this.#bytes += length;
        return true;
      }
      ftruncateSync(this.#descriptor, this.#bytes);
    } catch {
      // The log itself says what is wrong with the disk. Half a slip is none: the next one begins a line of its own.
    }
    return false;
  }

  /** All that was noted is in the log. Where this fails they stay: whoever reads them finds them in the log. */
  clear(): void {
    if (this.#bytes === 0) return;
    try {
      ftruncateSync(this.#descriptor, 0);
      this.#bytes = 0;
    } catch {
      // The next time.
    }
  }

  /** Leaves nothing behind where nothing is noted. Never throws; a second time changes nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      const { ino, dev } = fstatSync(this.#descriptor);
      const there = statOf(this.#path);
      if (this.#bytes === 0 && there?.ino === ino && there.dev === dev) unlinkSync(this.#path);
    } catch {
      // Then an empty file stays.
    }
    try {
      closeSync(this.#descriptor);
    } catch {
      // Whatever the system says, it is closed.
    }
  }
}
