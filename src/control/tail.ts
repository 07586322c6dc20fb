import type { ServerResponse } from "node:http";
import { HttpError } from "../core/errors.ts";
import type { UsageRecord } from "../usage/record.ts";

/** Tells whoever follows of every record as it is completed. Nobody who reads slowly costs memory or a request. */
export interface Tail {
  /** Whether anybody does. */
  followed(): boolean;
  tell(record: UsageRecord): void;
  /** Answers with one JSON line a record, until either side ends. Throws when there are too many already. */
  follow(answer: ServerResponse): void;
  /** The same for a part of the daemon itself, until what this returns is called. */
  listen(listener: (record: UsageRecord) => void): () => void;
}

/** One line of what a follower reads. `following` is the first: from here on nothing is missed unnoticed. */
export type TailLine =
  | { readonly following: true }
  | { readonly record: UsageRecord }
  /** So many records were completed while this reader stood still. They are in the database. */
  | { readonly lost: number };

const MOST_READERS = 16;
/** Bytes that wait for one reader: some hundred records. */
const MOST_WAITING = 256 * 1024;

interface Reader {
  readonly answer: ServerResponse;
  lost: number;
}

export function createTail(): Tail {
  const readers = new Set<Reader>();
  const listeners = new Set<(record: UsageRecord) => void>();

  function send(reader: Reader, line: string): void {
    if (reader.answer.writableLength + line.length > MOST_WAITING) {
      reader.lost += 1;
      return;
    }
    tellLost(reader);
    reader.answer.write(line);
  }

  return {
    followed: () => readers.size > 0 || listeners.size > 0,
    tell(record) {
      for (const listener of listeners) listener(record);
      if (readers.size === 0) return;
      const line = lineOf({ record });
      for (const reader of readers) send(reader, line);
    },
    follow(answer) {
      if (readers.size >= MOST_READERS)
        throw new HttpError(429, `${MOST_READERS} others follow already: end one of them, then try again`);
      const reader: Reader = { answer, lost: 0 };
      readers.add(reader);
      answer.on("close", () => readers.delete(reader));
      // A reader that went away while a line was on its way is no failure of ours.
      answer.on("error", () => {});
      // Also where no record comes after: the reader is not left believing that it saw everything.
      answer.on("drain", () => tellLost(reader));
      answer.writeHead(200, { "content-type": "application/x-ndjson" });
      answer.write(lineOf({ following: true }));
    },
    listen(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

function tellLost(reader: Reader): void {
  if (reader.lost === 0) return;
  const { lost } = reader;
  reader.lost = 0;
  reader.answer.write(lineOf({ lost }));
}

function lineOf(line: TailLine): string {
  return `${JSON.stringify(line)}\n`;
}
