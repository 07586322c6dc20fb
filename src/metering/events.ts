import { type EventName, eventName, UNNAMED } from "./event-name.ts";
import { FieldScan } from "./field-scan.ts";
import type { Wanted } from "./wanted.ts";

/** Told of server-sent events, one after the other. */
export interface EventListener {
  /**
   * The `data:` lines of an event as one text, with the spaces that follow the colons, are these bytes. Valid during the
   * call only, since the next event is written over it.
   */
  onEvent(name: EventName, bytes: Buffer, from: number, to: number): void;
  /** Its data was too long to be kept; this was found in it. */
  onLongEvent(name: EventName, fields: FieldScan): void;
}

const MOST_BYTES = 1024 * 1024;
const LONGEST_NAME = 128;
const LF = 0x0a;
const CR = 0x0d;
const LINE_BREAK = Buffer.from("\n");
const COLON = 0x3a;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const NOTHING = Buffer.alloc(0);
const DATA = Buffer.from("data:");
const EVENT = Buffer.from("event:");
/** "event". What has no colon by then is no field of ours. */
const LONGEST_FIELD = 5;
/** What one event needs at first, and what is given back after one that needed more. */
const ROOM = 4 * 1024;

/**
 * Reads server-sent events from bytes that are cut anywhere (WHATWG HTML, 9.2.6), with one liberty: the last event
 * counts also without an empty line after it, because what the client was sent was sent.
 */
export class EventReader {
  readonly #listener: EventListener;
  readonly #wanted: readonly string[] | Wanted;
  readonly #most: number;
  /** Where the next ones of these stand in the present chunk: its length where there is none, less than asked: unknown. */
  #lf = -1;
  #cr = -1;
  /** What a line begins with, until its field is known. */
  #head: Buffer = NOTHING;
  #field: "unknown" | "data" | "event" | "other" = "unknown";
  #lineHasBytes = false;
  #afterCr = false;
  #atStart = true;
  #name = "";
  /** The last name, and how it was written. */
  #named: EventName = UNNAMED;
  #written: Buffer = NOTHING;
  #room: Buffer = NOTHING;
  #size = 0;
  #dataLines = 0;
  #fields: FieldScan | null = null;

  /**
   * @param wanted what to look for in an event that is too long to be kept.
   * @param most bytes of data kept of one event.
   */
  constructor(listener: EventListener, wanted: readonly string[] | Wanted, most: number = MOST_BYTES) {
    this.#listener = listener;
    this.#wanted = wanted;
    this.#most = most;
  }

  see(chunk: Buffer): void {
    let at = 0;
    if (this.#afterCr && chunk[0] === LF) at = 1;
    if (chunk.length > 0) this.#afterCr = false;
    this.#lf = -1;
    this.#cr = -1;
    while (at < chunk.length) {
      const next = this.#isBetween() ? this.#tryPlain(chunk, at) : -1;
      if (next !== -1) {
        at = next;
        continue;
      }
      const end = this.#lineEnd(chunk, at);
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

  /** Nothing came yet of the present event. */
  #isBetween(): boolean {
    return !this.#lineHasBytes && this.#dataLines === 0 && this.#name === "";
  }

  #tryPlain(chunk: Buffer, at: number): number {
    this.#lineEnd(chunk, at);
    const lf = this.#lf;
    const cr = this.#cr;
    const next = this.#plainEvent(chunk, at);
    if (next === -1) {
      this.#lf = lf;
      this.#cr = cr;
    }
    return next;
  }

  /**
   * An event of at most a name and one line of data that is whole in this chunk, as nearly all are: it is read where it
   * stands. Where the next one begins; -1: it is none of these.
   */
  #plainEvent(chunk: Buffer, start: number): number {
    let at = start;
    let name = UNNAMED;
    if (stands(chunk, at, EVENT)) {
      const end = this.#lineEnd(chunk, at);
      if (end - at > LONGEST_NAME) return -1;
      name = this.#nameIn(chunk, at + EVENT.length, end);
      at = this.#nextLine(chunk, end);
    }
    if (at === -1 || !stands(chunk, at, DATA)) return -1;
    const from = at + DATA.length;
    const to = this.#lineEnd(chunk, at);
    const blank = this.#nextLine(chunk, to);
    if (blank === -1 || to - from > this.#most) return -1;
    const next = this.#lineEnd(chunk, blank) === blank ? this.#nextLine(chunk, blank) : -1;
    if (next === -1) return -1;
    this.#atStart = false;
    this.#listener.onEvent(name, chunk, from, to);
    return next;
  }

  /** Behind the line break at `end`; -1: there is none, or the rest of it may be in the next chunk. */
  #nextLine(chunk: Buffer, end: number): number {
    if (end === chunk.length || (chunk[end] === CR && end + 1 === chunk.length)) return -1;
    return chunk[end] === CR && chunk[end + 1] === LF ? end + 2 : end + 1;
  }

  #nameIn(chunk: Buffer, from: number, to: number): EventName {
    if (this.#written.length === to - from && stands(chunk, from, this.#written)) return this.#named;
    this.#written = Buffer.from(chunk.subarray(from, to));
    this.#named = eventName(chunk.toString("latin1", from, to).trim());
    return this.#named;
  }

  /** Where the line ends that holds the byte at `from`; the chunk's length: not in this chunk. */
  #lineEnd(chunk: Buffer, from: number): number {
    if (this.#lf < from) this.#lf = indexOrEnd(chunk, LF, from);
    if (this.#cr < from) this.#cr = indexOrEnd(chunk, CR, from);
    return Math.min(this.#lf, this.#cr);
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
      this.#fields = new FieldScan(this.#wanted, undefined, true);
      this.#fields.see(this.#room.subarray(0, this.#size));
    }
    if (this.#fields !== null) {
      this.#fields.see(chunk.subarray(from, to));
      return;
    }
    if (size > this.#room.length) {
      const larger = Buffer.allocUnsafe(Math.max(size, ROOM, Math.min(this.#most, 2 * this.#room.length)));
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
      const name = this.#name === "" ? UNNAMED : eventName(this.#name.trim());
      if (this.#fields === null) this.#listener.onEvent(name, this.#room, 0, this.#size);
      else this.#listener.onLongEvent(name, this.#fields);
    }
    if (this.#size > ROOM) this.#room = NOTHING;
    this.#name = "";
    this.#size = 0;
    this.#dataLines = 0;
    this.#fields = null;
  }
}

function fieldOf(chunk: Buffer, from: number, to: number): "data" | "event" | "other" {
  const length = to - from;
  if (length === 4 && stands(chunk, from, DATA, length)) return "data";
  return length === 5 && stands(chunk, from, EVENT, length) ? "event" : "other";
}

function stands(chunk: Buffer, at: number, what: Buffer, length: number = what.length): boolean {
  if (at + length > chunk.length) return false;
  for (let i = 0; i < length; i += 1) if (chunk[at + i] !== what[i]) return false;
  return true;
}

function indexOrEnd(chunk: Buffer, byte: number, from: number): number {
  const at = chunk.indexOf(byte, from);
  return at === -1 ? chunk.length : at;
}
