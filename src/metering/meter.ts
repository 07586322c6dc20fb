import { contentKind } from "./content-kind.ts";
import { createDecoder, type Decoder } from "./decode.ts";
import { type EventName, repeatsText } from "./event-name.ts";
import { type EventListener, EventReader } from "./events.ts";
import { FieldScan } from "./field-scan.ts";
import { isSpace, OPEN_LIST, OPEN_OBJECT, parsed } from "./json-bytes.ts";
import { LastWord } from "./last-word.ts";
import type { Metering } from "./protocols.ts";
import type { Meter, Reading, SoFar, TextSeen } from "./reading.ts";
import { Parsed, Tally, WANTED } from "./tally.ts";
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
  const encoding = head.contentEncoding?.trim() ?? "";
  if (encoding === "" || encoding.toLowerCase() === "identity") return body;
  return new DecodingMeter(
    body,
    createDecoder(encoding, (bytes) => body.see(bytes)),
  );
}

class DecodingMeter implements Meter {
  readonly #body: BodyReader;
  /** null: nobody here can. */
  readonly #decoder: Decoder | null;

  constructor(body: BodyReader, decoder: Decoder | null) {
    this.#body = body;
    this.#decoder = decoder;
  }

  see(chunk: Buffer): void {
    this.#decoder?.see(chunk);
  }

  soFar(): SoFar {
    return this.#body.soFar();
  }

  finish(done: (reading: Reading) => void): void {
    if (this.#decoder === null) done(this.#body.read("its encoding cannot be read here"));
    else this.#decoder.finish((trouble) => done(this.#body.read(trouble)));
  }
}

/** data, event, id, retry, or a comment. */
const FIRST_OF_EVENTS = /[deir:]/;
/** An event without any of these tells neither usage nor an end, and is not parsed: most of a stream. */
const MATTERS =
  /"usage(?:Metadata)?"\s*:\s*\{|"finish_?[rR]eason"\s*:\s*"|"error"\s*:\s*[{"]|"type"\s*:\s*"(?:message_stop|error|response\.(?:completed|failed|incomplete)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done)"/;
/** In so many events at most the answer's id and model are looked for: some leave them out of the first ones. */
const MOST_LOOKED_INTO = 16;
const NO_TEXT: TextSeen = Object.freeze({ ascii: 0, other: 0 });

/** An answer in plain. */
class BodyReader implements Meter, EventListener {
  readonly #head: AnswerHead;
  readonly #tally: Tally;
  readonly #lastWord: LastWord;
  /** The one of the two that the first byte decided for. */
  #fields: FieldScan | null = null;
  #events: EventReader | null = null;
  readonly #text: TextScan | null;
  /** Gateways lie about the content type, so that the first byte decides. */
  #kind: "unknown" | "json" | "events" | "neither" = "unknown";
  #lookedInto = 0;
  #pieces = 0;
  #trouble: string | null = null;

  constructor(head: AnswerHead) {
    this.#head = head;
    this.#tally = new Tally(head.metering);
    this.#lastWord = new LastWord(head.metering !== null);
    this.#text = head.countText && head.status < 400 ? new TextScan() : null;
    if (contentKind(head.contentType) === "media") this.#kind = "neither";
  }

  see(chunk: Buffer): void {
    if (this.#trouble !== null) return;
    // A bug here must cost a record its tokens, not a person their answer.
    try {
      this.#read(this.#kind === "unknown" ? this.#fromFirst(chunk) : chunk);
    } catch {
      this.#trouble = "the meter failed";
    }
  }

  soFar(): SoFar {
    return { pieces: this.#pieces, reported: this.#tally.tokens?.output ?? null };
  }

  finish(done: (reading: Reading) => void): void {
    done(this.read(null));
  }

  /** All that was learned. To be asked once. */
  read(trouble: string | null): Reading {
    try {
      this.#events?.finish();
      if (this.#fields !== null) this.#tally.take(this.#fields);
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
      text: this.#text?.seen ?? NO_TEXT,
      reached: told ? reached : null,
      failed: told && failed,
      trouble: said,
    };
  }

  /** What follows the white space, and the byte order mark, with which an answer may begin. */
  #fromFirst(chunk: Buffer): Buffer {
    let at = 0;
    while (at < chunk.length && isBeforeFirst(chunk[at] ?? 0)) at += 1;
    const first = chunk[at];
    if (first === undefined) return chunk.subarray(chunk.length);
    if (first === OPEN_OBJECT || first === OPEN_LIST) this.#kind = "json";
    else if (contentKind(this.#head.contentType) === "events") this.#kind = "events";
    else this.#kind = FIRST_OF_EVENTS.test(String.fromCharCode(first)) ? "events" : "neither";
    if (this.#kind === "json") this.#fields = new FieldScan(WANTED, undefined, true);
    else if (this.#kind === "events") this.#events = new EventReader(this, WANTED);
    return at === 0 ? chunk : chunk.subarray(at);
  }

  #read(chunk: Buffer): void {
    if (this.#events !== null) this.#events.see(chunk);
    else if (this.#fields !== null) {
      this.#fields.see(chunk);
      this.#text?.see(chunk);
    }
  }

  onEvent(name: EventName, bytes: Buffer, from: number, to: number): void {
    if (name.brings) this.#pieces += 1;
    const { known } = this.#tally;
    if (known && this.#text === null && name.onlyText) return;
    // One character a byte: quick to make, and to search.
    const text = bytes.toString("latin1", from, to);
    this.#lastWord.hear(name, text);
    if ((!known && this.#lookedInto < MOST_LOOKED_INTO) || MATTERS.test(text)) {
      this.#lookedInto += 1;
      const document = new Parsed(parsed(bytes.toString("utf8", from, to)));
      this.#tally.take(document);
      this.#lastWord.take(document);
    }
    if (this.#text === null) return;
    if (name.text === "" ? repeatsText(typeOf(text)) : name.repeats) return;
    this.#text.see(bytes.subarray(from, to));
    this.#text.reset();
  }

  onLongEvent(name: EventName, fields: FieldScan): void {
    if (name.brings) this.#pieces += 1;
    if (this.#tally.known && this.#text === null && name.onlyText) return;
    this.#lastWord.missed(name);
    this.#tally.take(fields);
    this.#lastWord.take(fields);
  }
}

function isBeforeFirst(byte: number): boolean {
  return isSpace(byte) || byte === 0xef || byte === 0xbb || byte === 0xbf;
}

/** The type that stands first in the data of events without a name. */
function typeOf(text: string): string {
  return /^\s*\{\s*"type"\s*:\s*"([\w.]+)"/.exec(text)?.[1] ?? "";
}
