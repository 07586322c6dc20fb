import { FieldScan } from "./field-scan.ts";
import type { Wanted } from "./wanted.ts";

/** One server-sent event. */
export interface ServerEvent {
  /** Of its `event:` line; empty where it had none. */
  readonly name: string;
  /**
   * Its `data:` lines as one text, with the spaces that follow the colons; null: too long to be kept. Valid during the
   * call only, since the next event is written over it.
   */
  readonly data: Buffer | null;
  /** What was found in data that was too long. */
  readonly fields: FieldScan | null;
}

export interface EventOptions {
  readonly onEvent: (event: ServerEvent) => void;
  /** What to look for in an event that is too long to be kept. */
  readonly wanted: readonly string[] | Wanted;
  /** Bytes of data kept of one event; default 1 MB. */
  readonly most?: number;
}

const MOST_BYTES = 1024 * 1024;
const LONGEST_NAME = 128;
const LF = 0x0a;
const CR = 0x0d;
const LINE_BREAK = Buffer.from("\n");
const COLON = 0x3a;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const NOTHING = Buffer.alloc(0);
/** "event". What has no colon by then is no field of ours. */
const LONGEST_FIELD = 5;
/** What one event needs at first, and what is given back after one that needed more. */
const ROOM = 4 * 1024;

/**
 * Reads server-sent events from bytes that are cut anywhere (WHATWG HTML, 9.2.6), with one liberty: the last event
 * counts also without an empty line after it, because what the client was sent was sent.
 */
export class EventReader {
  readonly #options: EventOptions;
  readonly #most: number;
  /** What a line begins with, until its field is known. */
  #head: Buffer = NOTHING;
  #field: "unknown" | "data" | "event" | "other" = "unknown";
  #lineHasBytes = false;
  #afterCr = false;
  #atStart = true;
  #name = "";
  #room: Buffer = Buffer.allocUnsafe(ROOM);
  #size = 0;
  #dataLines = 0;
  #fields: FieldScan | null = null;

  constructor(options: EventOptions) {
    this.#options = options;
    this.#most = options.most ?? MOST_BYTES;
  }

  see(chunk: Buffer): void {
    let at = 0;
    if (this.#afterCr && chunk[0] === LF) at = 1;
    if (chunk.length > 0) this.#afterCr = false;
    while (at < chunk.length) {
      const end = lineEnd(chunk, at);
      if (end > at) this.#inLine(chunk, at, end);
      if (end === chunk.length) break;
      this.#endLine();
      at = end + 1;
      if (chunk[end] !== CR) continue;
      if (at === chunk.length) this.#afterCr = true;
      else if (chunk[at] === LF) at += 1;
    }
  }

  /** Nothing more comes. */
  finish(): void {
    if (this.#lineHasBytes) this.#endLine();
    this.#dispatch();
  }

  #inLine(chunk: Buffer, from: number, to: number): void {
    this.#lineHasBytes = true;
    if (this.#field !== "unknown") this.#take(chunk, from, to);
    else if (this.#head.length > 0) {
      const head = Buffer.concat([this.#head, chunk.subarray(from, to)]);
      this.#inField(head, 0, head.length, false);
    } else this.#inField(chunk, from, to, false);
  }

  /** The beginning of a line, as far as it is there. */
  #inField(chunk: Buffer, start: number, to: number, ended: boolean): void {
    const from = this.#atStart && chunk.indexOf(BYTE_ORDER_MARK, start) === start ? start + 3 : start;
    const most = Math.min(to, from + LONGEST_FIELD);
    let colon = from;
    while (colon < most && chunk[colon] !== COLON) colon += 1;
    // A field without a colon has no value; only the line's end tells it from one whose colon is still to come.
    if (colon === to && !ended) {
      this.#head = Buffer.from(chunk.subarray(start, to));
      return;
    }
    this.#head = NOTHING;
    this.#atStart = false;
    this.#field = colon === to || chunk[colon] === COLON ? fieldOf(chunk, from, colon) : "other";
    if (this.#field === "event") this.#name = "";
    if (this.#field === "data") {
      if (this.#dataLines > 0) this.#keep(LINE_BREAK, 0, 1);
      this.#dataLines += 1;
    }
    if (colon < to) this.#take(chunk, colon + 1, to);
  }

  #take(chunk: Buffer, from: number, to: number): void {
    if (this.#field === "data") this.#keep(chunk, from, to);
    else if (this.#field === "event" && this.#name.length < LONGEST_NAME)
      this.#name += chunk.toString("latin1", from, Math.min(to, from + LONGEST_NAME));
  }

  #keep(chunk: Buffer, from: number, to: number): void {
    const size = this.#size + to - from;
    if (this.#fields === null && size > this.#most) {
      this.#fields = new FieldScan(this.#options.wanted, undefined, true);
      this.#fields.see(this.#room.subarray(0, this.#size));
    }
    if (this.#fields !== null) {
      this.#fields.see(chunk.subarray(from, to));
      return;
    }
    if (size > this.#room.length) {
      const larger = Buffer.allocUnsafe(Math.max(size, Math.min(this.#most, 2 * this.#room.length)));
      this.#room.copy(larger, 0, 0, this.#size);
      this.#room = larger;
    }
    chunk.copy(this.#room, this.#size, from, to);
    this.#size = size;
  }

  #endLine(): void {
    if (!this.#lineHasBytes) {
      this.#dispatch();
      return;
    }
    if (this.#field === "unknown") this.#inField(this.#head, 0, this.#head.length, true);
    this.#field = "unknown";
    this.#lineHasBytes = false;
  }

  #dispatch(): void {
    if (this.#dataLines > 0 || this.#name !== "") {
      const fields = this.#fields;
      const data = fields === null ? this.#room.subarray(0, this.#size) : null;
      this.#options.onEvent({ name: this.#name.trim(), data, fields });
    }
    if (this.#size > ROOM) this.#room = Buffer.allocUnsafe(ROOM);
    this.#name = "";
    this.#size = 0;
    this.#dataLines = 0;
    this.#fields = null;
  }
}

function fieldOf(chunk: Buffer, from: number, to: number): "data" | "event" | "other" {
  if (to - from !== 4 && to - from !== 5) return "other";
  const name = chunk.toString("latin1", from, to);
  return name === "data" || name === "event" ? name : "other";
}

/** Where the line ends that holds the byte at `from`; the chunk's length: not in this chunk. */
function lineEnd(chunk: Buffer, from: number): number {
  const length = chunk.length;
  for (let at = from; at < length; at += 1) {
    const byte = chunk[at] ?? 0;
    if (byte === LF || byte === CR) return at;
  }
  return length;
}
