import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "../core/clock.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";
import { type Chunk, dayOf, type JournalFile, NEWLINE, readLater } from "../usage/journal/files.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { parseLine } from "../usage/journal/lines.ts";
import { nextLines, type Position, positionIn } from "../usage/journal/position.ts";
import { KEEP_DAYS, type RecordStore, textOfAmend, textOfRecord } from "./records.ts";

interface PublisherDeps {
  readonly journalFolder: string;
  readonly journal: Pick<Journal, "completeUntil">;
  readonly store: Pick<RecordStore, "publish" | "clockOffset" | "signerId">;
  readonly clock: Clock;
  readonly log: Logger;
}

const MAX_ENTRIES = 100;
const MAX_BYTES = 256 * 1024;
/** No position is this text, so the store answers with the one that it has. */
const ASK = "?";
/** A store may lose its data while this machine has nothing to publish. */
const ASK_EVERY_MS = MINUTE_MS;

/**
 * Publishes the finished records of this machine, and their corrections. It reads the journal from the position that is in
 * the store. The store changes position and stream together, so a crash publishes nothing twice, and a store that lost its
 * data gets the last days again. So does one that has them with no signature, or with that of an older secret.
 */
export class RecordPublisher {
  readonly #deps: PublisherDeps;
  /** The position in the store; undefined: it must be asked. */
  #stored: string | null | undefined;
  /** How far the journal was read. Between this and the stored position nothing had to be published. */
  #position: Position | null = null;
  #publishedUntil: number | null = null;
  /** When the store is asked for its position again, in time elapsed. */
  #nextAsk = 0;
  /** The last problem that was logged; null: there was none since the last success. */
  #problem: string | null = null;
  #isStopped = false;

  constructor(deps: PublisherDeps) {
    this.#deps = deps;
  }

  /**
   * Every request of this machine that was sent before this time has ended and is published. By this machine's clock. null:
   * unknown.
   */
  publishedUntil(): number | null {
    return this.#publishedUntil;
  }

  /** There is a new connection: the store may have lost its data, or be another one. */
  reset(): void {
    this.#stored = undefined;
    this.#publishedUntil = null;
  }

  /** Publishes what is new. To be called about each second while the store is connected, one call after the other. */
  async tick(): Promise<void> {
    if (!this.#isStopped) await this.#run();
  }

  /** What is in flight ends soon, and nothing more is published. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Before this machine leaves the store. True: everything is published, and no request is in flight. */
  async finish(): Promise<boolean> {
    const now = this.#deps.clock.now();
    await this.tick();
    return this.#publishedUntil !== null && this.#publishedUntil >= now;
  }

  /** Never throws. */
  async #run(): Promise<void> {
    try {
      // Read first: what begins from here on may not be published by this run.
      const completeUntil = this.#deps.journal.completeUntil();
      if ((await this.#publish()) && completeUntil !== null) this.#publishedUntil = completeUntil;
      this.#problem = null;
    } catch (error) {
      // Whether the store took the last entries is not known.
      this.reset();
      this.#noteProblem(error);
    }
  }

  /** True: everything in the journal is published. */
  async #publish(): Promise<boolean> {
    if (this.#stored === undefined || this.#deps.clock.elapsed() >= this.#nextAsk) await this.#ask();
    for (;;) {
      const next = nextLines(this.#deps.journalFolder, this.#start());
      if (next === null) return true;
      const { file, offset, finished } = next;
      for await (const chunk of readLater(file, offset, finished)) {
        if (this.#isStopped || !(await this.#publishChunk(file, chunk, finished))) return false;
        await turn();
      }
      if (!finished) return true;
    }
  }

  /** Where to read on, but not before the days that the others need. */
  #start(): Position {
    const before = dayOf(this.#deps.clock.now() - (KEEP_DAYS + 1) * DAY_MS);
    if (this.#position !== null && this.#position.day > before) return this.#position;
    return { day: before, offset: 0, passed: true, mark: "" };
  }

  /** False: the store has another position, and the next run continues there. */
  async #publishChunk(file: JournalFile, { bytes, end, last }: Chunk, finished: boolean): Promise<boolean> {
    let entries: string[] = [];
    let size = 0;
    let at = 0;
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at);
      const lineEnd = newline === -1 ? bytes.length : newline;
      const entry = this.#makeEntry(bytes.toString("utf8", at, lineEnd));
      if (entry !== null) {
        const entrySize = Buffer.byteLength(entry);
        if (entries.length === MAX_ENTRIES || (entries.length > 0 && size + entrySize > MAX_BYTES)) {
          const position = positionIn(file, end - bytes.length + at, false);
          if (!(await this.#send(entries, position))) return false;
          entries = [];
          size = 0;
        }
        entries.push(entry);
        size += entrySize;
      }
      at = lineEnd + 1;
    }
    const position = positionIn(file, end, last && finished);
    if (entries.length > 0 || position.passed) return await this.#send(entries, position);
    this.#position = position;
    return true;
  }

  #makeEntry(text: string): string | null {
    if (OTHER_LINES.test(text)) return null;
    const line = parseLine(text);
    if (line?.kind === "close") return textOfRecord(line, this.#deps.store.clockOffset());
    return line?.kind === "amend" ? textOfAmend(line.id, line) : null;
  }

  async #ask(): Promise<void> {
    const position = await this.#deps.store.publish([], ASK, ASK);
    this.#nextAsk = this.#deps.clock.elapsed() + ASK_EVERY_MS;
    if (position !== this.#stored) this.#continueAt(position);
  }

  /** False: the store has another position. */
  async #send(entries: readonly string[], to: Position): Promise<boolean> {
    const { signerId } = this.#deps.store;
    const text = JSON.stringify(signerId === null ? to : { ...to, signer: signerId });
    const position = await this.#deps.store.publish(entries, this.#stored ?? null, text);
    if (position !== text) {
      this.#continueAt(position);
      return false;
    }
    this.#stored = text;
    this.#position = to;
    return true;
  }

  #continueAt(position: string | null): void {
    this.#stored = position;
    this.#position = parsePosition(position, this.#deps.store.signerId);
    this.#publishedUntil = null;
  }

  #noteProblem(error: unknown): void {
    // The day was compressed between two steps. The next run reads the compressed file.
    if (hasCode(error, "ENOENT")) return;
    const problem = errorMessage(error);
    if (problem !== this.#problem)
      this.#deps.log.warn({ problem }, "records of this machine are not published; keybearer tries again");
    this.#problem = problem;
  }
}

/** Lines that are never published. Parsing them would take longer than everything else here. */
const OTHER_LINES = /^\{"kind":"(?:open|head|refusals|sibling|sibling-amend|carry)"/;

/** What the store has may be anything. null: it is no position of this signer, so reading begins with the first day. */
function parsePosition(text: string | null, signerId: string | null): Position | null {
  try {
    const { day, offset, passed, mark, signer = null } = JSON.parse(text ?? "{}");
    if (signer !== signerId) return null;
    if (typeof day !== "string" || !/^\d{4}-\d\d-\d\d$/.test(day)) return null;
    if (!Number.isSafeInteger(offset) || offset < 0 || typeof passed !== "boolean") return null;
    return typeof mark === "string" && /^[0-9a-f]{0,16}$/.test(mark) ? { day, offset, passed, mark } : null;
  } catch {
    return null;
  }
}
