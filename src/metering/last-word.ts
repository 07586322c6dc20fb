import { type EventName, isLastType } from "./event-name.ts";
import { fieldOf, type Lookup } from "./tally.ts";

/** How the streams of each protocol begin: only of these is it known how they should end. */
const FIRST_WORDS =
  /"(?:chat\.completion\.chunk|text_completion|message_start|response\.(?:created|queued)|candidates|image_(?:generation|edit)\.partial_image|transcript\.text\.delta|speech\.audio\.delta)"/;
const ERROR_TYPES = /^(?:error|response\.failed)$/;
/** Longer data is no [DONE]. */
const LONGEST_DONE = 32;

/**
 * Whether an event stream has said its last word. Codex, Copilot, LangChain and openai-python hang up right after it,
 * before the server ends the stream: that is a finished call, not an abort. And a stream that ends without it was cut,
 * however cleanly.
 */
export class LastWord {
  /** A protocol of ours was asked for, so that an error without a name of its own is one. */
  readonly #expected: boolean;
  #begun = false;
  #reached = false;
  #failed = false;
  /** Said by an event of its own, after which nothing can follow that matters. */
  #over = false;
  #unread = false;

  constructor(expected: boolean) {
    this.#expected = expected;
  }

  /** null: this is no stream whose end could be told. */
  get reached(): boolean | null {
    if (this.#reached) return true;
    return this.#begun && !this.#unread ? false : null;
  }

  /** Its last word was an error. */
  get failed(): boolean {
    return this.#failed;
  }

  /** An event as it came: its name, and its data in one character a byte. */
  hear(name: EventName, text: string): void {
    if (this.#over) return;
    this.#hearName(name);
    if (!this.#begun) this.#begun = FIRST_WORDS.test(text);
    if (!this.#over && text.length < LONGEST_DONE && text.trim() === "[DONE]") this.#end("");
  }

  /** An event was too long for all of it to be read, so that it may have said anything. */
  missed(name: EventName): void {
    this.#unread = true;
    if (!this.#over) this.#hearName(name);
  }

  #hearName(name: EventName): void {
    this.#begun ||= name.begins;
    if (name.ends) this.#end(name.text);
  }

  /** An event's document, where that may be a last word. */
  take(lookup: Lookup): void {
    if (this.#over) return;
    const type = lookup.get("type");
    if (typeof type === "string" && isLastType(type)) this.#end(type);
    // Chat and Gemini have no event for it.
    if ((this.#begun || this.#expected) && saysAnything(lookup.get("error"))) this.#end("error");
    // The finish reasons are for gateways that send no [DONE]. The usage, or an error, may still follow.
    const reasons = [...finishReasons(lookup.get("choices")), ...finishReasons(lookup.get("candidates"))];
    const inner = finishReasons(fieldOf(lookup.get("response"), "candidates"));
    if (reasons.length + inner.length > 0) this.#reached = true;
    // OpenRouter's, for an answer that broke off.
    if (reasons.includes("error")) this.#end("error");
  }

  #end(type: string): void {
    this.#over = true;
    this.#reached = true;
    this.#failed ||= ERROR_TYPES.test(type);
  }
}

/** Some gateways send an error in every event, with nothing in it. */
function saysAnything(error: unknown): boolean {
  if (typeof error !== "object" || error === null) return typeof error === "string" && error !== "";
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
