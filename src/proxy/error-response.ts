import type { IncomingMessage } from "node:http";
import { asFields, fieldAt, parseObject } from "../core/json.ts";
import { redactKeyShapes } from "../core/redact.ts";
import type { Secret } from "../core/secret.ts";
import { decodeSync } from "../metering/decode.ts";
import { addCause, responseHeaders, setLength } from "./headers.ts";
import { type Cause, findCause } from "./key-health/cause.ts";

/** How much of a gateway's error is read before it is passed on. */
const MAX_READ = 64 * 1024;
const MAX_DECODED = 8 * 1024 * 1024;
const MAX_MESSAGE = 300;

/** Collects the beginning of an error. */
export class ErrorBody {
  readonly #chunks: Buffer[] = [];
  #size = 0;

  /** True: this is enough. */
  add(chunk: Buffer): boolean {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    return this.#size > MAX_READ;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

/** A gateway's error as the client gets it: byte for byte, with its cause in a header and without the key. */
export interface ErrorResponse {
  readonly headers: string[];
  readonly body: Buffer;
  /** The rest of the body is not passed on. */
  readonly isTruncated: boolean;
  readonly cause: Cause | null;
  /** The body as text, without the key. */
  readonly text: string;
  readonly message: string | null;
}

/**
 * @param isWhole false: the response goes on behind these bytes.
 * @param refine adds what is known about the key beyond this response.
 */
export function readErrorResponse(
  response: IncomingMessage,
  bytes: Buffer,
  isWhole: boolean,
  key: Secret,
  refine: (cause: Cause) => Cause,
): ErrorResponse {
  const { statusCode: status = 0, headers, rawHeaders } = response;
  const decoded = decodeSync(bytes, headers["content-encoding"] ?? "", MAX_DECODED);
  const isBomb = decoded === "too-large";
  const readable = isBomb ? Buffer.alloc(0) : decoded;
  /** null: the bytes are not compressed, or in a way that is not known here. */
  const unpacked = readable === bytes ? null : readable;
  const text = readable?.toString("utf8") ?? "";
  const requestId = headers["x-oneapi-request-id"];
  const named = findCause({
    status,
    contentType: headers["content-type"] ?? "",
    body: text,
    isNewApi: headers["x-new-api-version"] !== undefined,
    requestId: typeof requestId === "string" ? requestId : undefined,
  });
  const cause = named === null ? null : refine(named);
  // A compressed body cannot be changed in part. So a long one is sent decoded and cut, and a bomb is not sent at all.
  const isTruncated = unpacked !== null && (isBomb || !isWhole);
  const content = unpacked ?? bytes;
  let body = bytes;
  if (isTruncated) body = withoutKeyAtEnd(redacted(content, key), key);
  else if (isWhole && key.isIn(content)) body = redacted(content, key);
  // What follows the end of the compressed bytes is not decoded, and may hold the key too.
  else if (unpacked !== null && key.isIn(bytes)) body = unpacked;
  const clientHeaders = responseHeaders(rawHeaders, key);
  if (body !== bytes) setLength(clientHeaders, body.length);
  addCause(clientHeaders, cause);
  const cleanText = key.redactFrom(text);
  const message = messageIn(text, key);
  return { headers: clientHeaders, body, isTruncated, cause, text: cleanText, message };
}

/** What an error says, on one line and short: the message in its JSON, else the text itself. null: nothing. */
function messageIn(text: string, key: Secret): string | null {
  // Redacted once it is decoded, however the JSON spelled the key, and before it is cut.
  const message = key.redactFrom(messageInJson(text) ?? text);
  const line = message.slice(0, 2 * MAX_MESSAGE).replace(/[\s\p{Cc}]+/gu, " ");
  return redactKeyShapes(line).trim().slice(0, MAX_MESSAGE) || null;
}

/** The gateway's own words in its JSON, as they are: they may hold the key. null: there are none. */
export function messageInJson(text: string): string | null {
  if (text.length > MAX_READ || !text.trimStart().startsWith("{")) return null;
  const { error, message, detail, code } = asFields(parseObject(text));
  const texts = [fieldAt(error, "message"), message, error, detail, code];
  return texts.find((one): one is string => typeof one === "string" && one !== "") ?? null;
}

/** In latin1, one character for each byte, so that all other bytes stay as they are. */
function redacted(bytes: Buffer, key: Secret): Buffer {
  if (!key.isIn(bytes)) return bytes;
  return Buffer.from(key.redactFrom(bytes.toString("latin1")), "latin1");
}

/** Without the beginning of a key at its end, where the body is cut. */
function withoutKeyAtEnd(bytes: Buffer, key: Secret): Buffer {
  return bytes.subarray(0, bytes.length - key.begunAtEndOf(bytes));
}
