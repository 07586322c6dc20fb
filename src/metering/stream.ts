import { fieldAt } from "../core/json.ts";
import type { StreamEvent } from "./sse.ts";

/*
 * The types of events. A type is the name of an event, or the `type` in its data, or both. Gateways translate between
 * protocols and mix their terms, so each pattern holds for every stream. Events of chat and Gemini have no type.
 */

/** In the first events of the streams that are known: chat, messages, responses, Gemini, images and audio. */
const START =
  /chat\.completion\.chunk|text_completion|message_start|response\.(?:created|queued)|candidates|image_(?:generation|edit)\.partial_image|transcript\.text\.delta|speech\.audio\.delta/;
/** Ends the stream. Chat ends with [DONE] or, like Gemini, with a finish reason. */
const END =
  /error|message_stop|response\.(?:completed|incomplete|failed)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done/;
const IS_START = new RegExp(`^(?:${START.source})$`);
const START_IN_DATA = new RegExp(`"(?:${START.source})"`);
const IS_END = new RegExp(`^(?:${END.source})$`);
/** Has no output, and may come before the output. */
const QUIET = /^(?:ping|keepalive|response\.(?:created|queued|in_progress))$/;
/** Holds a piece of text and nothing else. */
const ONLY_TEXT = /^(?:content_block_delta|response\.[\w.]+\.delta)$/;
/** Repeats the text of other events, or has none. */
const NO_NEW_TEXT =
  /^(?:message_(?:start|delta|stop)|content_block_(?:start|stop)|[\w.]+\.(?:created|queued|in_progress|added|done|completed|incomplete|failed))$/;
const ERROR = /"error"\s*:\s*[{"]/;
const MATTERS = new RegExp(
  `"usage(?:Metadata)?"\\s*:\\s*\\{|"finish_?[rR]eason"\\s*:\\s*"|${ERROR.source}|"type"\\s*:\\s*"(?:${END.source})"`,
);
const FIRST_TYPE = /^\s*\{\s*"type"\s*:\s*"([\w.]+)"/;

/** Whether an event has output. In streams without event names, almost all events have. */
export function isDelta(name: string): boolean {
  return name === "" || (name.endsWith("delta") && name !== "message_delta");
}

/** Whether an event holds a piece of text and nothing else. */
export function isOnlyText(name: string): boolean {
  return ONLY_TEXT.test(name);
}

/** Whether an event repeats the text of other events, or has none. */
export function repeatsText(event: StreamEvent): boolean {
  return NO_NEW_TEXT.test(readType(event));
}

/** Whether an event may report usage or end the stream. Most do not, and are not parsed. */
export function mayMatter(data: string): boolean {
  return MATTERS.test(data);
}

function readType({ name, data }: StreamEvent): string {
  return name === "" ? (FIRST_TYPE.exec(data)?.[1] ?? "") : name;
}

/**
 * Finds out how a response ended. Codex, Copilot, LangChain and openai-python close the connection right after a stream's
 * terminator, before the server does: such a call is complete, not aborted. A stream without its terminator was cut, even if
 * the connection closed cleanly.
 */
export class ResponseEnd {
  /** It ended with an error. */
  failed = false;
  readonly #isMetered: boolean;
  #begun = false;
  /** Output came, or may have come. */
  #hasOutput = false;
  #reached = false;
  /** The stream's last event came. What follows is ignored. */
  #over = false;
  #unread = false;

  /** @param isMetered true: an error counts even before the first output. */
  constructor(isMetered: boolean) {
    this.#isMetered = isMetered;
  }

  /** Whether a stream reached its terminator; null: it is not known how it should end. */
  get reached(): boolean | null {
    if (this.#reached) return true;
    if (this.#unread) return null;
    const broughtNothing = this.#isMetered && !this.#hasOutput;
    return this.#begun || broughtNothing ? false : null;
  }

  /** It is an error, and no output came before it. */
  get refused(): boolean {
    return this.failed && !this.#hasOutput;
  }

  seeEvent(event: StreamEvent): void {
    if (this.#over) return;
    const { name, data } = event;
    if (!this.#begun) this.#begun = IS_START.test(name) || START_IN_DATA.test(data);
    if (!this.#hasOutput) this.#hasOutput = bringsOutput(readType(event), data);
    if (IS_END.test(name)) this.#end(name);
    else if (data.length < 32 && data.trim() === "[DONE]") this.#end("");
  }

  /** Instead of seeEvent(), for an event that is only text. */
  seeText(): void {
    this.#hasOutput = true;
  }

  /** The document of an event that may matter, or of a JSON response. */
  seeDocument(document: unknown): void {
    const type = fieldAt(document, "type");
    const isError = saysAnything(fieldAt(document, "error"));
    const isOutput = typeof type !== "string" && !isError;
    if (isOutput || hasOutput(document)) this.#hasOutput = true;
    if (this.#over) return;
    if (typeof type === "string" && IS_END.test(type)) this.#end(type);
    // Chat and Gemini have no event type for errors.
    if (isError && (this.#begun || this.#isMetered)) this.#end("error");
    // Some gateways never send [DONE], so a finish reason is enough. The usage, or an error, may still follow.
    const reasons = [
      ...finishReasons(fieldAt(document, "choices")),
      ...finishReasons(fieldAt(document, "candidates")),
      ...finishReasons(fieldAt(fieldAt(document, "response"), "candidates")),
    ];
    if (reasons.length > 0) this.#reached = true;
    // OpenRouter's reason for a response that broke off.
    if (reasons.includes("error")) this.#end("error");
  }

  /** An event could not be read as a whole, and may have been the terminator. */
  missed(): void {
    this.#unread = true;
  }

  #end(type: string): void {
    this.#over = true;
    this.#reached = true;
    if (type === "error" || type === "response.failed") this.failed = true;
  }
}

/** When in doubt, true. seeDocument() examines errors more closely. */
function bringsOutput(type: string, data: string): boolean {
  if (type !== "") return !QUIET.test(type) && !IS_END.test(type);
  return data.trim() !== "" && !ERROR.test(data);
}

function hasOutput(document: unknown): boolean {
  const lists = [
    fieldAt(document, "choices"),
    fieldAt(document, "candidates"),
    fieldAt(document, "output"),
    fieldAt(fieldAt(document, "response"), "output"),
  ];
  return lists.some((list) => Array.isArray(list) && list.length > 0);
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
    const reason = fieldAt(choice, "finish_reason") ?? fieldAt(choice, "finishReason");
    return typeof reason === "string" && reason !== "" ? [reason] : [];
  });
}
