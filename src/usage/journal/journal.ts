import {
  closeSync,
  fchmodSync,
  fdatasync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { background } from "../../background.ts";
import type { Beat } from "../../beat.ts";
import type { Clock } from "../../clock.ts";
import type { ToolCarry } from "../../limits/replay.ts";
import type { Logger } from "../../logger.ts";
import { type Closing, type Opening, type UsageRecord, wholeRecord } from "../record.ts";
import { dayOf, identityOf, journalFiles, startOfDay, statOf } from "./files.ts";
import type { AckLine, AmendLine, HeadLine, KeyHeldLine, LiftLine, Line } from "./lines.ts";
import { PendingLines } from "./pending.ts";
import { restoreFrom } from "./restore.ts";

export interface JournalDeps {
  readonly folder: string;
  readonly clock: Clock;
  readonly beat: Beat;
  readonly log: Logger;
  /** full: a record survives a power cut before its request is sent. */
  readonly sync: "normal" | "full";
  /** What the limits know now: a new file starts with it. */
  readonly carry: () => readonly ToolCarry[];
  /** Gets the lines of the newest file, in order, when the journal is first opened. */
  readonly replay: (line: Line) => void;
  /** The replay is over. */
  readonly replayed: () => void;
  /** Something was appended. */
  readonly onAppend: () => void;
}

export interface JournalState {
  /** null: requests can be recorded. */
  readonly trouble: { readonly message: string; readonly since: number } | null;
  /** Lines that wait in memory until the disk takes them. */
  readonly waiting: number;
  /** Records of requests that may have reached a gateway, and found no room in memory. */
  readonly lost: number;
  /** Refusals that found none. */
  readonly refusalsLost: number;
  /** What last happened to the file while it was open; null: nothing. */
  readonly incident: string | null;
}

export type ResponseHead = Omit<HeadLine, "kind" | "id">;

interface OpenFile {
  readonly day: string;
  readonly path: string;
  readonly descriptor: number;
  readonly identity: string;
  /** Where the last good line ends. */
  offset: number;
  /** What stands at the end may be no whole line: begin the next one with a line break. */
  torn: boolean;
}

interface InFlight {
  readonly opening: Opening;
  head: ResponseHead | null;
}

const DAY_MS = 86_400_000;
/** More than this since the last check, and the file is checked at once: it is all written again if the file is gone. */
const MAX_RECENT_BYTES = 8 * 1024 * 1024;
const NEWLINE = 0x0a;

/**
 * Appends to the usage journal. An append is one write of one line, so it survives a crash of the process. Only the
 * daemon that holds the state lock has one.
 */
export class Journal {
  readonly #deps: JournalDeps;
  readonly #pending = new PendingLines();
  readonly #inFlight = new Map<string, InFlight>();
  readonly #endTicks: () => void;
  #file: OpenFile | null = null;
  /** The state of earlier runs was read. Until then nothing can be recorded. */
  #restored = false;
  #trouble: JournalState["trouble"] = null;
  /** Lines since the file was last seen in its place. */
  #recent: string[] = [];
  #recentBytes = 0;
  /** Lines of a file that is gone, to be written again before anything else. */
  #again: string | null = null;
  #last: { readonly id: string; readonly started_at: number } | null = null;
  readonly #lastUses = new Map<string, number>();
  /** The fdatasync that runs, and the one that starts after it. */
  #syncing: Promise<boolean> | null = null;
  #nextSync: Promise<boolean> | null = null;
  #incident: string | null = null;
  #lostAt: number | null = null;
  #stopped = false;

  constructor(deps: JournalDeps) {
    this.#deps = deps;
    this.#attempt(() => this.#restore());
    this.#endTicks = deps.beat.every(1, () => this.#everySecond());
  }

  /** Can a request be recorded now? */
  available(): boolean {
    return this.#restored && this.#trouble === null && !this.#stopped;
  }

  /** True once the line is written, with `sync: full` on the disk: only then may the request be sent. */
  async open(opening: Opening): Promise<boolean> {
    if (!this.available() || this.#inFlight.has(opening.id)) return false;
    if (!this.#append({ kind: "open", ...opening })) return false;
    this.#inFlight.set(opening.id, { opening, head: null });
    this.#noteUse(opening);
    return this.#deps.sync === "normal" || (await this.#synced(opening.id));
  }

  /** The head of the gateway's response arrived. */
  head(id: string, head: ResponseHead): void {
    const request = this.#inFlight.get(id);
    if (request === undefined || this.#trouble !== null) return;
    request.head = head;
    this.#append({ kind: "head", id, ...head });
  }

  /** Completes a record; a second time changes nothing. Waits in memory while the disk says no. */
  close(id: string, closing: Closing): void {
    const request = this.#inFlight.get(id);
    if (request === undefined) return;
    this.#appendOrKeep(wholeRecord(request.opening, closing), false);
    this.#inFlight.delete(id);
  }

  /** A request that ended before anything was sent to a gateway: its whole record at once. */
  add(opening: Opening, closing: Closing): void {
    if (this.#inFlight.has(opening.id)) {
      this.close(opening.id, closing);
      return;
    }
    const isWritten = this.#appendOrKeep(wholeRecord(opening, closing), closing.end === "refused");
    if (isWritten) this.#noteUse(opening);
  }

  /** All of them in one write. False: none was written. */
  append(...lines: readonly (AmendLine | LiftLine | AckLine | KeyHeldLine)[]): boolean {
    return this.available() && this.#append(...lines);
  }

  /** When a tool last sent a request; null: never, or before this was kept. */
  lastUse(tool: string): number | null {
    return this.#lastUses.get(tool) ?? null;
  }

  /** The newest record that is in the file. */
  last(): { readonly id: string; readonly started_at: number } | null {
    return this.#last;
  }

  /** When it was last noticed that the file was deleted, replaced or cut off while it was open; null: never. */
  lostAt(): number | null {
    return this.#lostAt;
  }

  /** The day of the file that lines go to now; null: none is open. */
  get day(): string | null {
    return this.#file?.day ?? null;
  }

  state(): JournalState {
    const { size, lost, refusalsLost } = this.#pending;
    return { trouble: this.#trouble, waiting: size, lost, refusalsLost, incident: this.#incident };
  }

  stop(): void {
    if (this.#stopped) return;
    this.#endTicks();
    this.#everySecond();
    this.#stopped = true;
    this.#pending.giveUp();
    this.#tellLosses();
    const descriptor = this.#file?.descriptor;
    if (this.#deps.sync === "full" && descriptor !== undefined) this.#attempt(() => fsyncSync(descriptor));
    this.#closeFile();
  }

  #everySecond(): void {
    this.#attempt(() => {
      if (!this.#restored) this.#restore();
      this.#checkFile();
      this.#writeAgain();
      const text = this.#pending.text();
      if (text !== "") this.#write(text);
      this.#pending.clear();
      // Only a write that succeeds shows that the disk is back.
      if (this.#trouble !== null && text === "") this.#write("\n");
      if (this.#trouble !== null) this.#deps.log.info("the usage log can be written again");
      this.#trouble = null;
    });
    this.#tellLosses();
  }

  /** Reads what earlier runs left, and completes what they could not. */
  #restore(): void {
    const { folder, replay, replayed } = this.#deps;
    makeFolder(folder);
    const { inFlight, carryIsWhole } = restoreFrom(folder, (line) => {
      replay(line);
      if (line.kind === "open" || line.kind === "close") this.#noteUse(line);
      if (line.kind === "carry" && "tool" in line && line.last_use !== null)
        this.#lastUses.set(line.tool, line.last_use);
    });
    const isNew = this.#openFile().offset === 0;
    const interrupted = inFlight.map(interruptedRecord);
    for (const record of interrupted) this.#write(textOf({ kind: "close", ...record }));
    // Replayed only once written: a write that fails is tried again, with everything before it.
    for (const record of interrupted) replay({ kind: "close", ...record });
    replayed();
    this.#restored = true;
    if (isNew || !carryIsWhole) this.#write(this.#carryText());
  }

  #noteUse({ id, started_at, tool }: Pick<Opening, "id" | "started_at" | "tool">): void {
    this.#last = { id, started_at };
    if (tool !== null) this.#lastUses.set(tool, started_at);
  }

  #append(...lines: readonly object[]): boolean {
    return this.#attempt(() => {
      this.#rollOver();
      this.#write(lines.map(textOf).join(""));
    });
  }

  /** False: it waits in memory. */
  #appendOrKeep(record: UsageRecord, isRefusal: boolean): boolean {
    if (this.#stopped) return false;
    const line = { kind: "close", ...record };
    // While lines wait, later ones wait behind them.
    if (this.#trouble === null && this.#restored && this.#append(line)) return true;
    this.#pending.add(textOf(line), isRefusal);
    return false;
  }

  /** Runs what the disk may refuse, and remembers that it did. */
  #attempt(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      const message = diskMessage(error, this.#deps.folder);
      if (this.#trouble?.message !== message)
        this.#deps.log.error(
          { reason: message },
          "the usage log cannot be written: requests are refused until it can",
        );
      this.#trouble = { message, since: this.#trouble?.since ?? this.#deps.clock.now() };
      return false;
    }
  }

  /** One write. A disk that is full writes a part and reports no error: that part is removed again. */
  #write(text: string): void {
    const file = this.#file ?? this.#openFile();
    const bytes = Buffer.from(file.torn ? `\n${text}` : text);
    const written = writeSync(file.descriptor, bytes);
    if (written !== bytes.length) {
      file.torn = true;
      ftruncateSync(file.descriptor, file.offset);
      file.torn = false;
      throw Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    }
    file.torn = false;
    file.offset += written;
    this.#recent.push(text);
    this.#recentBytes += written;
    if (this.#recentBytes > MAX_RECENT_BYTES) this.#checkFile();
    this.#deps.onAppend();
  }

  /** Starts the next day's file. A clock that was set back changes nothing: the newest file stays the current one. */
  #rollOver(): void {
    const file = this.#file;
    if (file === null || this.#deps.clock.now() < startOfDay(file.day) + DAY_MS) return;
    this.#openFile();
    this.#write(this.#carryText());
  }

  /** What a start needs to know from the files before this one. */
  #carryText(): string {
    const carries = this.#deps.carry();
    const lines: object[] = [{ kind: "carry", tools: carries.length }];
    for (const carry of carries)
      lines.push({ kind: "carry", ...carry, last_use: this.#lastUses.get(carry.tool) ?? null });
    for (const [id, { opening, head }] of this.#inFlight) {
      lines.push({ kind: "open", ...opening });
      if (head !== null) lines.push({ kind: "head", id, ...head });
    }
    return lines.map(textOf).join("");
  }

  /** Whether the open file is still the one at its path. If not, what went into it lately is written again. */
  #checkFile(): void {
    const file = this.#file;
    if (file === null) return;
    const found = statOf(file.path);
    if (found !== null && found.identity === file.identity && found.size >= file.offset) {
      // Somebody else appended.
      if (found.size > file.offset) file.torn = true;
      file.offset = found.size;
      this.#recent = [];
      this.#recentBytes = 0;
      return;
    }
    const what = found === null ? "deleted" : found.identity === file.identity ? "cut off" : "replaced";
    const incident = `${file.path} was ${what} while it was open`;
    if (this.#incident !== incident) this.#deps.log.error(incident);
    this.#incident = incident;
    this.#openFile();
    this.#lostAt = this.#deps.clock.now();
    this.#again = (this.#again ?? "") + this.#recent.join("");
    this.#recent = [];
    this.#recentBytes = 0;
    this.#writeAgain();
  }

  #writeAgain(): void {
    if (this.#again === null) return;
    this.#write(this.#again + this.#carryText());
    this.#again = null;
  }

  #openFile(): OpenFile {
    const { folder, clock, sync } = this.#deps;
    makeFolder(folder);
    const newest = journalFiles(folder).at(-1)?.day ?? "";
    const today = dayOf(clock.now());
    const day = newest > today ? newest : today;
    const path = join(folder, `${day}.jsonl`);
    const descriptor = openSync(path, "a+", 0o600);
    // What the umask left, or an earlier chmod.
    fchmodSync(descriptor, 0o600);
    const found = fstatSync(descriptor);
    const torn = found.size > 0 && !endsWithNewline(descriptor, found.size);
    if (sync === "full") syncFolder(folder);
    this.#closeFile();
    this.#file = { day, path, descriptor, identity: identityOf(found), offset: found.size, torn };
    return this.#file;
  }

  #closeFile(): void {
    const descriptor = this.#file?.descriptor;
    this.#file = null;
    if (descriptor === undefined) return;
    // Not while the system still works on it: the number would name another file.
    if (this.#syncing === null) closeSync(descriptor);
    else
      background(
        this.#syncing.then(() => closeSync(descriptor)),
        this.#deps.log,
        "closing the usage log",
      );
  }

  /** All lines written by now are on the disk. Requests that arrive together share one fdatasync. */
  async #synced(id: string): Promise<boolean> {
    let synced: Promise<boolean>;
    if (this.#syncing === null) synced = this.#sync();
    else {
      this.#nextSync ??= this.#syncing.then(() => this.#sync());
      synced = this.#nextSync;
    }
    if (await synced) return true;
    // It is not sent, and so its record must not look as if it had been.
    this.#inFlight.delete(id);
    return false;
  }

  async #sync(): Promise<boolean> {
    this.#nextSync = null;
    const descriptor = this.#file?.descriptor;
    if (descriptor === undefined) return false;
    const running = fdatasyncAsync(descriptor).then(
      () => true,
      (error: unknown) => {
        this.#attempt(() => {
          throw error;
        });
        return false;
      },
    );
    this.#syncing = running;
    const done = await running;
    if (this.#syncing === running) this.#syncing = null;
    return done;
  }

  #tellLosses(): void {
    const { records, refusals } = this.#pending.newLosses();
    if (records > 0) this.#deps.log.error({ records }, "usage records were lost");
    if (refusals > 0) this.#deps.log.warn({ refusals }, "refusals were not recorded");
  }
}

const fdatasyncAsync = promisify(fdatasync);

function textOf(line: object): string {
  return `${JSON.stringify(line)}\n`;
}

function endsWithNewline(descriptor: number, size: number): boolean {
  const last = Buffer.alloc(1);
  readSync(descriptor, last, 0, 1, size - 1);
  return last[0] === NEWLINE;
}

/** Not the folder it lies in: where that is gone, it may come back. */
function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/** A new file's name is on the disk, too. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** What is known of a request whose process ended before it did. */
function interruptedRecord({ opening, head }: InFlight): UsageRecord {
  return wholeRecord(opening, {
    first_byte_at: head?.first_byte_at ?? null,
    ended_at: null,
    model: null,
    model_answered: null,
    stream: null,
    status: head?.status ?? null,
    end: "interrupted",
    cause: null,
    refusal: null,
    input_tokens: null,
    cache_read_tokens: null,
    cache_write_tokens: null,
    output_tokens: null,
    reasoning_tokens: null,
    tokens_from: "none",
    list_microdollars: null,
    cost_microdollars: null,
    bytes_in: 0,
    bytes_out: 0,
    counts: null,
    counted_tokens: null,
    counted_microdollars: null,
    gateway_ids: head?.gateway_ids ?? {},
  });
}

function diskMessage(error: unknown, folder: string): string {
  const { code } = error as NodeJS.ErrnoException;
  switch (code) {
    case "ENOSPC":
    case "EDQUOT":
      return "the disk is full";
    case "EROFS":
      return "the disk is read-only";
    case "EACCES":
    case "EPERM":
      return `${folder} cannot be written to`;
    case "ENOENT":
      return `the folder of ${folder} is gone`;
    case "ENOTDIR":
    case "EISDIR":
      return `there is something else in the place of ${folder}`;
    case undefined:
      // No error of the system: a bug, which must not hide.
      throw error;
    default:
      return `the system says ${code}`;
  }
}
