import type { Metering } from "../record.ts";
import { createDecoder } from "./decode.ts";
import { EventReader, type ServerEvent } from "./events.ts";
import { FieldScan } from "./field-scan.ts";
import { isSpace, OPEN_LIST, OPEN_OBJECT, parsed } from "./json-bytes.ts";
import { LastWord } from "./last-word.ts";
import type { Meter, Reading, SoFar } from "./reading.ts";
import { lookupIn, Tally, WANTED } from "./tally.ts";
import { TextScan } from "./text-scan.ts";

/** What is known of an answer before its body. */
export interface AnswerHead {
  /** null: nothing that is billed by tokens, of which only the stream's end is read. */
  readonly metering: Metering | null;
  readonly status: number;
  readonly contentType: string;
  readonly contentEncoding: string | undefined;
  /** Whether to count the text, for an estimate. */
  readonly countText: boolean;
}

/** Listens to an answer, plain or compressed, JSON or a stream of events, in memory that does not grow with it. */
export function createMeter(head: AnswerHead): Meter {
  const body = new BodyReader(head);
  const soFar = () => body.soFar();
  const encoding = head.contentEncoding?.trim() ?? "";
  if (encoding === "" || encoding.toLowerCase() === "identity") {
    return { see: (chunk) => body.see(chunk), soFar, finish: (done) => done(body.finish(null)) };
  }
  const decoder = createDecoder(encoding, (bytes) => body.see(bytes));
  if (decoder === null) {
    return { see: () => {}, soFar, finish: (done) => done(body.finish("its encoding cannot be read here")) };
  }
  return {
    see: (chunk) => decoder.see(chunk),
    soFar,
    finish: (done) => decoder.finish((trouble) => done(body.finish(trouble))),
  };
}

/** These are never text, whatever byte they begin with. */
const NO_TEXT = /^\s*(?:image|audio|video|font)\//i;
const EVENT_STREAM = /^\s*text\/event-stream\b/i;
/** data, event, id, retry, or a comment. */
const FIRST_OF_EVENTS = /[deir:]/;
/** An event without any of these tells neither usage nor an end, and is not parsed: most of a stream. */
const MATTERS =
  /"usage(?:Metadata)?"\s*:\s*\{|"finish_?[rR]eason"\s*:\s*"|"error"\s*:\s*[{"]|"type"\s*:\s*"(?:message_stop|error|response\.(?:completed|failed|incomplete)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done)"/;
/** Named so, it is a piece of text and nothing else. */
const PIECE = /^(?:content_block_delta|ping|response\.[\w.]+\.delta)$/;
/** Named so, it repeats what the pieces said. */
const REPEATS =
  /^(?:message_(?:start|delta|stop)|content_block_(?:start|stop)|.+\.(?:done|added|created|queued|in_progress|completed|incomplete|failed))$/;
/** In so many events at most the answer's id and model are looked for: some leave them out of the first ones. */
const MOST_LOOKED_INTO = 16;

class BodyReader {
  readonly #head: AnswerHead;
  readonly #tally: Tally;
  readonly #lastWord: LastWord;
  /** The one of the two that the first byte decided for. */
  #fields: FieldScan | null = null;
  #events: EventReader | null = null;
  readonly #text: TextScan | null;
  /** Gateways lie about the content type, so that the first byte decides. */
  #kind: "unknown" | "json" | "events" | "neither";
  #lookedInto = 0;
  #pieces = 0;
  #trouble: string | null = null;

  constructor(head: AnswerHead) {
    this.#head = head;
    this.#tally = new Tally(head.metering);
    this.#lastWord = new LastWord(head.metering !== null);
    this.#text = head.countText && head.status < 400 ? new TextScan() : null;
    this.#kind = NO_TEXT.test(head.contentType) ? "neither" : "unknown";
  }

  see(chunk: Buffer): void {
    // A bug here must cost a record its tokens, not a person their answer.
    try {
      if (this.#trouble === null) this.#read(this.#kind === "unknown" ? this.#fromFirst(chunk) : chunk);
    } catch {
      this.#trouble = "the meter failed";
    }
  }

  soFar(): SoFar {
    return { pieces: this.#pieces, reported: this.#tally.tokens?.output ?? null };
  }

  finish(trouble: string | null): Reading {
    try {
      const fields = this.#fields;
      this.#events?.finish();
      if (fields !== null) this.#tally.take((path) => fields.get(path));
    } catch {
      this.#trouble = "the meter failed";
    }
    const said = this.#trouble ?? trouble;
    const { reached, failed } = this.#lastWord;
    // What was not read to the end may have ended as it should; and an error is no stream, however it is written.
    const told = this.#head.status < 400 && (reached === true || said === null);
    return {
      tokens: this.#tally.tokens,
      model: this.#tally.model,
      id: this.#tally.id,
      text: this.#text?.seen ?? { ascii: 0, other: 0 },
      reached: told ? reached : null,
      failed: told && failed,
      trouble: said,
    };
  }

  /** What follows the white space, and the byte order mark, with which an answer may begin. */
  #fromFirst(chunk: Buffer): Buffer {
    const at = chunk.findIndex((byte) => !isSpace(byte) && byte !== 0xef && byte !== 0xbb && byte !== 0xbf);
    const first = chunk[at];
    if (first === undefined) return chunk.subarray(chunk.length);
    if (first === OPEN_OBJECT || first === OPEN_LIST) this.#kind = "json";
    else if (EVENT_STREAM.test(this.#head.contentType)) this.#kind = "events";
    else this.#kind = FIRST_OF_EVENTS.test(String.fromCharCode(first)) ? "events" : "neither";
    if (this.#kind === "json") this.#fields = new FieldScan(WANTED, undefined, true);
    else if (this.#kind === "events")
      this.#events = new EventReader({ onEvent: (event) => this.#onEvent(event), wanted: WANTED });
    return chunk.subarray(at);
  }

  #read(chunk: Buffer): void {
    this.#events?.see(chunk);
    if (this.#fields === null) return;
    this.#fields.see(chunk);
    this.#text?.see(chunk);
  }

  #onEvent({ name, data, fields }: ServerEvent): void {
    // Without names, every event of a stream is a piece, but for its first and last.
    if (name === "" || (name.endsWith("delta") && name !== "message_delta")) this.#pieces += 1;
    const known = this.#tally.id !== null && this.#tally.model !== null;
    if (known && this.#text === null && PIECE.test(name)) return;
    const text = data?.toString("latin1") ?? "";
    this.#lastWord.hear(name, text);
    if (fields !== null) {
      this.#lastWord.missed();
      this.#tally.take((path) => fields.get(path));
      this.#lastWord.take((path) => fields.get(path));
    } else if ((!known && this.#lookedInto < MOST_LOOKED_INTO) || MATTERS.test(text)) {
      this.#lookedInto += 1;
      const lookup = lookupIn(parsed(data?.toString("utf8") ?? ""));
      this.#tally.take(lookup);
      this.#lastWord.take(lookup);
    }
    if (this.#text !== null && data !== null && !REPEATS.test(name || typeOf(text))) {
      this.#text.see(data);
      this.#text.reset();
    }
  }
}

/** The type that stands first in the data of events without a name. */
function typeOf(text: string): string {
  return /^\s*\{\s*"type"\s*:\s*"([\w.]+)"/.exec(text)?.[1] ?? "";
}
