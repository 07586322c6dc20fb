/** The name of an event, and what it says by itself: worked out once, since most events of a stream bear the same one. */
export interface EventName {
  readonly text: string;
  /** It brings a piece of the answer. Without names every event does, but for the first and last. */
  readonly brings: boolean;
  /** It is a piece of text and nothing else. */
  readonly onlyText: boolean;
  /** It repeats what the pieces said. */
  readonly repeats: boolean;
  /** It begins a stream whose end can be told. */
  readonly begins: boolean;
  /** It is a last word. */
  readonly ends: boolean;
}

const ONLY_TEXT = /^(?:content_block_delta|ping|response\.[\w.]+\.delta)$/;
const REPEATS =
  /^(?:message_(?:start|delta|stop)|content_block_(?:start|stop)|.+\.(?:done|added|created|queued|in_progress|completed|incomplete|failed))$/;
const LAST_TYPES =
  /^(?:message_stop|error|response\.(?:completed|failed|incomplete)|image_(?:generation|edit)\.completed|transcript\.text\.done|speech\.audio\.done)$/;
/** No last word is longer. */
const LONGEST_LAST = 32;

export function eventName(text: string): EventName {
  return {
    text,
    brings: text === "" || (text.endsWith("delta") && text !== "message_delta"),
    onlyText: ONLY_TEXT.test(text),
    repeats: repeatsText(text),
    begins: text === "message_start" || text === "response.created",
    ends: isLastType(text),
  };
}

/** Of an event's name, or of the type in its data where it has none. */
export function repeatsText(type: string): boolean {
  return REPEATS.test(type);
}

export function isLastType(type: string): boolean {
  return type.length <= LONGEST_LAST && LAST_TYPES.test(type);
}

export const UNNAMED: EventName = eventName("");
