import { mkdirSync } from "node:fs";
import type { Clock } from "../../core/clock.ts";
import { errorCode, hasCode } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import type { Ticker } from "../../core/ticker.ts";
import type { ToolCarry } from "../../limits/replay.ts";
import { type Closing, NOT_CLOSED, type Opening, type UsageRecord, wholeRecord } from "../record.ts";
import { DayFile } from "./day-file.ts";
import { dayOf, journalFiles } from "./files.ts";
import type { AckLine, AmendLine, HeadLine, KeyHeldLine, LiftLine, Line } from "./lines.ts";
import { PendingLines } from "./pending.ts";
import { restoreFrom } from "./restore.ts";

export interface JournalDeps {
  readonly folder: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  /** full: a record survives a power cut before its request is sent. */
  readonly sync: "normal" | "full";
  /** What the limits know now: a new file starts with it. */
  readonly carry: () => readonly ToolCarry[];
  /** The limits get the lines of the newest file, in order, when the journal is first opened. */
  readonly startReplay: () => void;
  readonly replay: (line: Line) => void;
  readonly endReplay: () => void;
  /** Something was appended. Must not throw. */
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

interface InFlight {
  readonly opening: Opening;
  head: ResponseHead | null;
}

/** More than this since the last check, and the file is checked at once: it is all written again if the file is gone. */
const MAX_RECENT_BYTES = 8 * 1024 * 1024;

/**
 * Appends to the usage journal. An append is one write of one line, so it survives a crash of the process. Only the
 * daemon that holds the state lock has one.
 */
export class Journal {
  readonly #deps: JournalDeps;
  /** Close lines that the disk refused. They are written once it is back. */
  readonly #pending = new PendingLines();
  readonly #inFlight = new Map<string, InFlight>();
  /** The requests whose head line is still to be written in this turn of the event loop. */
  #newHeads: string[] = [];
  readonly #endTicks: () => void;
  #file: DayFile | null = null;
  /** The state of earlier runs was read. Until then nothing can be recorded. */
  #restored = false;
  #trouble: JournalState["trouble"] = null;
  /** Lines since the file was last seen in its place, every second. */
  #recent: string[] = [];
  #recentBytes = 0;
  /** Lines that went into a file that was replaced or cut off. They are written again before anything else. */
  #again = "";
  /** The file lacks the lines that a start needs from the files before it. */
  #needsCarry = false;
  #last: { readonly id: string; readonly started_at: number } | null = null;
  readonly #lastUses = new Map<string, number>();
  #incident: string | null = null;
  #lostAt: number | null = null;
  #stopped = false;

  constructor(deps: JournalDeps) {
    this.#deps = deps;
    this.#attempt(() => this.#restore());
    this.#endTicks = deps.ticker.every(1, () => this.#everySecond());
  }

  /** Can a request be recorded now? */
  available(): boolean {
    return this.#restored && this.#trouble === null && !this.#stopped;
  }

  /** True once the line is written, with `sync: full` on the disk: only then may the request be sent. */
  async open(opening: Opening): Promise<boolean> {
    if (!this.available() || this.#inFlight.has(opening.id)) return false;
    if (!this.#append(lineOf("open", opening))) return false;
    this.#inFlight.set(opening.id, { opening, head: null });
    this.#noteUse(opening);
    return this.#deps.sync === "normal" || (await this.#synced(opening.id));
  }

  /**
   * The head of the gateway's response arrived. The line for a stream is written at once, before the client sees the head.
   * Any other response mostly arrives whole, and the close line repeats the head: so its line waits for the end of this turn
   * of the event loop, and is left out if the request is closed by then.
   */
  head(id: string, head: ResponseHead, isStream: boolean): void {
    const request = this.#inFlight.get(id);
    if (request === undefined) return;
    request.head = head;
    this.#newHeads.push(id);
    if (isStream) this.#writeHeads();
    else if (this.#newHeads.length === 1) setImmediate(() => this.#writeHeads());
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
    return this.available() && this.#append(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
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
    this.#writeHeads();
    this.#stopped = true;
    this.#pending.giveUp();
    this.#tellLosses();
    if (this.#deps.sync === "full") this.#attempt(() => this.#file?.syncNow());
    this.#file?.close();
    this.#file = null;
  }

  #everySecond(): void {
    this.#attempt(() => {
      if (!this.#restored) this.#restore();
      this.#checkFile();
      this.#rollOver();
      this.#writeAgain();
      const text = this.#pending.text();
      if (text !== "") this.#write(text);
      this.#pending.clear();
      if (this.#trouble !== null) this.#endTrouble(text !== "");
    });
    this.#tellLosses();
  }

  /** Only a write that succeeds shows that the disk is back. */
  #endTrouble(hasWritten: boolean): void {
    if (!hasWritten) this.#write("\n");
    if (this.#deps.sync === "full") this.#file?.syncNow();
    this.#trouble = null;
    this.#deps.log.info("the usage log can be written again");
  }

  /** Reads what earlier runs left, and completes what they could not. If it fails, the next attempt begins again. */
  #restore(): void {
    const { folder, startReplay, replay, endReplay } = this.#deps;
    this.#openFile();
    startReplay();
    const { inFlight, carryIsWhole } = restoreFrom(folder, (line) => {
      replay(line);
      if (line.kind === "open" || line.kind === "close") this.#noteUse(line);
      if (line.kind === "carry" && "tool" in line && line.last_use !== null)
        this.#lastUses.set(line.tool, line.last_use);
    });
    for (const one of inFlight) {
      const record = interruptedRecord(one);
      this.#write(lineOf("close", record));
      replay({ kind: "close", ...record });
    }
    endReplay();
    this.#restored = true;
    this.#needsCarry ||= !carryIsWhole;
    this.#writeCarry();
  }

  #noteUse({ id, started_at, tool }: Pick<Opening, "id" | "started_at" | "tool">): void {
    // The lines of a request in flight are repeated in a new file.
    if (this.#last === null || id > this.#last.id) this.#last = { id, started_at };
    if (tool !== null) this.#lastUses.set(tool, Math.max(started_at, this.#lastUses.get(tool) ?? 0));
  }

  #writeHeads(): void {
    let text = "";
    for (const id of this.#newHeads) {
      const head = this.#inFlight.get(id)?.head;
      if (head) text += lineOf("head", { id, ...head });
    }
    this.#newHeads = [];
    if (text !== "" && this.available()) this.#append(text);
  }

  #append(text: string): boolean {
    return this.#attempt(() => {
      this.#rollOver();
      this.#write(text);
      if (this.#recentBytes > MAX_RECENT_BYTES) this.#checkFile();
    });
  }

  /** False: it waits in memory. */
  #appendOrKeep(record: UsageRecord, isRefusal: boolean): boolean {
    if (this.#stopped) return false;
    const text = lineOf("close", record);
    // While lines wait, later ones wait behind them.
    if (this.#trouble === null && this.#restored && this.#append(text)) return true;
    this.#pending.add(text, isRefusal);
    return false;
  }

  /** Runs what the disk may refuse, and remembers that it did. */
  #attempt(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#noteTrouble(error);
      return false;
    }
  }

  #noteTrouble(error: unknown): void {
    const message = diskMessage(error, this.#deps.folder);
    if (this.#trouble?.message !== message)
      this.#deps.log.error(
        { reason: message },
        "the usage log cannot be written: requests are refused until it can",
      );
    this.#trouble = { message, since: this.#trouble?.since ?? this.#deps.clock.now() };
  }

  #write(text: string): void {
    const file = this.#file ?? this.#openFile();
    file.append(text);
    this.#recent.push(text);
    this.#recentBytes += text.length;
    this.#deps.onAppend();
  }

  /** Starts the next day's file. A clock that was set back changes nothing: the newest file stays the current one. */
  #rollOver(): void {
    if (this.#file !== null && this.#deps.clock.now() >= this.#file.ends) {
      this.#openFile();
    }
    this.#writeCarry();
  }

  #writeCarry(): void {
    if (!this.#needsCarry) return;
    this.#write(this.#carryText());
    this.#needsCarry = false;
  }

  /** What a start needs to know from the files before this one. */
  #carryText(): string {
    const carries = this.#deps.carry();
    const lines = [lineOf("carry", { tools: carries.length })];
    for (const carry of carries)
      lines.push(lineOf("carry", { ...carry, last_use: this.#lastUses.get(carry.tool) ?? null }));
    for (const [id, { opening, head }] of this.#inFlight) {
      lines.push(lineOf("open", opening));
      if (head !== null) lines.push(lineOf("head", { id, ...head }));
    }
    return lines.join("");
  }

  /** Whether the open file is still the one at its path. */
  #checkFile(): void {
    const file = this.#file;
    const displaced = file?.displaced() ?? null;
    if (file !== null && displaced !== null) {
      const incident = `${file.path} was ${displaced} while it was open`;
      if (this.#incident !== incident) this.#deps.log.error(incident);
      this.#incident = incident;
      makeFolder(this.#deps.folder);
      if (displaced === "deleted") file.putBack();
      else this.#again += this.#recent.join("");
      this.#openFile();
      if (displaced !== "deleted") {
        this.#lostAt = this.#deps.clock.now();
        this.#needsCarry = true;
      }
    }
    this.#recent = [];
    this.#recentBytes = 0;
    this.#writeAgain();
  }

  #writeAgain(): void {
    if (this.#again === "") return;
    this.#write(this.#again);
    this.#again = "";
    this.#writeCarry();
  }

  /** Today's file, or the newest one if the clock was set back. */
  #openFile(): DayFile {
    const { folder, clock, sync } = this.#deps;
    makeFolder(folder);
    const newest = journalFiles(folder).at(-1)?.day ?? "";
    const today = dayOf(clock.now());
    const file = new DayFile(folder, newest > today ? newest : today, sync);
    this.#file?.close();
    this.#file = file;
    this.#needsCarry ||= file.isNew;
    return file;
  }

  /** False: it is not known to be on the disk, and must not be sent. */
  async #synced(id: string): Promise<boolean> {
    try {
      await this.#file?.sync();
      return true;
    } catch (error) {
      this.#noteTrouble(error);
      // The system may have dropped what it could not write.
      this.#again += this.#recent.join("");
      this.#inFlight.delete(id);
      return false;
    }
  }

  #tellLosses(): void {
    const { records, refusals } = this.#pending.newLosses();
    if (records > 0) this.#deps.log.error({ records }, "usage records were lost");
    if (refusals > 0) this.#deps.log.warn({ refusals }, "refusals were not recorded");
  }
}

/** The kind comes first, for people. To copy a record just for that would cost as much as to write it. */
function lineOf(kind: Line["kind"], fields: object): string {
  return `{"kind":"${kind}",${JSON.stringify(fields).slice(1)}\n`;
}

/** Not the folder it lies in: where that is gone, it may come back. */
function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

/** What is known of a request whose process ended before it did. */
function interruptedRecord({ opening, head }: InFlight): UsageRecord {
  const { first_byte_at, status, gateway_ids } = head ?? NOT_CLOSED;
  return wholeRecord(opening, { ...NOT_CLOSED, end: "interrupted", first_byte_at, status, gateway_ids });
}

function diskMessage(error: unknown, folder: string): string {
  const code = errorCode(error);
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
    case "unknown":
      // No error of the system: a bug, which must not hide.
      throw error;
    default:
      return `the system says ${code}`;
  }
}
