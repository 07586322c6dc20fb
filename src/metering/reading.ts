import type { Tokens } from "./usage.ts";

/** What listening to an answer told. */
export interface Reading {
  /** null: it reported nothing that could be read. */
  readonly tokens: Tokens | null;
  /** The model the answer names. */
  readonly model: string | null;
  /** The answer's own id: chatcmpl-…, msg_…, resp_… */
  readonly id: string | null;
  /** Text the answer was seen to hold, for an estimate where nothing was reported. */
  readonly text: TextSeen;
  /** Whether an event stream said its last word; null where this is no stream whose end could be told. */
  readonly reached: boolean | null;
  /** Its last word was an error. */
  readonly failed: boolean;
  /** Why it stopped reading before the end: bytes it could not decode, or its bounds. null: it did not. */
  readonly trouble: string | null;
}

/** Text by what it costs a tokenizer: plain letters, and everything else. */
export interface TextSeen {
  readonly ascii: number;
  /** Bytes of characters beyond ASCII, three for most of Chinese, Japanese and Korean. */
  readonly other: number;
}

/** What is known of an answer's output while it still comes. */
export interface SoFar {
  /** Events of a stream that brought a piece of the answer, most of which are about one token each. */
  readonly pieces: number;
  /** Tokens that the answer said by itself; null: it said nothing yet. Some begin with a placeholder. */
  readonly reported: number | null;
}

/** Listens to one answer. No method throws, whatever the bytes. */
export interface Meter {
  see(chunk: Buffer): void;
  soFar(): SoFar;
  /** Called once: at once where nothing has to be decoded, else when the last seen byte is. */
  finish(done: (reading: Reading) => void): void;
}
