import {
  closeSync,
  fchmodSync,
  fdatasync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { identityOf, startOfDay, statOf } from "./files.ts";

const DAY_MS = 86_400_000;
const NEWLINE = 0x0a;
const COPY_BYTES = 1024 * 1024;
const fdatasyncAsync = promisify(fdatasync);

/** One file of the journal, open to be appended to. What the disk refuses is thrown. */
export class DayFile {
  readonly day: string;
  readonly path: string;
  /** When its day is over, milliseconds UTC. */
  readonly ends: number;
  /** It had nothing in it when it was opened. */
  readonly isNew: boolean;
  readonly #descriptor: number;
  readonly #identity: string;
  /** Where the last whole line ends. */
  #offset: number;
  /** What stands at the end may not be a whole line: the next one begins with a line break. */
  #torn: boolean;
  /** The fdatasync that runs, and the one that starts after it. */
  #syncing: Promise<void> | null = null;
  #nextSync: Promise<void> | null = null;

  /** @param sync the file's name must be on the disk, too. */
  constructor(folder: string, day: string, sync: "normal" | "full") {
    this.day = day;
    this.path = join(folder, `${day}.jsonl`);
    this.ends = startOfDay(day) + DAY_MS;
    this.#descriptor = openSync(this.path, "a+", 0o600);
    try {
      // What the umask left, or an earlier chmod.
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

  /** One write. A disk that is full writes a part and reports no error: that part is removed again. */
  append(text: string): void {
    const bytes = Buffer.from(this.#torn ? `\n${text}` : text);
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

  /** What happened to the file at its path since it was opened; null: nothing. */
  displaced(): "deleted" | "replaced" | "cut off" | null {
    const found = statOf(this.path);
    if (found === null) return "deleted";
    if (found.identity !== this.#identity) return "replaced";
    if (found.size < this.#offset) return "cut off";
    // Somebody else appended.
    if (found.size > this.#offset) this.#torn = true;
    this.#offset = found.size;
    return null;
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

  /** The same for a process that is about to end. */
  syncNow(): void {
    fsyncSync(this.#descriptor);
  }

  close(): void {
    const close = () => closeSync(this.#descriptor);
    const lastSync = this.#nextSync ?? this.#syncing;
    // Not while the system still works on it: the number might name another file by then.
    if (lastSync === null) close();
    else lastSync.then(close, close);
  }

  /** The file was deleted, but is still open: puts a copy of it in its place. */
  putBack(): void {
    const temporary = `${this.path}.tmp`;
    const copy = openSync(temporary, "w", 0o600);
    try {
      const chunk = Buffer.allocUnsafe(COPY_BYTES);
      for (let at = 0; ; ) {
        const length = readSync(this.#descriptor, chunk, 0, COPY_BYTES, at);
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

/** As the system says it where it says it at all. */
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
