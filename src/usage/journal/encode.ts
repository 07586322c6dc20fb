import { NO_IDS } from "../../metering/gateway-ids.ts";
import type { Closing, Opening } from "../record.ts";
import type { Line } from "./lines.ts";

/*
 * The lines as text, in ASCII: the "…" of a key's fingerprint would make V8 write a whole line with two bytes per character.
 * The `open` and `close` lines of a request take 3 µs field by field, and 5 to 7 in a loop over the names. The test compares
 * every field.
 */

/** Encodes the part of an `open` line that the `close` line repeats: all but `model` and `sent_at`, which may change. */
export class SharedFields {
  /** Most requests of a client differ in few fields, so the text of the others is kept: 2 µs of a request. */
  #last: Opening | null = null;
  #caller = "";

  encode(opening: Opening): string {
    if (this.#last === null || !isSameCaller(this.#last, opening))
      this.#caller = inBytes(encodeCaller(opening));
    this.#last = opening;
    return (
      `,"id":${text(opening.id)},"started_at":${number(opening.started_at)}${this.#caller}` +
      `,"waited_ms":${number(opening.waited_ms)},"held_tokens":${number(opening.held_tokens)}` +
      `,"held_microdollars":${number(opening.held_microdollars)},"admitted_at":${number(opening.admitted_at)}` +
      known("counted_session", opening.counted_session)
    );
  }
}

function encodeCaller(opening: Opening): string {
  return (
    `,"tool":${text(opening.tool)},"gateway":${text(opening.gateway)},"group":${text(opening.group)}` +
    `,"multiplier":${number(opening.multiplier)},"key":${text(opening.key)}` +
    `,"protocol":${text(opening.protocol)},"method":${text(opening.method)}` +
    `,"endpoint":${text(opening.endpoint)},"process":${text(opening.process)}` +
    `,"user_agent":${text(opening.user_agent)}${known("session", opening.session)}${known("token", opening.token)}`
  );
}

/** The fields of encodeCaller(). */
function isSameCaller(one: Opening, other: Opening): boolean {
  return (
    one.tool === other.tool &&
    one.gateway === other.gateway &&
    one.group === other.group &&
    one.multiplier === other.multiplier &&
    one.key === other.key &&
    one.protocol === other.protocol &&
    one.method === other.method &&
    one.endpoint === other.endpoint &&
    one.process === other.process &&
    one.user_agent === other.user_agent &&
    one.session === other.session &&
    one.token === other.token
  );
}

/** @param shared what SharedFields made of the same request. */
export function openLine(shared: string, { model, sent_at, gateway_ids }: Opening): string {
  return `{"kind":"open"${shared},"model":${text(model)},"sent_at":${number(sent_at)}${ids(gateway_ids)}}\n`;
}

/** Most gateways take no ids. */
function ids(sent: Opening["gateway_ids"]): string {
  return sent === NO_IDS ? "" : `,"gateway_ids":${inAscii(JSON.stringify(sent))}`;
}

/** What the console billed is not known yet. @param shared what SharedFields made of the same request. */
export function closeLine(shared: string, opening: Opening, closing: Closing): string {
  return (
    `{"kind":"close"${shared},"model":${text(closing.model ?? opening.model)}${encodeOrigin(closing)}` +
    `,"sent_at":${number(closing.sent_at)},"first_byte_at":${number(closing.first_byte_at)}` +
    `,"ended_at":${number(closing.ended_at)},"model_answered":${text(closing.model_answered)}` +
    `,"stream":${closing.stream},"status":${number(closing.status)},"end":${text(closing.end)}` +
    `,"cause":${text(closing.cause)},"cause_detail":${text(closing.cause_detail)}` +
    `,"refusal":${text(closing.refusal)},"input_tokens":${number(closing.input_tokens)}` +
    `,"cache_read_tokens":${number(closing.cache_read_tokens)}` +
    `,"cache_write_tokens":${number(closing.cache_write_tokens)}` +
    `,"output_tokens":${number(closing.output_tokens)},"reasoning_tokens":${number(closing.reasoning_tokens)}` +
    `,"tokens_from":${text(closing.tokens_from)},"list_microdollars":${number(closing.list_microdollars)}` +
    `,"cost_microdollars":${number(closing.cost_microdollars)},"bytes_in":${number(closing.bytes_in)}` +
    `,"bytes_out":${number(closing.bytes_out)},"counts":${closing.counts}` +
    `,"counted_tokens":${number(closing.counted_tokens)}` +
    `,"counted_microdollars":${number(closing.counted_microdollars)}` +
    `,"seen_tokens":${number(closing.seen_tokens)},"gateway_ids":${inAscii(JSON.stringify(closing.gateway_ids))}` +
    `,"billed_microdollars":null}\n`
  );
}

/** Where a request came from, as far as it was looked up. The session comes after the opening's, and so replaces it. */
function encodeOrigin({ session, project, branch }: Closing): string {
  if (session === null && project === null) return "";
  return known("session", session) + known("project", project) + known("branch", branch);
}

/** A field that most records do not have. */
function known(name: string, value: string | null): string {
  return value === null ? "" : `,"${name}":${text(value)}`;
}

/** Any other line. The kind comes first, for people. */
export function encodeLine(kind: Line["kind"], fields: object): string {
  return `{"kind":"${kind}",${inAscii(JSON.stringify(fields)).slice(1)}\n`;
}

const ASCII = /^[\0-\x7e]*$/;
/** Characters that JSON writes as they are. */
const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

function text(value: string | null): string {
  if (value === null) return "null";
  if (PLAIN.test(value)) return `"${value}"`;
  const isFingerprint = value.startsWith("…") && PLAIN.test(value.slice(1));
  return isFingerprint ? `"\\u2026${value.slice(1)}"` : inAscii(JSON.stringify(value));
}

/**
 * The same text with one byte per character. V8 keeps two for what was cut out of "…wxyz", and then for every line that has it, which
 * takes 4 µs more of a request.
 */
function inBytes(ascii: string): string {
  return Buffer.from(ascii, "latin1").toString("latin1");
}

/** NaN and Infinity become null, as with JSON.stringify. */
function number(value: number | null): number | null {
  return Number.isFinite(value) ? value : null;
}

function inAscii(json: string): string {
  if (ASCII.test(json)) return json;
  return json.replace(/[\x7f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
