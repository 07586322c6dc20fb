import { write, writeSync } from "node:fs";

/**
 * Where the log goes: written one piece after the other, never waited for. A reader that stands still (a pager,
 * Ctrl-S) and a disk that is full cost log lines, not requests: what has no room is dropped, and the daemon goes on.
 */
export interface LogStream {
  write(line: string): void;
  /** Best effort, for the very end: what waits is written, unless that would block. */
  end(): void;
}

/** Characters that wait for a reader. */
const MOST_WAITING = 1_000_000;
/** After a failed write the disk is given a moment; lines that come meanwhile wait with the others. */
const AFTER_FAILURE_MS = 250;
/** A line goes out at once; those that come within this time after it go out together: a write costs more than a line. */
const TOGETHER_MS = 20;

export function createLogStream(fd: number): LogStream {
  let waiting: string[] = [];
  let size = 0;
  let state: "idle" | "writing" | "resting" = "idle";

  function next(): void {
    if (state !== "idle" || waiting.length === 0) return;
    state = "writing";
    const bytes = Buffer.from(take());
    send(bytes, 0);
  }

  function take(): string {
    const text = waiting.join("");
    waiting = [];
    size = 0;
    return text;
  }

  function send(bytes: Buffer, from: number): void {
    write(fd, bytes, from, (error, written) => {
      // A pipe that is full answers EAGAIN: the same bytes once more. Any other failure has lost them.
      const again = error?.code === "EAGAIN";
      const at = error === null ? from + written : from;
      if (again || (error === null && at < bytes.length)) {
        if (again) setTimeout(() => send(bytes, at), AFTER_FAILURE_MS).unref();
        else send(bytes, at);
        return;
      }
      state = "resting";
      setTimeout(goOn, error === null ? TOGETHER_MS : AFTER_FAILURE_MS).unref();
    });
  }

  function goOn(): void {
    state = "idle";
    next();
  }

  return {
    write(line) {
      if (size + line.length > MOST_WAITING) return;
      waiting.push(line);
      size += line.length;
      next();
    },
    end() {
      // A write that is still under way holds the reader or the disk: nothing more would get through.
      if (state === "writing") return;
      try {
        writeSync(fd, take());
      } catch {
        // Nobody is left to tell.
      }
    },
  };
}
