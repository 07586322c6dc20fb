export interface StreamEvent {
  /** Empty: it has none. */
  readonly name: string;
  readonly data: string;
  /** It was too long, and parts of it are missing. */
  readonly shortened: boolean;
}

/**
 * A line of a stream, or a JSON body, that is longer than both together loses its middle. The cause is almost always an
 * image, and JSON without a part of an image's base64 is still JSON.
 */
export const MAX_HEAD = 512 * 1024;
export const MAX_TAIL = 64 * 1024;
/** Characters of an event, with its comments. A longer one loses its first lines. */
const MAX_EVENT = 2 * 1024 * 1024;

/** Keeps the beginning and the end of a text, and drops the middle of one that is too long. */
export class BoundedText {
  #head = "";
  #tail = "";

  get shortened(): boolean {
    return this.#tail !== "";
  }

  get text(): string {
    return this.#head + this.#tail.slice(-MAX_TAIL);
  }

  add(text: string): void {
    const free = MAX_HEAD - this.#head.length;
    this.#head += text.slice(0, free);
    if (text.length <= free) return;
    this.#tail += text.slice(free);
    if (this.#tail.length > 2 * MAX_TAIL) this.#tail = this.#tail.slice(-MAX_TAIL);
  }
}

/**
 * Reads server-sent events from text that is cut anywhere, in bounded memory. Contrary to the standard, the last event
 * counts even without an empty line after it: it reached the client.
 *
 * Not eventsource-parser: it drops an event that exceeds its limit. The event with a generated image has megabytes of
 * base64, and the usage after them.
 */
export class EventReader {
  readonly #onEvent: (event: StreamEvent) => void;
  /** The beginning of the current line, from earlier chunks. */
  #begun: BoundedText | null = null;
  /** The text ended in CR. If LF follows, both are one line break. */
  #endsInReturn = false;
  #name = "";
  #data: string | null = null;
  #shortened = false;
  #length = 0;

  constructor(onEvent: (event: StreamEvent) => void) {
    this.#onEvent = onEvent;
  }

  see(text: string): void {
    const isSplit = this.#endsInReturn && text.startsWith("\n");
    if (text !== "") this.#endsInReturn = text.endsWith("\r");
    const lines = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    let begin = isSplit ? 1 : 0;
    for (let end = lines.indexOf("\n", begin); end !== -1; end = lines.indexOf("\n", begin)) {
      if (end === begin && this.#begun === null) this.#endEvent();
      else this.#endLine(lines.slice(begin, end));
      begin = end + 1;
    }
    if (begin === lines.length) return;
    this.#begun ??= new BoundedText();
    this.#begun.add(lines.slice(begin));
  }

  finish(): void {
    if (this.#begun !== null) this.#endLine("");
    // The last event counts even if it has only a name.
    if (this.#name !== "") this.#data ??= "";
    this.#endEvent();
  }

  /** @param rest the part of the line that is in the current chunk. */
  #endLine(rest: string): void {
    let line = rest;
    if (this.#begun !== null || rest.length > MAX_HEAD) {
      const whole = this.#begun ?? new BoundedText();
      whole.add(rest);
      line = whole.text;
      this.#shortened ||= whole.shortened;
      this.#begun = null;
    }
    this.#length += line.length;
    if (this.#length > MAX_EVENT) {
      this.#length = 0;
      this.#data = null;
      this.#shortened = true;
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    // All other fields are comments, ids or unknown.
    if (field === "data") this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
    else if (field === "event") this.#name = value.trim();
  }

  #endEvent(): void {
    const event = { name: this.#name, data: this.#data ?? "", shortened: this.#shortened };
    const isEvent = this.#data !== null;
    this.#name = "";
    this.#data = null;
    this.#shortened = false;
    this.#length = 0;
    if (isEvent) this.#onEvent(event);
  }
}
