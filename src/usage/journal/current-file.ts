import {
  closeSync,
  constants,
  fchmodSync,
  fdatasync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "../../core/clock.ts";
import { hasCode } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { ForeignFile, openOwnFile, setAside } from "../../core/own-file.ts";
import {
  CHUNK_BYTES,
  dayFileName,
  dayOf,
  endOfDay,
  identityOf,
  journalFiles,
  NEWLINE,
  readStat,
  setAsideFuture,
} from "./files.ts";

export interface CurrentFileDeps {
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** full: a record survives a power cut before its request is sent. */
  readonly sync: "normal" | "full";
  /** The newest day that the index has read: a file up to that day is ours, whatever the clock says. Default null: none. */
  readonly indexedDay?: (() => string | null) | undefined;
  /** Called after each append. Must not throw. */
  readonly onAppend: () => void;
}

/** After this many bytes the file is checked at once. What was appended since the last check is kept, to be repeated. */
const MAX_RECENT_BYTES = 8 * 1024 * 1024;
/** Memory for what is kept, on an idle machine. */
const MIN_RECENT_BYTES = 64 * 1024;

/**
 * The file that lines go to: today's, or the newest one if the clock was set back. If the file is deleted, replaced or cut
 * off while it is open, the lines since the last check are repeated. Errors of the disk are thrown.
 */
export class CurrentFile {
  readonly #deps: CurrentFileDeps;
  readonly #carryText: () => string;
  #file: DayFile | null = null;
  /** The file lacks the carry lines, which hold what a start needs from the files before it. */
  #needsCarry = false;
  /** The lines since the last check. */
  readonly #recent = new RecentLines();
  /** Lines that may be lost. They are repeated before anything else is written. */
  #repeat = "";
  #problem: string | null = null;
  #lostAt: number | null = null;

  /** @param carryText the carry lines as they are now. */
  constructor(deps: CurrentFileDeps, carryText: () => string) {
    this.#deps = deps;
    this.#carryText = carryText;
  }

  /** null: no file is open. */
  get day(): string | null {
    return this.#file?.day ?? null;
  }

  /** What last happened to the file while it was open; null: nothing. */
  get problem(): string | null {
    return this.#problem;
  }

  /** When it was last noticed that the open file had been replaced or cut off; null: never. */
  get lostAt(): number | null {
    return this.#lostAt;
  }

  open(): DayFile {
    const { folder, clock } = this.#deps;
    makeFolder(folder);
    const today = dayOf(clock.now());
    // A file from far ahead would be the current one for years, and its carry lines would decide what was used.
    const indexed = () => this.#deps.indexedDay?.() ?? null;
    for (const problem of setAsideFuture(folder, clock.now(), this.#file?.day ?? null, indexed))
      this.#report(problem);
    const newest = journalFiles(folder).at(-1)?.day ?? "";
    const file = this.#openDay(newest > today ? newest : today);
    this.#file?.close();
    this.#file = file;
    this.#needsCarry ||= file.isNew;
    return file;
  }

  /** What is there instead of a file of the journal, such as a link, is set aside. */
  #openDay(day: string): DayFile {
    const { folder, clock, sync } = this.#deps;
    try {
      return new DayFile(folder, day, sync);
    } catch (error) {
      if (!(error instanceof ForeignFile)) throw error;
      const kept = setAside(join(folder, dayFileName(day)), clock.now());
      this.#report(`${error.message}: it was set aside as ${kept}`);
      return new DayFile(folder, day, sync);
    }
  }

  /** Logged once, and shown in `status` until something else happens. */
  #report(problem: string): void {
    if (this.#problem !== problem) this.#deps.log.error(problem);
    this.#problem = problem;
  }

  append(text: string): void {
    this.#rollOver();
    this.#appendHere(text);
  }

  #appendHere(text: string): void {
    this.write(text);
    if (this.#recent.length > MAX_RECENT_BYTES) this.check();
  }

  /** Appends, unless another file or carry lines are due first. False: nothing was written. */
  appendIfSameFile(text: string): boolean {
    if (this.#needsCarry || this.#isOver()) return false;
    this.#appendHere(text);
    return true;
  }

  /** Appends to the open file, even if its day is over. */
  write(text: string): void {
    const file = this.#file ?? this.open();
    const bytes = this.#recent.add(text);
    try {
      file.append(bytes);
    } catch (error) {
      this.#recent.drop(bytes.length);
      throw error;
    }
    this.#deps.onAppend();
  }

  /** @param isRequired false: only if the file lacks them. */
  writeCarry(isRequired = false): void {
    this.#needsCarry ||= isRequired;
    if (!this.#needsCarry) return;
    this.write(this.#carryText());
    this.#needsCarry = false;
  }

  /** Checks that the open file is still the one at its path, and that its day is not over. To be called once a second. */
  check(): void {
    if (this.#file !== null) this.#checkFile(this.#file);
    this.#recent.clear();
    this.#writeRepeat();
    this.#rollOver();
  }

  /** Resolves once everything written by now is on the disk. */
  async sync(): Promise<void> {
    try {
      await this.#file?.sync();
    } catch (error) {
      // After a failed fdatasync, Linux drops what it could not write.
      this.#repeat += this.#recent.text();
      throw error;
    }
  }

  /** Like sync(), for a process that is about to end. */
  syncNow(): void {
    this.#file?.syncNow();
  }

  close(): void {
    this.#file?.close();
    this.#file = null;
  }

  #checkFile(file: DayFile): void {
    const found = file.check();
    if (found === "appended to")
      this.#report(
        `another program writes to the usage log: ${file.path} has lines that keybearer did not write`,
      );
    else if (found !== null) this.#recover(file, found);
  }

  #recover(file: DayFile, displaced: "deleted" | "replaced" | "cut off"): void {
    this.#report(`${file.path} was ${displaced} while it was open`);
    makeFolder(this.#deps.folder);
    if (displaced === "deleted") {
      file.putBack();
      this.open();
      return;
    }
    this.#repeat += this.#recent.text();
    this.open();
    this.#lostAt = this.#deps.clock.now();
    this.#needsCarry = true;
  }

  #isOver(): boolean {
    return this.#file !== null && this.#deps.clock.now() >= this.#file.ends;
  }

  #rollOver(): void {
    if (this.#isOver()) this.open();
    this.writeCarry();
  }

  #writeRepeat(): void {
    if (this.#repeat === "") return;
    this.write(this.#repeat);
    this.#repeat = "";
  }
}

/**
 * Lines as bytes, one after the other. As strings they would be trees of hundreds of pieces that live for a second, and a
 * sixth of all garbage collection would be about them.
 */
class RecentLines {
  #bytes = Buffer.allocUnsafe(MIN_RECENT_BYTES);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** @param lines ASCII, so that each character is one byte. Returns their bytes, which are valid until the next call. */
  add(lines: string): Buffer {
    const end = this.#length + lines.length;
    if (end > this.#bytes.length) this.#grow(end);
    this.#bytes.write(lines, this.#length, "latin1");
    const added = this.#bytes.subarray(this.#length, end);
    this.#length = end;
    return added;
  }

  /** Forgets the last bytes. */
  drop(count: number): void {
    this.#length -= count;
  }

  text(): string {
    return this.#bytes.toString("latin1", 0, this.#length);
  }

  clear(): void {
    if (this.#bytes.length > MIN_RECENT_BYTES && this.#length < MIN_RECENT_BYTES)
      this.#bytes = Buffer.allocUnsafe(MIN_RECENT_BYTES);
    this.#length = 0;
  }

  #grow(needed: number): void {
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, needed));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** Not its parents: if those are gone, a disk may be unmounted, and will come back. */
function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

const fdatasyncAsync = promisify(fdatasync);
const { O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_WRONLY } = constants;

const LINE_BREAK = Buffer.from("\n");

/** One file of the journal, open for appending. */
class DayFile {
  readonly day: string;
  readonly path: string;
  /** When its day is over, milliseconds UTC. */
  readonly ends: number;
  /** It was empty when it was opened. */
  readonly isNew: boolean;
  readonly #descriptor: number;
  readonly #identity: string;
  /** Where the last whole line ends. */
  #offset: number;
  /** The file may not end with a whole line, so the next append begins with a line break. */
  #torn: boolean;
  /** The running fdatasync, and the one that starts after it. */
  #syncing: Promise<void> | null = null;
  #nextSync: Promise<void> | null = null;

  /** @param sync full: the file's name must be on the disk, too. */
  constructor(folder: string, day: string, sync: "normal" | "full") {
    this.day = day;
    this.path = join(folder, dayFileName(day));
    this.ends = endOfDay(day);
    this.#descriptor = openOwnFile(this.path, O_RDWR | O_APPEND | O_CREAT);
    try {
      // An earlier chmod may have changed it.
      fchmodSync(this.#descriptor, 0o600);
      const found = fstatSync(this.#descriptor);
      this.isNew = found.size === 0;
      this.#identity = identityOf(found);
      this.#offset = found.size;
      this.#torn = found.size > 0 && !this.#endsWithNewline();
      if (sync === "full" && this.isNew) syncFolder(folder);
    } catch (error) {
      closeSync(this.#descriptor);
      throw error;
    }
  }

  /** One write. A full disk writes a part and reports no error: that part is removed again. */
  append(lines: Buffer): void {
    const bytes = this.#torn ? Buffer.concat([LINE_BREAK, lines]) : lines;
    const written = writeSync(this.#descriptor, bytes);
    if (written !== bytes.length) {
      this.#torn = true;
      ftruncateSync(this.#descriptor, this.#offset);
      this.#torn = false;
      throw diskFull();
    }
    this.#torn = false;
    this.#offset += written;
  }

  /** What another program did to the file at its path since the last check; null: nothing. */
  check(): "deleted" | "replaced" | "cut off" | "appended to" | null {
    const found = readStat(this.path);
    if (found === null) return "deleted";
    if (found.identity !== this.#identity) return "replaced";
    if (found.size < this.#offset) return "cut off";
    if (found.size === this.#offset) return null;
    this.#torn = true;
    this.#offset = found.size;
    return "appended to";
  }

  /** Resolves once everything appended by now is on the disk. Calls that come together share one fdatasync. */
  sync(): Promise<void> {
    if (this.#syncing === null) return this.#startSync();
    this.#nextSync ??= this.#syncing.then(
      () => this.#startSync(),
      () => this.#startSync(),
    );
    return this.#nextSync;
  }

  /** Like sync(), for a process that is about to end. */
  syncNow(): void {
    fsyncSync(this.#descriptor);
  }

  close(): void {
    const close = () => closeSync(this.#descriptor);
    const lastSync = this.#nextSync ?? this.#syncing;
    // A descriptor that is closed during its fdatasync may name another file by then.
    if (lastSync === null) close();
    else lastSync.then(close, close);
  }

  /** Puts a copy of the open file at its path, from which it was deleted. */
  putBack(): void {
    const temporary = `${this.path}.tmp`;
    rmSync(temporary, { force: true });
    const copy = openOwnFile(temporary, O_WRONLY | O_CREAT | O_EXCL);
    try {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      for (let at = 0; ; ) {
        const length = readSync(this.#descriptor, chunk, 0, CHUNK_BYTES, at);
        if (length === 0) break;
        if (writeSync(copy, chunk, 0, length) !== length) throw diskFull();
        at += length;
      }
      fsyncSync(copy);
      renameSync(temporary, this.path);
    } catch (error) {
      rmSync(temporary, { force: true });
      throw error;
    } finally {
      closeSync(copy);
    }
  }

  async #startSync(): Promise<void> {
    this.#nextSync = null;
    const syncing = fdatasyncAsync(this.#descriptor);
    this.#syncing = syncing;
    try {
      await syncing;
    } finally {
      if (this.#syncing === syncing) this.#syncing = null;
    }
  }

  #endsWithNewline(): boolean {
    const last = Buffer.alloc(1);
    readSync(this.#descriptor, last, 0, 1, this.#offset - 1);
    return last[0] === NEWLINE;
  }
}

/** The error that the system reports when it reports a full disk at all. */
function diskFull(): Error {
  return Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
}

/** Makes sure that the names in a folder are on the disk. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
