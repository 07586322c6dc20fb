import type { IncomingMessage } from "node:http";
import type { Transform } from "node:stream";
import type { AnswerHead } from "./answer-head.ts";
import { type BodyHead, putBackHeld } from "./body-head.ts";
import type { Asking } from "./exchange.ts";
import { type AheadBounds, putBack, ReadAhead } from "./read-ahead.ts";

/**
 * For tools with `ask_usage: true`: a streamed chat or completion is asked to report its usage, and what the gateway adds
 * for that is taken out again. (It also says `"usage":null` in every other chunk then. Those pass as they are: clients
 * that do not ask know them too, from gateways that always report.)
 */

/**
 * The whole body; null where it is larger, or did not come whole. What is read here is put back, so that whoever reads
 * the request afterwards finds it as it was sent.
 * @param head what was read of it before, which may be all there is, and stays where it is then.
 */
export async function readWhole(
  req: IncomingMessage,
  bounds: AheadBounds,
  head: BodyHead | null,
): Promise<Buffer | null> {
  if (head?.over && head.held !== null) return joined(head.held);
  putBackHeld(req, head);
  const ahead = new ReadAhead(req, bounds, null);
  const end = await ahead.read();
  putBack(req, ahead.held);
  return end === "ended" ? joined(ahead.held) : null;
}

function joined(chunks: readonly Buffer[]): Buffer {
  const [only] = chunks;
  return chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks);
}

/** Only out of a stream in plain can something be taken again. Whatever else came passes as it is. */
export function filterFor(answer: AnswerHead, asking: Asking | null): Transform | null {
  if (asking === null) return null;
  const plain = answer.status < 400 && answer.contentEncoding === undefined;
  return plain && /^\s*text\/event-stream\b/i.test(answer.contentType) ? asking.filter : null;
}

const OPTIONS = '"stream_options":{"include_usage":true}';
const OPTION = '"include_usage":true';

/**
 * The same request with `stream_options.include_usage: true` spliced in, every other byte as it was. null: it is no
 * stream, or says itself whether it wants its usage, or is not plain enough to be sure, as where a key stands twice or
 * in capitals, which some gateways take for the same.
 */
export function askForUsage(body: Buffer): Buffer | null {
  const asked = parsed(body);
  if (!isObject(asked) || asked.stream !== true) return null;
  const outer = fieldsOf(body, body.indexOf("{"));
  if (!standsOnce(outer, "stream") || stands(outer, "stream_options") > 1) return null;
  const options = outer.fields.find(({ key }) => key === "stream_options");
  if (options === undefined) {
    if (stands(outer, "stream_options") === 1) return null;
    return spliced(body, outer.end, outer.end, `,${OPTIONS}`);
  }
  if (asked.stream_options === null)
    return spliced(body, options.from, options.from + "null".length, `{${OPTION}}`);
  if (!isObject(asked.stream_options)) return null;
  const inner = fieldsOf(body, options.from);
  if (stands(inner, "include_usage") > 0) return null;
  return spliced(body, inner.end, inner.end, inner.fields.length > 0 ? `,${OPTION}` : OPTION);
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return null;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function spliced(body: Buffer, from: number, to: number, text: string): Buffer {
  return Buffer.concat([body.subarray(0, from), Buffer.from(text), body.subarray(to)]);
}

interface Fields {
  readonly fields: readonly { readonly key: string; readonly from: number }[];
  /** Where the closing brace stands. */
  readonly end: number;
}

function stands({ fields }: Fields, name: string): number {
  return fields.filter(({ key }) => key.toLowerCase() === name).length;
}

function standsOnce(fields: Fields, name: string): boolean {
  return stands(fields, name) === 1 && fields.fields.some(({ key }) => key === name);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = [0x7b, 0x5b];
const CLOSE = [0x7d, 0x5d];
const COLON = 0x3a;

/** The keys of an object that begins here, and where their values begin, in a text that is known to be JSON. */
function fieldsOf(body: Buffer, begin: number): Fields {
  const fields: { key: string; from: number }[] = [];
  let depth = 0;
  let last: Buffer = body.subarray(0, 0);
  for (let at = begin; ; at += 1) {
    const byte = body[at] ?? 0;
    if (byte === QUOTE) {
      const end = endOfString(body, at);
      if (depth === 1) last = body.subarray(at, end + 1);
      at = end;
    } else if (OPEN.includes(byte)) depth += 1;
    else if (CLOSE.includes(byte)) depth -= 1;
    else if (byte === COLON && depth === 1)
      fields.push({ key: String(parsed(last)), from: afterSpace(body, at + 1) });
    if (depth === 0) return { fields, end: at };
  }
}

function endOfString(body: Buffer, begin: number): number {
  let at = begin + 1;
  while (at < body.length && body[at] !== QUOTE) at += body[at] === BACKSLASH ? 2 : 1;
  return at;
}

function afterSpace(body: Buffer, begin: number): number {
  let at = begin;
  while (/\s/.test(String.fromCharCode(body[at] ?? 0))) at += 1;
  return at;
}
