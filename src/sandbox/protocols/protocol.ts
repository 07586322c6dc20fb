import type { Tokens } from "../billing.ts";
import type { JsonObject } from "../json.ts";
import type { Shape } from "../refusals.ts";

/** What a request wants, whichever protocol it is written in. */
export interface Ask {
  readonly model: string;
  readonly stream: boolean;
  /** All text that the model would read. */
  readonly prompt: string;
  readonly lastUserText: string;
  /** null: as long as it gets. */
  readonly maxTokens: number | null;
  /** The body as sent, for what only one protocol knows. */
  readonly body: JsonObject;
}

/** What the sandbox answers, before a protocol gives it a form. */
export interface Reply {
  /** The request's id without its dashes; protocols put their prefix before it. */
  readonly id: string;
  readonly model: string;
  /** Seconds since the Unix epoch. */
  readonly created: number;
  /** Words with the space after them: a stream sends one at a time. */
  readonly pieces: readonly string[];
  readonly text: string;
  /** Cut off by the caller's own limit. */
  readonly truncated: boolean;
  readonly tokens: Tokens;
}

/** One write of a stream. */
export interface Frame {
  readonly bytes: string;
  /** The words in it, where it carries any. They are paced, and billed once sent. */
  readonly words?: string;
}

/** One way of asking for and writing an answer. Pure: it neither reads the clock nor sends. */
export interface Protocol {
  readonly shape: Shape;
  /** Which models can answer. */
  readonly wants: "text" | "vectors";
  /** Whether its usage can say what was written to the cache; OpenAI's cannot, so nothing is billed for it. */
  readonly tellsCacheWrites: boolean;
  /** The request, or what is wrong with it. */
  read(body: JsonObject, address: Address): Ask | string;
  /** The answer in one piece. */
  whole(ask: Ask, reply: Reply): unknown;
  frames(ask: Ask, reply: Reply): Iterable<Frame>;
}

/** What a protocol may find in the path instead of the body; Gemini does. */
export interface Address {
  readonly model: string | null;
  readonly stream: boolean;
}

export const MODEL_REQUIRED = "model is required";

/** A server-sent event: with a name for messages and responses, without for the others. */
export function event(data: unknown, name?: string): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return name === undefined ? `data: ${text}\n\n` : `event: ${name}\ndata: ${text}\n\n`;
}

/** A limit on the answer's length: absent, usable, or nonsense. */
export function limitAt(body: JsonObject, ...names: readonly string[]): number | null | "invalid" {
  for (const name of names) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    return typeof value === "number" && Number.isInteger(value) && value >= 1 ? value : "invalid";
  }
  return null;
}
