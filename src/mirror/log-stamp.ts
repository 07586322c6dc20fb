import { closeSync, constants as fs, fstatSync, openSync, readFileSync } from "node:fs";
import { asObject, flagAt, textAt, wholeAt } from "./consoles/json.ts";

/** Where the usage log ended when somebody last looked. It lies beside the log, so that it outlives the log's own end. */
export interface LogStamp {
  /** The id of the newest record; null: there was none. */
  readonly record: string | null;
  readonly started_at: number;
  /** When it was seen, wall time. */
  readonly at: number;
  /** The log was closed after it, with nothing more in it. */
  readonly clean: boolean;
  /** Every record was on the disk itself before its request was sent. */
  readonly synced: boolean;
}

const MOST_BYTES = 4096;

/** null: there is none, or it cannot be understood. Then nothing is known, which is no reason to doubt the log. */
export function readStamp(file: string): LogStamp | null {
  try {
    // Without O_NONBLOCK a named pipe would be waited for.
    const fd = openSync(file, fs.O_RDONLY | fs.O_NONBLOCK);
    try {
      const found = fstatSync(fd);
      return found.isFile() && found.size <= MOST_BYTES ? stampIn(readFileSync(fd, "utf8")) : null;
    } finally {
      closeSync(fd);
    }
  } catch {
    return null;
  }
}

export function stampText(stamp: LogStamp): string {
  return `${JSON.stringify(stamp)}\n`;
}

function stampIn(text: string): LogStamp | null {
  const whole = asObject(JSON.parse(text));
  if (whole === null) return null;
  const started_at = wholeAt(whole, "started_at");
  const at = wholeAt(whole, "at");
  const clean = flagAt(whole, "clean");
  const synced = flagAt(whole, "synced");
  if (started_at === null || at === null || clean === null || synced === null) return null;
  return { record: textAt(whole, "record"), started_at, at, clean, synced };
}
