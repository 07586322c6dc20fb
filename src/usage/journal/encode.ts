import type { Closing, Opening } from "../record.ts";
import type { Line } from "./lines.ts";

/*
 * The lines as text, in ASCII: the "…" of a key's fingerprint would make V8 write a whole line with two bytes per character.
 * JSON.stringify of the `open` and `close` lines of a request takes 29 µs, this takes 18.
 */

/**
 * Fields with the same value in both lines of a request; `model` and `sent_at` may change. A record, so that the compiler
 * reports a missing field.
 */
const SHARED: Readonly<Record<Exclude<keyof Opening, "model" | "sent_at">, true>> = {
  id: true,
  started_at: true,
  tool: true,
  gateway: true,
  group: true,
  multiplier: true,
  key: true,
  protocol: true,
  method: true,
  endpoint: true,
  process: true,
  user_agent: true,
  waited_ms: true,
  held_tokens: true,
  held_microdollars: true,
  admitted_at: true,
};

/** The other fields of a `close` line, without `model`. */
const CLOSING: Readonly<Record<Exclude<keyof Closing, "model">, true>> = {
  sent_at: true,
  first_byte_at: true,
  ended_at: true,
  model_answered: true,
  stream: true,
  status: true,
  end: true,
  cause: true,
  cause_detail: true,
  refusal: true,
  input_tokens: true,
  cache_read_tokens: true,
  cache_write_tokens: true,
  output_tokens: true,
  reasoning_tokens: true,
  tokens_from: true,
  list_microdollars: true,
  cost_microdollars: true,
  bytes_in: true,
  bytes_out: true,
  counts: true,
  counted_tokens: true,
  counted_microdollars: true,
  seen_tokens: true,
  gateway_ids: true,
};

const SHARED_FIELDS = fieldsOf(SHARED);
const CLOSING_FIELDS = fieldsOf(CLOSING);

interface Field {
  readonly name: string;
  /** Its name in JSON, with what is before the value. */
  readonly label: string;
}

function fieldsOf(names: object): Field[] {
  return Object.keys(names).map((name) => ({ name, label: `,"${name}":` }));
}

/** The part of an `open` line that the `close` line repeats. */
export function encodeShared(opening: Opening): string {
  return fieldsText(SHARED_FIELDS, opening);
}

/** @param shared what encodeShared() made of the same request. */
export function openLine(shared: string, { model, sent_at }: Opening): string {
  return `{"kind":"open"${shared},"model":${valueText(model)},"sent_at":${valueText(sent_at)}}\n`;
}

/** What the console billed is not known yet. @param shared what encodeShared() made of the same request. */
export function closeLine(shared: string, opening: Opening, closing: Closing): string {
  const model = valueText(closing.model ?? opening.model);
  return `{"kind":"close"${shared},"model":${model}${fieldsText(CLOSING_FIELDS, closing)},"billed_microdollars":null}\n`;
}

/** Any other line. The kind comes first, for people. */
export function lineOf(kind: Line["kind"], fields: object): string {
  return `{"kind":"${kind}",${inAscii(JSON.stringify(fields)).slice(1)}\n`;
}

function fieldsText(fields: readonly Field[], values: object): string {
  let text = "";
  for (const { name, label } of fields) text += label + valueText((values as Record<string, unknown>)[name]);
  return text;
}

/** Characters that JSON writes as they are. */
const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

function valueText(value: unknown): string {
  if (value === null || value === undefined) return "null";
  switch (typeof value) {
    case "number":
      return Number.isFinite(value) ? String(value) : "null";
    case "boolean":
      return String(value);
    case "string":
      return stringText(value);
    default:
      return inAscii(JSON.stringify(value));
  }
}

function stringText(value: string): string {
  if (PLAIN.test(value)) return `"${value}"`;
  const isFingerprint = value.startsWith("…") && PLAIN.test(value.slice(1));
  return isFingerprint ? `"\\u2026${value.slice(1)}"` : inAscii(JSON.stringify(value));
}

function inAscii(json: string): string {
  return json.replace(/[\x7f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
