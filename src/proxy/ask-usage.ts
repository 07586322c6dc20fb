import { Chunks } from "../metering/chunks.ts";
import { type JsonFields, jsonFields } from "../metering/json-fields.ts";

/*
 * For tools with `ask_usage: true`: a streamed chat or completion is asked to report its usage, and the chunk that the
 * gateway adds for that is removed again. The gateway also puts `"usage":null` into every other chunk. Those pass as they
 * are: clients know them from gateways that always report.
 */

const OPTIONS = '"stream_options":{"include_usage":true}';
const OPTION = '"include_usage":true';

/**
 * The body with `stream_options.include_usage: true` added; every other byte stays as it is. null: it is not a stream, or
 * says itself whether it asks for usage, or is not plain enough to be sure, such as with a key that is there twice or in
 * capitals, which some gateways take for the same.
 */
export function askForUsage(body: Buffer): Buffer | null {
  const outer = jsonFields(new Chunks([body]));
  if (outer === null || count(outer, "stream") !== 1 || count(outer, "stream_options") > 1) return null;
  const stream = outer.fields.find(({ key }) => key === "stream");
  if (stream === undefined || body.toString("latin1", stream.from, stream.to) !== "true") return null;
  const options = outer.fields.find(({ key }) => key.toLowerCase() === "stream_options");
  if (options === undefined) return spliced(body, outer.end, outer.end, `,${OPTIONS}`);
  if (options.key !== "stream_options") return null;
  if (body.toString("latin1", options.from, options.to) === "null")
    return spliced(body, options.from, options.to, `{${OPTION}}`);
  const inner = jsonFields(new Chunks([body.subarray(options.from, options.to)]));
  if (inner === null || count(inner, "include_usage") > 0) return null;
  const end = options.from + inner.end;
  return spliced(body, end, end, inner.fields.length > 0 ? `,${OPTION}` : OPTION);
}

function count({ fields }: JsonFields, name: string): number {
  return fields.filter(({ key }) => key.toLowerCase() === name).length;
}

function spliced(body: Buffer, from: number, to: number, text: string): Buffer {
  return Buffer.concat([body.subarray(0, from), Buffer.from(text), body.subarray(to)]);
}

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
/** A longer event is not one that only reports usage. */
const MAX_EVENT = 16 * 1024;

/** Quotes inside a JSON string are escaped, so no text of a model can look like these. */
const EMPTY_CHOICES = /"choices"\s*:\s*\[\s*\]/;
const SOME_CHOICES = /"choices"\s*:\s*\[\s*[^\s\]]/;
/** [DONE], or anything else that is no object. */
const OTHER_DATA = /(?:^|\n)data:[ \t]*[^\s{]/;
/** A line of an event begins with data, event, id, retry, a colon, or a byte order mark. */
const FIRST_BYTES = "deir:\r\n\u00ef";

/**
 * Removes the chunk that only reports usage, the one without choices, from an event stream. All other bytes pass at once.
 * Only the beginning of an event that may still be that chunk is held back; a client could not use it yet either.
 */
export class UsageFilter {
  /** The beginning of the current event, from earlier chunks. */
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The current event is not the one to remove. */
  #isPassing = false;
  /** The current line is empty so far, or only a carriage return. */
  #isLineEmpty = true;
  /** No line of the current event was seen yet. */
  #isNewEvent = true;
  #isComment = false;

  /** The bytes that may pass now; null: none. */
  pass(chunk: Buffer): Buffer | null {
    const heldBefore = this.#heldBytes;
    const out: Buffer[] = [];
    let begin = 0;
    for (let at = 0; at < chunk.length; ) {
      const lf = chunk.indexOf(LF, at);
      const isWhole = lf !== -1;
      const end = isWhole ? lf + 1 : chunk.length;
      if (this.#endsEvent(chunk, at, isWhole ? lf : end, isWhole)) {
        this.#endEvent(chunk.subarray(begin, end), out);
        begin = end;
      }
      at = end;
    }
    if (begin < chunk.length) this.#hold(chunk.subarray(begin), out);
    const size = out.reduce((sum, part) => sum + part.length, 0);
    // Most chunks pass whole, and are not copied.
    if (heldBefore === 0 && size === chunk.length) return chunk;
    return size === 0 ? null : Buffer.concat(out, size);
  }

  /** The last bytes; null: there are none. The stream may end in the middle of an event. */
  end(): Buffer | null {
    const last = Buffer.concat(this.#held);
    return last.length === 0 || isUsageEvent(last) ? null : last;
  }

  /** Reads a line, or a part of one. Whether an event, or a comment between two events, ends with it. */
  #endsEvent(chunk: Buffer, from: number, to: number, isWhole: boolean): boolean {
    if (this.#isLineEmpty && to > from) {
      if (this.#isNewEvent) this.#isComment = chunk[from] === COLON;
      this.#isLineEmpty = to === from + 1 && chunk[from] === CR;
    }
    if (!isWhole) return false;
    // Some gateways keep the connection alive with comments, which must not wait for the next event.
    const ended = this.#isLineEmpty || this.#isComment;
    this.#isNewEvent = ended;
    this.#isComment = false;
    this.#isLineEmpty = true;
    return ended;
  }

  #endEvent(last: Buffer, out: Buffer[]): void {
    const event = this.#held.length === 0 ? last : Buffer.concat([...this.#held, last]);
    if (this.#isPassing || !isUsageEvent(event)) out.push(event);
    this.#startEvent(false);
  }

  #hold(part: Buffer, out: Buffer[]): void {
    if (this.#isPassing) {
      out.push(part);
      return;
    }
    const event = Buffer.concat([...this.#held, part]);
    this.#held = [event];
    this.#heldBytes = event.length;
    if (event.length <= MAX_EVENT && mayBeUsageEvent(event)) return;
    out.push(event);
    this.#startEvent(true);
  }

  #startEvent(isPassing: boolean): void {
    this.#held = [];
    this.#heldBytes = 0;
    this.#isPassing = isPassing;
  }
}

/** By the beginning of an event. */
function mayBeUsageEvent(begun: Buffer): boolean {
  const text = begun.toString("latin1");
  return FIRST_BYTES.includes(text.charAt(0)) && !SOME_CHOICES.test(text) && !OTHER_DATA.test(text);
}

function isUsageEvent(event: Buffer): boolean {
  if (event.length > MAX_EVENT || !EMPTY_CHOICES.test(event.toString("latin1"))) return false;
  const lines = event.toString("utf8").split(/\r?\n/);
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice("data:".length));
  try {
    const { choices, usage } = JSON.parse(data.join("\n"));
    return Array.isArray(choices) && choices.length === 0 && typeof usage === "object" && usage !== null;
  } catch {
    // Not JSON, so not the chunk to remove.
    return false;
  }
}
