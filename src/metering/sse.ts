import { createParser } from "eventsource-parser";
import { fieldOf } from "./usage.ts";

export interface StreamEvent {
  /** Empty: it has none. */
  readonly name: string;
  readonly data: string;
  /** A line of it was too long, so that its middle is missing. */
  readonly shortened: boolean;
}

/**
 * A longer line of a stream, or a longer JSON body, loses its middle. What makes it long is nearly always an image, and
 * without a part of that it is still JSON.
 */
export const MAX_HEAD = 512 * 1024;
export const MAX_TAIL = 64 * 1024;
/** Of an event with more characters nothing is kept. */
const MAX_EVENT = 2 * 1024 * 1024;
/** After so many lines in a row that belong to no event stream, this is none. The parser makes an Error of each (11 µs). */
const MAX_STRAY_LINES = 1000;
/** The parser gets no more at once: it searches the rest for a CR at every line, as soon as there is one. */
const MAX_FEED = 8 * 1024;

/**
 * Reads server-sent events from text that is cut anywhere, in bounded memory. Contrary to the standard, the last event
 * counts even without an empty line after it: it reached the client.
 */
export class EventReader {
  readonly #onEvent: (event: StreamEvent) => void;
  readonly #parser = createParser({
    onEvent: ({ event = "", data }) => this.#dispatch(event.trim(), data),
    onError: () => {
      this.#strayLines += 1;
    },
  });
  /** Characters of the current line, and those at its end that the parser did not get yet. */
  #lineLength = 0;
  #lineTail = "";
  #endsInLineBreak = true;
  #shortened = false;
  #eventLength = 0;
  #strayLines = 0;

  constructor(onEvent: (event: StreamEvent) => void) {
    this.#onEvent = onEvent;
  }

  see(text: string): void {
    if (text === "") return;
    this.#endsInLineBreak = endsInLineBreak(text);
    for (let at = 0; at < text.length; at += MAX_FEED) {
      if (this.#strayLines > MAX_STRAY_LINES) return;
      this.#seePart(text.slice(at, at + MAX_FEED));
    }
  }

  finish(): void {
    this.#feed(this.#lineTail.slice(-MAX_TAIL));
    // The empty data makes the parser dispatch an event that has only a name.
    this.#feed(this.#endsInLineBreak ? "data:\n\n" : "\ndata:\n\n");
  }

  #seePart(text: string): void {
    if (this.#lineLength + text.length > MAX_HEAD) {
      for (const line of text.split(/(?<=[\r\n])/)) this.#seeLongLine(line);
      return;
    }
    const lineBreak = text.includes("\n") ? text.lastIndexOf("\n") : text.lastIndexOf("\r");
    this.#lineLength = lineBreak === -1 ? this.#lineLength + text.length : text.length - lineBreak - 1;
    this.#feed(text);
  }

  /** A line, or a part of one, that is or may become too long. */
  #seeLongLine(text: string): void {
    const room = Math.max(0, MAX_HEAD - this.#lineLength);
    this.#lineLength += text.length;
    this.#feed(text.slice(0, room));
    if (text.length > room) {
      this.#shortened = true;
      this.#lineTail += text.slice(room);
      if (this.#lineTail.length > 2 * MAX_TAIL) this.#lineTail = this.#lineTail.slice(-MAX_TAIL);
    }
    if (!endsInLineBreak(text)) return;
    this.#feed(this.#lineTail.slice(-MAX_TAIL));
    this.#lineTail = "";
    this.#lineLength = 0;
  }

  #feed(text: string): void {
    this.#eventLength += text.length;
    if (this.#eventLength > MAX_EVENT) {
      this.#parser.reset();
      this.#shortened = true;
      this.#dispatch("", "");
    }
    this.#parser.feed(text);
  }

  #dispatch(name: string, data: string): void {
    const shortened = this.#shortened;
    this.#shortened = false;
    this.#eventLength = 0;
    this.#strayLines = 0;
    this.#onEvent({ name, data, shortened });
  }
}

function endsInLineBreak(text: string): boolean {
  return text.endsWith("\n") || text.endsWith("\r");
}

/** Whether an event brings a part of the answer. Streams without names bring one with nearly every event. */
export function isDelta(name: string): boolean {
  return name === "" || (name.endsWith("delta") && name !== "message_delta");
}

/** Whether an event holds a piece of text and nothing else. */
export function isOnlyText(name: string): boolean {
  return ONLY_TEXT.test(name);
}

/** Whether an event repeats what the deltas said. By its name or, if it has none, by the type in its data. */
export function repeatsText({ name, data }: StreamEvent): boolean {
  return REPEATS.test(name === "" ? (FIRST_TYPE.exec(data)?.[1] ?? "") : name);
}

/** Whether an event may report usage or end the stream. Most do not, and are not parsed. */
export function mayMatter(data: string): boolean {
  return MATTERS.test(data);
}

const ONLY_TEXT = /^(?:content_block_delta|ping|response\.[\w.]+\.delta)$/;
const REPEATS =
  /^(?:message_(?:start|delta|stop)|content_block_(?:start|stop)|.+\.(?:done|added|created|queued|in_progress|completed|incomplete|failed))$/;
const FIRST_TYPE = /^\s*\{\s*"type"\s*:\s*"([\w.]+)"/;
const TERMINATORS =
  /^(?:message_stop|error|response\.(?:completed|failed|incomplete)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done)$/;
const MATTERS =
  /"usage(?:Metadata)?"\s*:\s*\{|"finish_?[rR]eason"\s*:\s*"|"error"\s*:\s*[{"]|"type"\s*:\s*"(?:message_stop|error|response\.(?:completed|failed|incomplete)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done)"/;
/** How the streams of each protocol begin. Only of these it is known how they should end. */
const BEGINNINGS =
  /"(?:chat\.completion\.chunk|text_completion|message_start|response\.(?:created|queued)|candidates|image_(?:generation|edit)\.partial_image|transcript\.text\.delta|speech\.audio\.delta)"/;

/**
 * Whether an event stream was terminated as its protocol demands. Codex, Copilot, LangChain and openai-python close the
 * connection right after the terminator, before the server ends the stream: such a call is complete, not aborted. And a
 * stream without its terminator was cut, however cleanly.
 */
export class StreamTerminator {
  readonly #knownProtocol: boolean;
  #begun = false;
  #reached = false;
  #failed = false;
  /** An event of its own ended the stream, and nothing that matters can follow. */
  #over = false;
  #unread = false;

  /** @param knownProtocol an error event is one even before the stream began. */
  constructor(knownProtocol: boolean) {
    this.#knownProtocol = knownProtocol;
  }

  /** null: it is not known how this stream should end. */
  get reached(): boolean | null {
    if (this.#reached) return true;
    return this.#begun && !this.#unread ? false : null;
  }

  /** The stream ended with an error. */
  get failed(): boolean {
    return this.#failed;
  }

  seeEvent({ name, data }: StreamEvent): void {
    if (this.#over) return;
    if (!this.#begun)
      this.#begun = name === "message_start" || name === "response.created" || BEGINNINGS.test(data);
    if (TERMINATORS.test(name)) this.#end(name);
    else if (data.length < 32 && data.trim() === "[DONE]") this.#end("");
  }

  /** The document of an event that may matter. */
  seeDocument(document: unknown): void {
    if (this.#over) return;
    const type = fieldOf(document, "type");
    if (typeof type === "string" && TERMINATORS.test(type)) this.#end(type);
    // Chat and Gemini have no event type for errors.
    if ((this.#begun || this.#knownProtocol) && saysAnything(fieldOf(document, "error"))) this.#end("error");
    // Some gateways never send [DONE], so a finish reason is enough. The usage, or an error, may still follow.
    const reasons = [
      ...finishReasons(fieldOf(document, "choices")),
      ...finishReasons(fieldOf(document, "candidates")),
      ...finishReasons(fieldOf(fieldOf(document, "response"), "candidates")),
    ];
    if (reasons.length > 0) this.#reached = true;
    // OpenRouter's, for an answer that broke off.
    if (reasons.includes("error")) this.#end("error");
  }

  /** An event could not be read as a whole, and may have been the terminator. */
  missed(): void {
    this.#unread = true;
  }

  #end(type: string): void {
    this.#over = true;
    this.#reached = true;
    if (type === "error" || type === "response.failed") this.#failed = true;
  }
}

/** Some gateways send an empty error in every event. */
function saysAnything(error: unknown): boolean {
  if (typeof error === "string") return error !== "";
  if (typeof error !== "object" || error === null) return false;
  return Object.values(error).some(
    (value) => value !== null && value !== "" && value !== 0 && value !== false,
  );
}

function finishReasons(choices: unknown): string[] {
  if (!Array.isArray(choices)) return [];
  return choices.slice(0, 8).flatMap((choice) => {
    const reason = fieldOf(choice, "finish_reason") ?? fieldOf(choice, "finishReason");
    return typeof reason === "string" && reason !== "" ? [reason] : [];
  });
}
