import { write, writeSync } from "node:fs";

/**
 * Where the log goes: one piece after the other, never waited for. A reader that stands still (a pager, Ctrl-S) and a
 * full disk cost log lines, not requests. Lines that do not fit are dropped and counted.
 */
export interface LogStream {
  write(line: string): void;
  /** Best effort, for the very end: what waits is written, unless that would block. */
  end(): void;
}

/** Characters that wait for a reader. */
const MAX_WAITING = 1_000_000;
/** After a failed write the disk is given a moment; lines that come meanwhile wait with the others. */
const AFTER_FAILURE_MS = 250;
/** A line goes out at once; those that come within this time after it go out together: a write costs more than a line. */
const TOGETHER_MS = 20;
const NEWLINE = 0x0a;

/** @param onDropped is called once the log can be written again, with how many lines were dropped until then. */
export function createLogStream(fd: number, onDropped: (lines: number) => void): LogStream {
  let waiting: string[] = [];
  let size = 0;
  let dropped = 0;
  let state: "idle" | "writing" | "resting" = "idle";

  function next(): void {
    if (state !== "idle" || waiting.length === 0) return;
    state = "writing";
    send(Buffer.from(take()), 0);
  }

  function take(): string {
    const text = waiting.join("");
    waiting = [];
    size = 0;
    return text;
  }

  function send(bytes: Buffer, from: number): void {
    write(fd, bytes, from, (error, written) => {
      if (error?.code === "EAGAIN") {
        // A pipe that is full: the same bytes once more.
        setTimeout(() => send(bytes, from), AFTER_FAILURE_MS).unref();
        return;
      }
      if (error !== null) {
        dropped += linesIn(bytes.subarray(from));
        rest(AFTER_FAILURE_MS, false);
        return;
      }
      if (from + written < bytes.length) {
        send(bytes, from + written);
        return;
      }
      rest(TOGETHER_MS, true);
    });
  }

  function rest(ms: number, written: boolean): void {
    state = "resting";
    setTimeout(() => {
      state = "idle";
      next();
      // Now nothing waits any more, so this line has room.
      if (written) reportDropped();
    }, ms).unref();
  }

  function reportDropped(): void {
    if (dropped === 0) return;
    const lines = dropped;
    dropped = 0;
    onDropped(lines);
  }

  return {
    write(line) {
      if (size + line.length > MAX_WAITING) {
        dropped += 1;
        return;
      }
      waiting.push(line);
      size += line.length;
      next();
    },
    end() {
      // A write in progress is held up by the reader or the disk: nothing more would get through.
      if (state === "writing") return;
      reportDropped();
      try {
        writeSync(fd, take());
      } catch {
        // Nothing is left to write it to.
      }
    },
  };
}

function linesIn(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}
