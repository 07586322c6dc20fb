import { write, writeSync } from "node:fs";

/** Characters that may wait for a slow reader. */
const MAX_WAITING = 1_000_000;
/** The pause after a failed write. */
const RETRY_MS = 250;
/** Lines that come within this time after a write go out together. A write costs more than a line. */
const BATCH_MS = 20;
const NEWLINE = 0x0a;

/**
 * Writes the log to a descriptor without blocking. A reader that stops reading (a pager, Ctrl-S) or a full disk costs log
 * lines, not requests: lines that do not fit are dropped and counted.
 */
export class LogStream {
  readonly #fd: number;
  readonly #onDropped: (lines: number) => void;
  readonly #afterWrite: (() => Promise<void>) | null;
  #waiting: string[] = [];
  /** Characters in #waiting. */
  #size = 0;
  #dropped = 0;
  #state: "idle" | "writing" | "pausing" = "idle";

  /**
   * @param onDropped gets the number of dropped lines, once the log can be written again.
   * @param afterWrite must not reject. Nothing is written before it has ended.
   */
  constructor(
    fd: number,
    onDropped: (lines: number) => void,
    afterWrite: (() => Promise<void>) | null = null,
  ) {
    this.#fd = fd;
    this.#onDropped = onDropped;
    this.#afterWrite = afterWrite;
  }

  write(line: string): void {
    if (this.#size + line.length > MAX_WAITING) {
      this.#dropped += 1;
      return;
    }
    this.#waiting.push(line);
    this.#size += line.length;
    this.#writeWaiting();
  }

  /** Writes what waits before the process ends, unless that would block. */
  end(): void {
    // A write that has not returned is held up by the reader or the disk. Nothing more would get through.
    if (this.#state === "writing") return;
    this.#reportDropped();
    try {
      writeSync(this.#fd, this.#takeWaiting());
    } catch {
      // There is nowhere left to report it.
    }
  }

  #writeWaiting(): void {
    if (this.#state !== "idle" || this.#waiting.length === 0) return;
    this.#state = "writing";
    this.#send(Buffer.from(this.#takeWaiting()), 0);
  }

  #takeWaiting(): string {
    const text = this.#waiting.join("");
    this.#waiting = [];
    this.#size = 0;
    return text;
  }

  #send(bytes: Buffer, from: number): void {
    write(this.#fd, bytes, from, (error, written) => {
      if (error?.code === "EAGAIN") {
        // The pipe is full.
        setTimeout(() => this.#send(bytes, from), RETRY_MS).unref();
      } else if (error !== null) {
        this.#dropped += linesIn(bytes.subarray(from));
        this.#pause(RETRY_MS, false);
      } else if (from + written < bytes.length) {
        this.#send(bytes, from + written);
      } else if (this.#afterWrite === null) {
        this.#pause(BATCH_MS, true);
      } else {
        void this.#afterWrite().then(() => this.#pause(BATCH_MS, true));
      }
    });
  }

  #pause(ms: number, hasWritten: boolean): void {
    this.#state = "pausing";
    setTimeout(() => {
      this.#state = "idle";
      this.#writeWaiting();
      if (hasWritten) this.#reportDropped();
    }, ms).unref();
  }

  #reportDropped(): void {
    if (this.#dropped === 0) return;
    const lines = this.#dropped;
    this.#dropped = 0;
    this.#onDropped(lines);
  }
}

function linesIn(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}
