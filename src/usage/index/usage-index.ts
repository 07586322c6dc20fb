import { statSync } from "node:fs";
import {
  endOfDay,
  type JournalFile,
  journalFiles,
  readLines,
  readStat,
  startOfDay,
} from "../journal/files.ts";
import { parseLine } from "../journal/lines.ts";
import { isSamePosition, nextLines, type Position, positionIn } from "../journal/position.ts";
import {
  type Connection,
  createIndex,
  findDamage,
  IndexError,
  openIndex,
  toIndexError,
  transact,
} from "./database.ts";
import { extendDigest, folderIdentity } from "./journal-digest.ts";
import { IndexWriter } from "./writer.ts";

/** How much of the journal is in the index. */
export interface Progress {
  /** From 0 to 1, by bytes. */
  readonly share: number;
  /** It was created or rebuilt since it was opened. */
  readonly rebuilding: boolean;
  /** Lines of the journal that could not be read. */
  readonly damagedLines: number;
  readonly position: Position | null;
}

export interface IndexOptions {
  /** index.db */
  readonly file: string;
  /** The journal's. */
  readonly folder: string;
}

/**
 * The index, as its one writer has it open: the daemon's thread, or a command while no daemon runs. It reads the journal
 * itself. Each batch of lines is applied in one transaction together with the position after it. So every line is applied
 * exactly once, even if the process is killed in between.
 */
export class UsageIndex {
  readonly #options: IndexOptions;
  #connection: Connection | null = null;
  #writer: IndexWriter | null = null;
  /** The stamp of index.db after the last write. If the file has another one, another program wrote to it. */
  #stamp: string | null;
  #rebuilding = false;
  /** As last read or written, so that progress() can answer while the index is locked. */
  #position: Position | null = null;
  #damagedLines = 0;

  /** @param stamp what an earlier run left; null: the file is checked for damage first. */
  constructor(options: IndexOptions, stamp: string | null) {
    this.#options = options;
    this.#stamp = stamp;
  }

  get stamp(): string | null {
    return this.#stamp;
  }

  /**
   * Applies the lines that the index does not have yet, a batch at each step. Rebuilds the index if it is missing, damaged
   * or of another version. Throws an IndexError (busy, disk) if it has to wait.
   */
  *catchUp(): Generator<void> {
    try {
      const writer = this.#open();
      this.#removeOldDays(writer);
      yield* this.#applyLines(writer);
      if (writer.meta("complete") === null) {
        writer.setMeta("complete", "yes");
        this.#stamp = readStamp(this.#options.file);
      }
    } catch (error) {
      throw this.#failed(error);
    }
  }

  *#applyLines(writer: IndexWriter): Generator<void> {
    for (;;) {
      const next = nextLines(this.#options.folder, writer.position());
      if (next === null) return;
      const { file, offset, finished } = next;
      // A file that is read from its beginning may be another one than before.
      let digest = offset === 0 ? null : writer.digest();
      for (const { texts, end, last } of readLines(file, offset, finished)) {
        const position = positionIn(file, end, last && finished);
        // An index that is up to date is not written to, so that it does not matter if another program has locked it.
        if (texts.length === 0 && isSamePosition(position, this.#position)) continue;
        const damaged = transact(this.#db(), () => {
          const damaged = writer.apply(texts, file.day);
          if (damaged > 0) writer.setMeta("damaged_lines", String(this.#damagedLines + damaged));
          writer.setPosition(position);
          digest = extendDigest(digest, file, end);
          writer.setDigest(digest);
          return damaged;
        });
        this.#position = position;
        this.#damagedLines += damaged;
        this.#stamp = readStamp(this.#options.file);
        yield;
      }
      if (!finished) return;
    }
  }

  /** Creates the index again and applies the whole journal. */
  *rebuild(): Generator<void> {
    try {
      this.#create();
    } catch (error) {
      throw this.#failed(error);
    }
    yield* this.catchUp();
  }

  progress(): Progress {
    return {
      share: shareBefore(this.#options.folder, this.#position),
      rebuilding: this.#rebuilding,
      damagedLines: this.#damagedLines,
      position: this.#position,
    };
  }

  close(): void {
    const { file } = this.#options;
    // Closing writes to the file. If another program changed it before, the next run must check it.
    const isKnown = readStamp(file) === this.#stamp;
    this.#connection?.close();
    this.#connection = null;
    this.#writer = null;
    this.#stamp = isKnown ? readStamp(file) : null;
  }

  #db() {
    if (this.#connection === null) throw new Error("the index is not open");
    return this.#connection.db;
  }

  #open(): IndexWriter {
    const { file } = this.#options;
    const isKnown = this.#stamp !== null && readStamp(file) === this.#stamp;
    if (this.#writer !== null && isKnown) return this.#writer;
    this.#connection?.close();
    this.#connection = null;
    try {
      const writer = this.#use(openIndex(file));
      const damage = isKnown ? null : findDamage(this.#db(), "usage", file);
      if (damage !== null) throw new IndexError("corrupt", damage);
      if (writer.meta("folder") !== folderIdentity(this.#options.folder))
        throw new IndexError("outdated", "it belongs to another journal");
      return writer;
    } catch (error) {
      const indexError = toIndexError(error);
      const isUseless =
        indexError instanceof IndexError && ["missing", "outdated", "corrupt"].includes(indexError.kind);
      if (!isUseless) throw indexError;
      return this.#create();
    }
  }

  #create(): IndexWriter {
    this.#connection?.close();
    const writer = this.#use(createIndex(this.#options.file));
    writer.setMeta("folder", folderIdentity(this.#options.folder));
    this.#rebuilding = true;
    this.#stamp = readStamp(this.#options.file);
    return writer;
  }

  #use(connection: Connection): IndexWriter {
    // Kept first, so that #failed() closes it if its tables turn out to be wrong.
    this.#connection = connection;
    const writer = new IndexWriter(connection.db);
    this.#writer = writer;
    this.#position = writer.position();
    // Checked here, where a wrong one causes a rebuild.
    writer.digest();
    this.#damagedLines = Number(writer.meta("damaged_lines") ?? 0);
    this.#rebuilding = false;
    return writer;
  }

  #failed(error: unknown): unknown {
    const indexError = toIndexError(error);
    this.#connection?.close();
    this.#connection = null;
    this.#writer = null;
    // Without a stamp, the next run checks the whole file and rebuilds it.
    if (indexError instanceof IndexError && indexError.kind === "corrupt") this.#stamp = null;
    return indexError;
  }

  #removeOldDays(writer: IndexWriter): void {
    const oldest = journalFiles(this.#options.folder)[0];
    // A journal always has a file, so the folder is missing.
    if (oldest === undefined) return;
    const before = writer.meta("oldest_day");
    // An empty file is about to get its first lines.
    if (before === oldest.day || readStat(oldest.path)?.size === 0) return;
    transact(this.#db(), () => {
      const removed = writer.removeBefore(oldest.day);
      const keptFrom = before === null ? firstKept(oldest) : removed && endOfDay(removed);
      if (keptFrom !== null) writer.setMeta("kept_from", String(keptFrom));
      writer.setMeta("oldest_day", oldest.day);
    });
    this.#stamp = readStamp(this.#options.file);
  }
}

/**
 * The time from which a journal that is read for the first time is complete; null: it always was, because nothing was
 * carried into its oldest file.
 */
function firstKept(oldest: JournalFile): number | null {
  const [lines] = readLines(oldest, 0, true);
  const [first] = lines?.texts ?? [];
  const line = first === undefined ? null : parseLine(first);
  const isFirstFile = line?.kind === "carry" && "tools" in line && line.tools === 0;
  return isFirstFile ? null : startOfDay(oldest.day);
}

/** How much of the journal is before a position, by bytes. */
function shareBefore(folder: string, position: Position | null): number {
  let done = 0;
  let total = 0;
  for (const file of journalFiles(folder)) {
    const size = readStat(file.path)?.size ?? 0;
    total += size;
    if (position === null) continue;
    if (file.day < position.day || (file.day === position.day && position.passed)) done += size;
    else if (file.day === position.day) done += Math.min(size, position.offset);
  }
  return total === 0 ? 1 : done / total;
}

/** Changes whenever the file is written to or replaced. */
export function readStamp(file: string): string | null {
  const found = statSync(file, { throwIfNoEntry: false });
  return found === undefined ? null : [found.dev, found.ino, found.size, found.mtimeMs].join(" ");
}
