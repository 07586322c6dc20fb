import { isObject, type JsonObject, textAt } from "../../core/json.ts";
import type { Tokens } from "../account.ts";

/** What a client asks of a model, in any protocol. */
export interface ModelRequest {
  readonly model: string;
  readonly stream: boolean;
  /** All text that the model would read. */
  readonly prompt: string;
  readonly lastUserText: string;
  /** null: no limit. */
  readonly maxTokens: number | null;
  /** The parsed body, for what only one protocol has. */
  readonly body: JsonObject;
}

/** What the sandbox answers, before a protocol gives it a shape. */
export interface ModelReply {
  /** The request's id without dashes. Protocols put their own prefix in front. */
  readonly id: string;
  readonly model: string;
  /** Seconds since the Unix epoch. */
  readonly created: number;
  /** The words of `text`, each with the space behind it. A stream sends one at a time. */
  readonly deltas: readonly string[];
  readonly text: string;
  /** Cut at the client's own limit. */
  readonly truncated: boolean;
  readonly tokens: Tokens;
}

export interface StreamEvent {
  readonly bytes: string;
  /** The part of the text that it carries. Deltas are sent with a delay and billed once sent. */
  readonly delta?: string;
}

/** How a protocol wraps an error. */
export type ErrorShape = "openai" | "anthropic" | "gemini";

/** Gemini's requests name the model and the stream in the path instead of the body. */
export interface PathParams {
  readonly model: string;
  readonly stream: boolean;
}

/** One API of the gateway. Pure: it reads no clock and sends nothing. */
export interface Protocol {
  readonly errorShape: ErrorShape;
  /** Which models can answer. */
  readonly produces: "text" | "vectors";
  /** Only Anthropic's usage reports what was written to the cache. For the others it counts as input. */
  readonly reportsCacheWrites: boolean;
  /** Returns the request, or what is wrong with it. */
  parse(body: JsonObject, path: PathParams | null): ModelRequest | string;
  /** The response that is not a stream. */
  whole(request: ModelRequest, reply: ModelReply): object;
  events(request: ModelRequest, reply: ModelReply): Iterable<StreamEvent>;
}

/** Reads what most protocols have in common. `limits` are the names of the length limit; the first one present counts. */
export function parseRequest(
  body: JsonObject,
  parts: { readonly limits: readonly string[]; readonly prompt: string; readonly lastUserText: string },
): ModelRequest | string {
  const model = textAt(body, "model");
  if (model === null || model === "") return "model is required";
  const limit = parts.limits.find((name) => body[name] !== undefined && body[name] !== null);
  const maxTokens = limit === undefined ? null : body[limit];
  if (maxTokens !== null && !isPositiveInteger(maxTokens)) {
    return `${limit} must be a whole number of at least 1`;
  }
  const { prompt, lastUserText } = parts;
  return { model, stream: body.stream === true, prompt, lastUserText, maxTokens, body };
}

export function isPositiveInteger(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 1;
}

/** A server-sent event. Messages and responses name theirs, the others do not. */
export function sse(data: unknown, name?: string): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return name === undefined ? `data: ${text}\n\n` : `event: ${name}\ndata: ${text}\n\n`;
}

/** Members without text that a model reads: images, files, signatures, names and ids. */
const NOT_PROMPT: readonly string[] = [
  "data",
  "image_url",
  "file_data",
  "file_url",
  "url",
  "signature",
  "encrypted_content",
  "type",
  "role",
  "id",
  "tool_use_id",
  "tool_call_id",
  "call_id",
  "cache_control",
  "mimeType",
  "media_type",
];

/** All text in these parts of a body, in reading order. Not recursive: a client chooses how deep its JSON is. */
export function promptText(...parts: readonly unknown[]): string {
  const found: string[] = [];
  const left: unknown[] = parts.toReversed();
  while (left.length > 0) {
    const part = left.pop();
    if (typeof part === "string") found.push(part);
    else if (Array.isArray(part)) for (const item of part.toReversed()) left.push(item);
    else if (isObject(part)) {
      const members = Object.entries(part).filter(([name]) => !NOT_PROMPT.includes(name));
      for (const [, value] of members.reverse()) left.push(value);
    }
  }
  return found.join("\n");
}

/** The last text part of the last user message. Coding tools put their reminders into the parts before it. */
export function lastUserText(messages: unknown, contentName: "content" | "parts" = "content"): string {
  if (typeof messages === "string") return messages;
  if (!Array.isArray(messages)) return "";
  const last: unknown = messages.findLast(
    (message: unknown) =>
      typeof message === "string" || (isObject(message) && (message.role ?? "user") === "user"),
  );
  if (typeof last === "string") return last;
  const content = isObject(last) ? last[contentName] : undefined;
  if (typeof content === "string") return content;
  const part: unknown = Array.isArray(content)
    ? content.findLast((each: unknown) => isObject(each) && typeof each.text === "string")
    : undefined;
  return isObject(part) ? String(part.text) : "";
}
