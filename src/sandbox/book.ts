/** One request as it reached the sandbox, for whoever wants to see what a tool or a proxy really sent. */
export interface BookEntry {
  /** Counts from 1, never reused. */
  readonly number: number;
  readonly method: string;
  /** As on the request line, query included. */
  readonly path: string;
  /** Names and values by turns, in the order and the case of the wire. */
  readonly rawHeaders: readonly string[];
  /** Which connection it came on; equal numbers shared one. */
  readonly socket: number;
  readonly startedAt: number;
  /** Body bytes seen so far. */
  bodyBytes: number;
  /** The beginning of the body, up to the bound of the book. */
  bodyText: string;
  /** Of the whole body, in hex; null until it has come to its end. */
  bodySha256: string | null;
  /** The key that was shown, when it is one of the sandbox's. */
  keyId: number | null;
  /** As in X-Client-Request-ID; null on paths that are no gateway route. */
  requestId: string | null;
  /** null until the headers of the answer are sent. */
  status: number | null;
  /** When the whole answer had been handed to the network. */
  finishedAt: number | null;
  /** When the connection ended before that. */
  abortedAt: number | null;
}

/** The last requests, oldest first. Bounded, so that it can stay on. */
export interface Book {
  readonly bodyBytes: number;
  add(entry: Omit<BookEntry, "number">): BookEntry;
  list(): readonly BookEntry[];
  clear(): void;
}

export function createBook(mostEntries: number, bodyBytes: number): Book {
  let entries: BookEntry[] = [];
  let count = 0;
  return {
    bodyBytes,
    add(fields) {
      count += 1;
      const entry: BookEntry = { number: count, ...fields };
      entries.push(entry);
      // Cut in lots, so that a full book does not move a thousand entries with each new one.
      if (entries.length >= mostEntries * 2) entries = entries.slice(-mostEntries);
      return entry;
    },
    list: () => entries.slice(-mostEntries),
    clear() {
      entries = [];
    },
  };
}
