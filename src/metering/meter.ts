import { Chunks } from "./chunks.ts";
import { Decoder } from "./decode.ts";
import { ResponseText, SampledText, type TextBytes } from "./estimate.ts";
import { jsonFields, OPEN_OBJECT } from "./json-fields.ts";
import { contentKind, type Metering } from "./protocols.ts";
import { BoundedText, EventReader, MAX_HEAD, MAX_TAIL, type StreamEvent } from "./sse.ts";
import { isDelta, isOnlyText, mayMatter, ResponseEnd, repeatsText } from "./stream.ts";
import { ResponseFacts, type Tokens } from "./usage.ts";

/** What is known of a response before its body. */
export interface ResponseHead {
  /** null: not billed by tokens. Only the end of a stream is read. */
  readonly metering: Metering | null;
  readonly status: number;
  readonly contentType: string;
  readonly contentEncoding: string | undefined;
  /** Whether to count the text, for an estimate. */
  readonly countText: boolean;
  /** Whether to know roughly what a stream has written so far. */
  readonly sampleText?: boolean;
}

/** What was read from a response. */
export interface Reading {
  /** null: it reported none that could be read. */
  readonly tokens: Tokens | null;
  /** The model that the response names. */
  readonly model: string | null;
  /** The response's own id: chatcmpl-…, msg_…, resp_… */
  readonly id: string | null;
  /** The service tier that the response names, for Prices; null: it names none, and the request's counts. */
  readonly serviceTier: string | null;
  /** What the model wrote, for an estimate if no tokens are reported. */
  readonly text: TextBytes;
  /**
   * Whether an event stream reached its terminator. false: it was cut, and the tokens are those it had reported by then.
   * null: this is not a stream, or it is not known how it should end.
   */
  readonly reached: boolean | null;
  /** The stream ended with an error. */
  readonly failed: boolean;
  /**
   * The status is good, but the response is only an error, with neither output nor usage before it. sub2api refuses
   * like this after it has sent pings to a waiting client.
   */
  readonly refused: boolean;
  /** The text of that error; null: the response is not refused. */
  readonly refusal: string | null;
  /** Why the response was not read to its end; null: it was. */
  readonly problem: string | null;
}

/** What is known of a response's output while it arrives. */
interface SoFar {
  /** Events with output. Most have about one token. */
  readonly deltas: number;
  /** Output tokens that the response reported so far; null: none. Some streams begin with a placeholder. */
  readonly reported: number | null;
  /** Output tokens by a sample of the text; 0: none was taken. */
  readonly written: number;
}

const NO_TEXT: TextBytes = Object.freeze({ ascii: 0, other: 0 });
/** Events that are parsed to find the response's id and model. Some gateways leave them out of the first ones. */
const MAX_EVENTS_FOR_NAMES = 16;
const MAX_ERROR = 4096;

/** Reads one response as its bytes pass. No method throws, and memory does not grow with the response. */
export class Meter {
  readonly #head: ResponseHead;
  readonly #decoder: Decoder;
  readonly #facts: ResponseFacts;
  readonly #end: ResponseEnd;
  readonly #text: ResponseText | null;
  readonly #sample: SampledText | null;
  /** Gateways state wrong content types, so the first byte decides. */
  #format: "unknown" | "json" | "events" | "other" = "unknown";
  /** A JSON body of which one chunk came, as most bodies have only one. */
  #jsonChunk: Buffer | null = null;
  #json: BoundedText | null = null;
  #events: EventReader | null = null;
  #eventsForNames = 0;
  #deltas = 0;
  /** The first error that ended the response, in latin1. */
  #error: string | null = null;
  #problem: string | null = null;

  constructor(head: ResponseHead) {
    this.#head = head;
    this.#decoder = new Decoder(head.contentEncoding ?? "", (bytes) => this.#seeBytes(bytes));
    this.#facts = new ResponseFacts(head.metering);
    this.#end = new ResponseEnd(head.metering !== null);
    this.#text = head.countText && head.status < 400 ? new ResponseText() : null;
    this.#sample = head.sampleText === true && head.status < 400 ? new SampledText() : null;
    if (contentKind(head.contentType) === "media") this.#format = "other";
  }

  see(chunk: Buffer): void {
    this.#decoder.see(chunk);
  }

  soFar(): SoFar {
    const { tokens } = this.#facts;
    return { deltas: this.#deltas, reported: tokens?.output ?? null, written: this.#sample?.tokens ?? 0 };
  }

  /** Waits until the last byte is decoded. To be called once. */
  async finish(): Promise<Reading> {
    const decodeProblem = await this.#decoder.finish();
    try {
      if (this.#format === "events") this.#events?.finish();
      if (this.#format === "json") this.#finishJson();
    } catch {
      this.#giveUp();
    }
    const problem = this.#problem ?? decodeProblem;
    const { tokens, model, id } = this.#facts;
    const { reached, failed, refused } = this.#end;
    const isStream = this.#format === "events";
    // A part that was not read may hold the terminator. A response with an error status is not a stream, whatever its body.
    const isKnown = this.#head.status < 400 && (reached === true || problem === null);
    const isRefused = isKnown && refused && tokens === null;
    return {
      tokens,
      model,
      id,
      serviceTier: this.#facts.serviceTier(),
      text: this.#text?.bytes ?? NO_TEXT,
      reached: isKnown && isStream ? reached : null,
      failed: isKnown && isStream && failed,
      refused: isRefused,
      refusal: isRefused && this.#error !== null ? Buffer.from(this.#error, "latin1").toString("utf8") : null,
      problem,
    };
  }

  #seeBytes(bytes: Buffer): void {
    if (this.#format === "other") return;
    // A bug here may cost a record its tokens, but never a client its response.
    try {
      if (this.#format === "unknown" && isOpening(bytes[0])) {
        this.#format = "json";
        this.#jsonChunk = bytes;
        return;
      }
      this.#seeJsonChunk();
      // As latin1, each byte is one character, so no chunk ends inside a character. All that is searched for is ASCII.
      this.#seeText(bytes.toString("latin1"));
    } catch {
      this.#giveUp();
    }
  }

  #giveUp(): void {
    this.#format = "other";
    this.#problem = "the meter failed";
  }

  #seeText(chunk: string): void {
    let text = chunk;
    if (this.#format === "unknown") {
      // White space and a byte order mark may come before the first byte that counts.
      text = chunk.replace(/^[\s\xef\xbb\xbf]+/, "");
      if (text === "") return;
      this.#format = this.#detectFormat(text);
    }
    if (this.#format === "json") {
      this.#json ??= new BoundedText();
      this.#json.add(text);
    } else if (this.#format === "events") {
      this.#events ??= new EventReader((event) => this.#seeEvent(event));
      this.#events.see(text);
    }
  }

  #detectFormat(text: string): "json" | "events" | "other" {
    if (/^[{[]/.test(text)) return "json";
    if (contentKind(this.#head.contentType) === "events") return "events";
    // data, event, id, retry, or a comment
    return /^[deir:]/.test(text) ? "events" : "other";
  }

  /** The first chunk was not the only one, or its fields are not enough. */
  #seeJsonChunk(): void {
    const chunk = this.#jsonChunk;
    this.#jsonChunk = null;
    if (chunk !== null) this.#seeText(chunk.toString("latin1"));
  }

  #finishJson(): void {
    // A plain response with usage is not an error. To parse only its small fields takes 10 µs less.
    if (this.#jsonChunk !== null && this.#text === null) {
      const summary = readSummary(new Chunks([this.#jsonChunk]));
      if (summary !== null) this.#facts.add(summary);
      if (this.#facts.tokens !== null) return;
    }
    this.#seeJsonChunk();
    if (this.#json !== null) this.#readJson(this.#json);
  }

  #readJson({ text, shortened }: BoundedText): void {
    const documents = documentsIn(text, shortened, (json) => this.#parse(json));
    for (const document of documents.found) this.#addDocument(document, true);
    this.#noteError(text);
  }

  #noteError(text: string): void {
    if (this.#error === null && this.#end.failed) this.#error = text.slice(0, MAX_ERROR);
  }

  #addDocument(document: unknown, hasNewText: boolean): void {
    this.#facts.add(document);
    this.#end.seeDocument(document);
    if (hasNewText) this.#text?.add(document);
  }

  #seeEvent(event: StreamEvent): void {
    const { name, data, shortened } = event;
    if (isDelta(name)) {
      this.#deltas += 1;
      this.#sample?.add(data, parseUtf8);
    }
    const lacksNames = this.#facts.id === null || this.#facts.model === null;
    if (!lacksNames && this.#text === null && isOnlyText(name)) {
      this.#end.seeText();
      return;
    }
    this.#end.seeEvent(event);
    this.#noteError(data);
    const findsNames = lacksNames && this.#eventsForNames < MAX_EVENTS_FOR_NAMES;
    const hasNewText = this.#text !== null && !repeatsText(event);
    if (!findsNames && !hasNewText && !shortened && !mayMatter(data)) return;
    this.#eventsForNames += 1;
    const documents = documentsIn(data, shortened, (json) => this.#parse(json));
    if (!documents.whole) {
      // A client drops an event that was cut. One that is only shortened here may have been the terminator.
      if (!shortened) return;
      this.#end.missed();
    }
    for (const document of documents.found) this.#addDocument(document, hasNewText);
    this.#noteError(data);
  }

  /** undefined: this is not JSON. */
  #parse(json: string): unknown {
    // The text is latin1 here. Only counting it needs the real characters.
    return this.#text === null ? parseJson(json) : parseUtf8(json);
  }
}

function isOpening(byte: number | undefined): boolean {
  return byte === OPEN_OBJECT;
}

/** The fields of a plain response that ResponseFacts reads, and those that hold others. */
const SUMMARY = /^(?:id|responseId|model|modelVersion|service_tier|usage|usageMetadata)$/;
const NOT_PLAIN = /^(?:error|response|message|x_groq)$/;

/** null: the response is not plain, or a field of the summary is there twice. */
function readSummary(body: Chunks): object | null {
  const summary: Record<string, unknown> = {};
  for (const { key, from, to } of jsonFields(body)?.fields ?? []) {
    if (NOT_PLAIN.test(key)) return null;
    if (!SUMMARY.test(key)) continue;
    if (key in summary) return null;
    summary[key] = parseJson(body.toString("utf8", from, to));
  }
  return summary;
}

/** undefined: this is not JSON. */
function parseJson(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** @param json its bytes as latin1. */
function parseUtf8(json: string): unknown {
  return parseJson(/[\x80-\xff]/.test(json) ? Buffer.from(json, "latin1").toString("utf8") : json);
}

interface Documents {
  readonly found: readonly unknown[];
  /** false: parts of them are missing. */
  readonly whole: boolean;
}

type Parse = (json: string) => unknown;

/** The JSON documents in a text: one, or the items of a list, in which Gemini streams without alt=sse. */
function documentsIn(text: string, shortened: boolean, parse: Parse): Documents {
  const document = parse(text);
  if (document !== undefined) return { found: listItems(document), whole: true };
  const beginning = parse(closeJson(text.slice(0, MAX_HEAD)));
  const end = shortened ? fieldsAtEnd(text.slice(-MAX_TAIL), parse) : undefined;
  return { found: [...listItems(beginning), ...listItems(end)], whole: false };
}

function listItems(document: unknown): unknown[] {
  return Array.isArray(document) ? document : [document];
}

/** A string, a bracket, a comma, or the quote of a string that does not end. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},"]/gs;

/** Cuts off what follows the end of a JSON text. If its end is missing, closes it after its last complete outer field. */
function closeJson(text: string): string {
  const closers: string[] = [];
  let end = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (token === '"') break;
    if (token === "{") closers.push("}");
    else if (token === "[") closers.push("]");
    else if (token === "}" || token === "]") closers.pop();
    if (closers.length === 0) return text.slice(0, index + 1);
    if (closers.length > 1) continue;
    if (token === ",") end = index;
    else if (token === "}" || token === "]") end = index + 1;
  }
  return text.slice(0, end) + (closers[0] ?? "");
}

const FIELD = /"(?:id|responseId|model|modelVersion|usage|usageMetadata)"\s*:/g;
/** What may come before a field that ResponseFacts reads. */
const OPENINGS = ["{", "[{", '{"response":{'];
const MAX_FIELDS = 8;

/** Reads the last fields of a document whose beginning is missing. Only outer fields parse up to the end of the text. */
function fieldsAtEnd(text: string, parse: Parse): unknown {
  for (const { index } of [...text.matchAll(FIELD)].slice(-MAX_FIELDS)) {
    for (const opening of OPENINGS) {
      const document = parse(opening + text.slice(index));
      if (document !== undefined) return document;
    }
  }
  return undefined;
}
