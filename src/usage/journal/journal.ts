import { errorCode } from "../../core/errors.ts";
import { ForeignFile } from "../../core/own-file.ts";
import type { Ticker } from "../../core/ticker.ts";
import { exact } from "../../core/units.ts";
import type { Limiter } from "../../limits/limiter.ts";
import { type Closing, NOT_CLOSED, type Opening, type UsageRecord, wholeRecord } from "../record.ts";
import { CurrentFile, type CurrentFileDeps } from "./current-file.ts";
import { closeLine, encodeLine, openLine, SharedFields } from "./encode.ts";
import type { LimitsReplay } from "./limits-replay.ts";
import {
  type AckLine,
  type AmendLine,
  CLIENT_LEFT,
  type HeadLine,
  type KeyHeldLine,
  type LiftLine,
  type RefusalsLine,
  recordOfRefusals,
  type SessionLiftLine,
  type SessionStopLine,
  type SiblingAmendLine,
  type SiblingLine,
} from "./lines.ts";
import { isUnwritten, type RefusalRun, RefusalRuns, type Unsent } from "./refusal-runs.ts";
import { restoreFrom } from "./restore.ts";

interface JournalDeps extends CurrentFileDeps {
  readonly ticker: Ticker;
  /** Every file begins with what the limits know. */
  readonly limiter: Pick<Limiter, "carry" | "renames">;
  /** When the journal is opened, this gets the lines of the newest file. */
  readonly replay: Pick<LimitsReplay, "start" | "read" | "close" | "end">;
}

export interface JournalState {
  /** null: requests can be recorded. */
  readonly unavailable: { readonly problem: string; readonly since: number } | null;
  /** Lines that wait in memory until the disk takes them. */
  readonly waiting: number;
  /** Records of requests that may have reached a gateway, and did not fit in memory. */
  readonly lost: number;
  /** Refusals that were not recorded, because they did not fit in memory. */
  readonly refusalsLost: number;
  /** What last happened to the file while it was open; null: nothing. */
  readonly fileProblem: string | null;
}

export type ResponseHead = Omit<HeadLine, "kind" | "id">;

type AppendedLine =
  | AmendLine
  | LiftLine
  | SessionStopLine
  | SessionLiftLine
  | AckLine
  | KeyHeldLine
  | SiblingLine
  | SiblingAmendLine;

/** A promise, and what resolves it. */
interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
}

interface InFlight {
  opening: Opening;
  /** What its lines have in common; see encode.ts. */
  readonly sharedFields: string;
  head: ResponseHead | null;
}

/**
 * Appends to the usage journal. An append is one write of whole lines, so it survives a crash of the process. Only the daemon
 * that holds the state lock may append.
 */
export class Journal {
  readonly #deps: JournalDeps;
  readonly #file: CurrentFile;
  /** Lines that the disk refused. They are written once it accepts them. */
  readonly #pending = new PendingLines();
  readonly #inFlight = new Map<string, InFlight>();
  readonly #sharedFields = new SharedFields();
  /* What belongs to this turn of the event loop, and is written together at its end: see #endTurn(). */
  /** Requests that wait for their open line. */
  #opens: InFlight[] = [];
  /** Whether they were written. null: there are none. */
  #opened: Deferred<boolean> | null = null;
  /** Requests with a head line. */
  #newHeads: string[] = [];
  /** They may also be written with another line before the end of the turn. */
  #closeLines: string[] = [];
  #endIsScheduled = false;
  readonly #endTicks: () => void;
  /** The lines of earlier runs were read. Until then nothing can be recorded. */
  #restored = false;
  #unavailable: JournalState["unavailable"] = null;
  #last: { readonly id: string; readonly started_at: number } | null = null;
  readonly #lastUses = new Map<string, number>();
  #stopped = false;
  readonly #refusals = new RefusalRuns();
  #onRefusals: (record: UsageRecord) => void = () => {};

  constructor(deps: JournalDeps) {
    this.#deps = deps;
    this.#file = new CurrentFile(deps, () => this.#carryText());
    this.#attempt(() => this.#restore());
    this.#endTicks = deps.ticker.every(1, () => this.#everySecond());
  }

  /** The lines of earlier runs were read, so the limits know what was used. */
  get isRestored(): boolean {
    return this.#restored;
  }

  /** Whether a request can be recorded now. */
  available(): boolean {
    return this.#restored && this.#unavailable === null && !this.#stopped;
  }

  /** True once the line is written, and with `sync: full` on the disk. Only then may the request be sent. */
  async open(opening: Opening): Promise<boolean> {
    if (!this.available() || this.#inFlight.has(opening.id)) return false;
    this.#opens.push({ opening, sharedFields: this.#sharedFields.encode(opening), head: null });
    this.#opened ??= deferred();
    this.#endTurnSoon();
    if (!(await this.#opened.promise)) return false;
    return this.#deps.sync === "normal" || (await this.#synced(opening.id));
  }

  /**
   * Says that a request may be sent from now on. Sequence of sent_at: the open line has a time (first attempt); `markUnsent`
   * writes null when the attempt failed; `markSending` writes a time before the next one; the close line has the exact time. So
   * after kill -9 a record matches a console row only if the request may have been sent. Most requests connect at once and need
   * no such line.
   *
   * False: it is not on the disk, and the request must not be sent.
   */
  async markSending(id: string, now: number): Promise<boolean> {
    if (!this.#setSentAt(id, now)) return false;
    return this.#deps.sync === "normal" || (await this.flush());
  }

  /**
   * No connection was made, and the request waits: nothing of it was sent. If this cannot be written, the record says that it
   * may have been sent, which is the safe side.
   */
  markUnsent(id: string): void {
    this.#setSentAt(id, null);
  }

  #setSentAt(id: string, sentAt: number | null): boolean {
    const request = this.#inFlight.get(id);
    if (request === undefined || !this.available()) return false;
    if (!this.#append(encodeLine("sent", { id, sent_at: sentAt }))) return false;
    request.opening = { ...request.opening, sent_at: sentAt };
    return true;
  }

  /**
   * The head of the gateway's response arrived. For a stream, its line is written at once, before the client sees the head.
   * Most other responses arrive whole, and their close line repeats the head. So their head line waits for the end of this
   * turn of the event loop, and is left out if the request is closed by then.
   */
  head(id: string, head: ResponseHead, isStream: boolean): void {
    const request = this.#inFlight.get(id);
    if (request === undefined) return;
    request.head = head;
    this.#newHeads.push(id);
    if (isStream) this.#endTurn();
    else this.#endTurnSoon();
  }

  /**
   * Completes a record; a second call changes nothing. The line is written at the end of this turn of the event loop, and
   * waits in memory while the disk refuses it.
   */
  close(id: string, closing: Closing): void {
    const request = this.#inFlight.get(id);
    if (request === undefined) return;
    this.#inFlight.delete(id);
    this.#closeLines.push(closeLine(request.sharedFields, request.opening, closing));
    if (this.available()) this.#endTurnSoon();
    else this.#keepCloseLines();
  }

  /** A request that ended before anything was sent to a gateway: its whole record at once. */
  add(opening: Opening, closing: Closing): void {
    if (this.#inFlight.has(opening.id)) {
      this.close(opening.id, closing);
      return;
    }
    const text = closeLine(this.#sharedFields.encode(opening), opening, closing);
    const isWritten = this.#appendOrKeep(text, closing.end === "refused" ? 1 : 0);
    if (isWritten) this.#noteUse(opening);
  }

  /**
   * Counts a request that ended before anything was sent to a gateway. True: enough others of its kind have a record and a
   * log line in this minute, and this one is part of the line that says how many more came.
   */
  count(unsent: Unsent): boolean {
    const now = this.#deps.clock.now();
    if (this.#refusals.isOver(now)) this.#endMinute();
    const isCounted = this.#refusals.count(unsent);
    if (isCounted && unsent.tool !== null) this.#noteToolUse(unsent.tool, now);
    return isCounted;
  }

  /** The listener gets the record that stands for the counted requests of one kind in a minute, once it is over. */
  onRefusals(listener: (record: UsageRecord) => void): void {
    this.#onRefusals = listener;
  }

  /** Appends how many refusals were counted by now, for a reader of the journal. */
  writeRefusals(): void {
    this.#endTurn();
    this.#writeRuns(this.#refusals.unwritten());
  }

  /** Appends all of them in one write. False: none was written. */
  append(...lines: readonly AppendedLine[]): boolean {
    return this.available() && this.#append(lines.map(encode).join(""));
  }

  /** A tool has another name from now on. False: the line was not written, and the next start knows the old name only. */
  rename({ from, to }: { readonly from: string; readonly to: string }): boolean {
    this.#moveLastUse(from, to);
    const line = { from, to, at: this.#deps.clock.now() };
    return this.available() && this.#append(encodeLine("rename", line));
  }

  /** When a tool last sent a request, also one that was refused here; null: unknown. */
  lastUse(tool: string): number | null {
    return this.#lastUses.get(tool) ?? null;
  }

  /** The newest record. */
  last(): { readonly id: string; readonly started_at: number } | null {
    return this.#last;
  }

  /**
   * Every request that was sent before this time has ended, and its record is in the journal. null: unknown, because lines
   * wait for the disk.
   */
  completeUntil(): number | null {
    this.#endTurn();
    if (!this.#restored || this.#pending.size > 0) return null;
    let time = this.#deps.clock.now();
    for (const { opening } of this.#inFlight.values()) time = Math.min(time, opening.started_at);
    return time;
  }

  /** Resolves to true once everything that was appended by now is on the disk. False: the disk refuses it. */
  async flush(): Promise<boolean> {
    this.#endTurn();
    try {
      await this.#file.sync();
      return true;
    } catch (error) {
      this.#noteUnavailable(error);
      return false;
    }
  }

  /** When it was last noticed that the open file had been replaced or cut off; null: never. */
  lostAt(): number | null {
    return this.#file.lostAt;
  }

  /** The day of the current file; null: none is open. */
  get day(): string | null {
    return this.#file.day;
  }

  state(): JournalState {
    const { size, lost, refusalsLost } = this.#pending;
    return {
      unavailable: this.#unavailable,
      waiting: size,
      lost,
      refusalsLost,
      fileProblem: this.#file.problem,
    };
  }

  stop(): void {
    if (this.#stopped) return;
    this.#endTicks();
    this.#everySecond();
    this.#endMinute();
    this.#stopped = true;
    this.#pending.giveUp();
    this.#logLosses();
    if (this.#deps.sync === "full") this.#attempt(() => this.#file.syncNow());
    this.#file.close();
  }

  #everySecond(): void {
    this.#endTurn();
    this.#attempt(() => {
      if (!this.#restored) this.#restore();
      this.#file.check();
      const text = this.#pending.text();
      if (text !== "") this.#file.write(text);
      this.#pending.clear();
      if (this.#unavailable !== null) this.#noteAvailable(text !== "");
    });
    if (this.#refusals.isOver(this.#deps.clock.now())) this.#endMinute();
    else this.#writeRuns(this.#refusals.doubled());
    this.#logLosses();
  }

  #writeRuns(runs: readonly RefusalRun[]): void {
    if (runs.length === 0 || !this.available()) return;
    if (!this.#append(runs.map(({ line }) => encode(line)).join(""))) return;
    for (const run of runs) run.written = run.line.count;
  }

  /** What the disk refuses now waits like other lines. */
  #endMinute(): void {
    for (const run of this.#refusals.next(this.#deps.clock.now())) {
      const { line, written } = run;
      if (isUnwritten(run)) this.#appendOrKeep(encode(line), line.count - written);
      this.#logRefusals(line);
      this.#onRefusals(recordOfRefusals(line));
    }
  }

  #logRefusals({ tool, code, minute, count, first_id, last_id }: RefusalsLine): void {
    const fields = { tool, refusal: code, first_id, last_id };
    const when = `in the minute from ${new Date(minute).toISOString().slice(11, 16)} UTC`;
    if (code === CLIENT_LEFT) this.#deps.log.info(fields, `${exact(count)} more clients left ${when}`);
    else this.#deps.log.warn(fields, `${exact(count)} more requests were refused ${when}`);
  }

  /** Only a write that succeeds shows that the disk works again. */
  #noteAvailable(hasWritten: boolean): void {
    if (!hasWritten) this.#file.write("\n");
    if (this.#deps.sync === "full") this.#file.syncNow();
    this.#unavailable = null;
    this.#deps.log.info("the usage log can be written again");
  }

  /** Reads the lines of earlier runs, and closes the records that they left open. If it fails, the next attempt starts over. */
  #restore(): void {
    const { folder, replay } = this.#deps;
    this.#file.open();
    replay.start();
    const { inFlight, carryIsWhole } = restoreFrom(folder, (line) => {
      replay.read(line);
      if (line.kind === "open" || line.kind === "close") this.#noteUse(line);
      if (line.kind === "refusals" && line.tool !== null) this.#noteToolUse(line.tool, line.minute);
      if (line.kind === "rename") this.#moveLastUse(line.from, line.to);
      if (line.kind === "carry" && "tool" in line && line.last_use !== null)
        this.#lastUses.set(line.tool, line.last_use);
    });
    for (const one of inFlight) {
      const { opening } = one;
      const closing = interruptedClosing(one);
      this.#file.write(closeLine(this.#sharedFields.encode(opening), opening, closing));
      replay.close(wholeRecord(opening, closing));
    }
    replay.end();
    this.#restored = true;
    this.#file.writeCarry(!carryIsWhole);
  }

  #noteUse({ id, started_at, tool }: Pick<Opening, "id" | "started_at" | "tool">): void {
    // A new file repeats the lines of older requests that are in flight.
    if (this.#last === null || id > this.#last.id) this.#last = { id, started_at };
    if (tool !== null) this.#noteToolUse(tool, started_at);
  }

  #noteToolUse(tool: string, time: number): void {
    this.#lastUses.set(tool, Math.max(time, this.#lastUses.get(tool) ?? 0));
  }

  #moveLastUse(from: string, to: string): void {
    const time = this.#lastUses.get(from);
    if (time === undefined) return;
    this.#lastUses.set(to, time);
    this.#lastUses.delete(from);
  }

  #endTurnSoon(): void {
    if (this.#endIsScheduled) return;
    this.#endIsScheduled = true;
    setImmediate(() => this.#endTurn());
  }

  /** Writes the lines of this turn. The requests that wait for it can be sent then. */
  #endTurn(): void {
    this.#endIsScheduled = false;
    const opens = this.#opens;
    const opened = this.#opened;
    this.#opens = [];
    this.#opened = null;
    let lines = "";
    for (const id of this.#newHeads) {
      const head = this.#inFlight.get(id)?.head;
      if (head) lines += encodeLine("head", { id, ...head });
    }
    this.#newHeads = [];
    for (const { opening, sharedFields } of opens) lines += openLine(sharedFields, opening);
    if (lines === "" && this.#closeLines.length === 0) return;
    let isWritten = false;
    try {
      isWritten = this.available() && this.#append(lines);
      if (isWritten) for (const request of opens) this.#addInFlight(request);
    } finally {
      if (!isWritten) this.#keepCloseLines();
      opened?.resolve(isWritten);
    }
  }

  #addInFlight(request: InFlight): void {
    this.#inFlight.set(request.opening.id, request);
    this.#noteUse(request.opening);
  }

  /** The close lines of this turn go first. A next file begins with a carry that counts them, so they belong to this one. */
  #append(text: string): boolean {
    let closeLines = this.#closeLines;
    this.#closeLines = [];
    let isWritten = false;
    try {
      isWritten = this.#attempt(() => {
        const before = closeLines.join("");
        if (before === "") {
          this.#file.append(text);
        } else if (!this.#file.appendIfSameFile(before + text)) {
          this.#file.write(before);
          closeLines = [];
          this.#file.append(text);
        }
      });
      return isWritten;
    } finally {
      if (!isWritten) this.#keep(closeLines);
    }
  }

  #keepCloseLines(): void {
    this.#keep(this.#closeLines);
    this.#closeLines = [];
  }

  /** They wait for the disk. After the stop, they are lost. */
  #keep(closeLines: readonly string[]): void {
    if (!this.#stopped) for (const line of closeLines) this.#pending.add(line, 0);
  }

  /** False: it waits in memory. @param refusals how many refusals the line counts; 0: it is about a request that may have been sent. */
  #appendOrKeep(text: string, refusals: number): boolean {
    if (this.#stopped) return false;
    // While lines wait, later ones wait behind them.
    if (this.#unavailable === null && this.#restored && this.#append(text)) return true;
    this.#pending.add(text, refusals);
    return false;
  }

  /** Runs what the disk may refuse. False: it did, and the problem is noted. */
  #attempt(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#noteUnavailable(error);
      return false;
    }
  }

  #noteUnavailable(error: unknown): void {
    const problem = diskMessage(error, this.#deps.folder);
    if (this.#unavailable?.problem !== problem)
      this.#deps.log.error(
        { problem },
        "the usage log cannot be written; requests are refused until it can be",
      );
    this.#unavailable = { problem, since: this.#unavailable?.since ?? this.#deps.clock.now() };
  }

  #carryText(): string {
    const carries = this.#deps.limiter.carry();
    const lines = [encodeLine("carry", { tools: carries.length })];
    for (const carry of carries)
      lines.push(encodeLine("carry", { ...carry, last_use: this.#lastUses.get(carry.tool) ?? null }));
    const at = this.#deps.clock.now();
    for (const rename of this.#deps.limiter.renames()) lines.push(encodeLine("rename", { ...rename, at }));
    for (const [id, { opening, sharedFields, head }] of this.#inFlight) {
      lines.push(openLine(sharedFields, opening));
      if (head !== null) lines.push(encodeLine("head", { id, ...head }));
    }
    return lines.join("");
  }

  /** False: the line may not be on the disk, so the request must not be sent. */
  async #synced(id: string): Promise<boolean> {
    const isOnDisk = await this.flush();
    if (!isOnDisk) this.#inFlight.delete(id);
    return isOnDisk;
  }

  #logLosses(): void {
    const { records, refusals } = this.#pending.newLosses();
    if (records > 0) this.#deps.log.error({ records }, "usage records were lost");
    if (refusals > 0) this.#deps.log.warn({ refusals }, "refusals were not recorded");
  }
}

function deferred<T>(): Deferred<T> {
  let resolve = (_value: T): void => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

function encode({ kind, ...fields }: AppendedLine | RefusalsLine): string {
  return encodeLine(kind, fields);
}

/** How a request ended that was in flight when the daemon was killed. */
function interruptedClosing({ opening, head }: Pick<InFlight, "opening" | "head">): Closing {
  const { first_byte_at, status } = head ?? NOT_CLOSED;
  const { gateway_ids } = head ?? opening;
  const { sent_at } = opening;
  const counts = sent_at === null ? false : NOT_CLOSED.counts;
  const rest = { sent_at, counts, first_byte_at, status, gateway_ids };
  return { ...NOT_CLOSED, end: "interrupted", ...rest };
}

function diskMessage(error: unknown, folder: string): string {
  if (error instanceof ForeignFile) return error.message;
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
      return `${folder} is not a folder`;
    case "unknown":
      // Not an error of the system but a bug, which must not be hidden.
      throw error;
    default:
      return `the system says ${code}`;
  }
}

const MAX_PENDING_LINES = 1000;
const MAX_PENDING_BYTES = 4 * 1024 * 1024;

interface PendingLine {
  readonly text: string;
  /** How many refusals it counts; 0: it is about a request that may have been sent. */
  readonly refusals: number;
}

/** Lines that the disk has not accepted yet, in order. If there are too many, refusals are dropped first. */
class PendingLines {
  #lines: PendingLine[] = [];
  #bytes = 0;
  #lost = 0;
  #refusalsLost = 0;
  #reportedLost = 0;
  #reportedRefusalsLost = 0;

  get size(): number {
    return this.#lines.length;
  }

  get lost(): number {
    return this.#lost;
  }

  get refusalsLost(): number {
    return this.#refusalsLost;
  }

  add(text: string, refusals: number): void {
    this.#lines.push({ text, refusals });
    this.#bytes += text.length;
    while (this.#lines.length > MAX_PENDING_LINES || this.#bytes > MAX_PENDING_BYTES) this.#dropOne();
  }

  text(): string {
    return this.#lines.map(({ text }) => text).join("");
  }

  clear(): void {
    this.#lines = [];
    this.#bytes = 0;
  }

  /** They will never be written. */
  giveUp(): void {
    while (this.#lines.length > 0) this.#dropOne();
  }

  /** What was lost since the last call. */
  newLosses(): { readonly records: number; readonly refusals: number } {
    const records = this.#lost - this.#reportedLost;
    const refusals = this.#refusalsLost - this.#reportedRefusalsLost;
    this.#reportedLost = this.#lost;
    this.#reportedRefusalsLost = this.#refusalsLost;
    return { records, refusals };
  }

  #dropOne(): void {
    const refusal = this.#lines.findIndex(({ refusals }) => refusals > 0);
    const [dropped] = this.#lines.splice(Math.max(0, refusal), 1);
    if (dropped === undefined) return;
    this.#bytes -= dropped.text.length;
    if (dropped.refusals > 0) this.#refusalsLost += dropped.refusals;
    else this.#lost += 1;
  }
}
