import { createHash } from "node:crypto";
import type { Model } from "./models.ts";
import type { ModelReply, ModelRequest, Protocol } from "./protocols/protocol.ts";

/** About what English text has with the tokenizers in use. */
const CHARACTERS_PER_TOKEN = 4;
/** The length of what sandbox-thinker thinks before it answers. */
const REASONING_TOKENS = 24;
/** Characters of the client's text that the reply repeats. */
const MAX_ECHO = 120;
/** Half of a surrogate pair, which cutting a text can leave. It cannot be encoded as UTF-8. */
const LONE_SURROGATE = /[\uD800-\uDBFF]$/;

export function countTokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN);
}

/** At least 1, as real gateways count. */
export function countPromptTokens(request: ModelRequest): number {
  return Math.max(1, countTokens(request.prompt));
}

/** The same request always gets the same text. */
export function buildReply(
  request: ModelRequest,
  protocol: Protocol,
  model: Model,
  cache: PrefixCache,
  keyId: number,
): Pick<ModelReply, "deltas" | "text" | "truncated" | "tokens"> {
  const { maxTokens } = request;
  const reasoning = model.reasons ? Math.min(REASONING_TOKENS, maxTokens ?? REASONING_TOKENS) : 0;
  const full = protocol.produces === "text" ? replyText(request) : "";
  const text = maxTokens === null ? full : cut(full, (maxTokens - reasoning) * CHARACTERS_PER_TOKEN);
  const cached = cache.use(`${keyId} ${model.id}`, request.prompt);
  const cacheWrite = protocol.reportsCacheWrites ? cached.written : 0;
  return {
    deltas: text.match(/\S+\s*|\s+/g) ?? [],
    text,
    truncated: text.length < full.length,
    tokens: {
      input: countPromptTokens(request) - cached.read - cacheWrite,
      cacheRead: cached.read,
      cacheWrite,
      output: reasoning + countTokens(text),
      reasoning,
    },
  };
}

function replyText({ model, lastUserText }: ModelRequest): string {
  // Slice first: the text can be as long as a body.
  const start = lastUserText
    .slice(0, MAX_ECHO * 10)
    .replace(/\s+/g, " ")
    .trim();
  const echo = start.length > MAX_ECHO ? `${cut(start, MAX_ECHO)}…` : start;
  return (
    `Hello from the keybearer sandbox! This is ${model}; no real model is behind it, ` +
    `so nothing you send here leaves this machine. ${echo === "" ? "You sent no text." : `You wrote: ${echo}`}`
  );
}

function cut(text: string, length: number): string {
  return text.length <= length ? text : text.slice(0, length).replace(LONE_SURROGATE, "");
}

const BLOCK_TOKENS = 128;
/** Shorter prompts are not cached: 1024 tokens, as at the real services. */
const MIN_BLOCKS = 8;
const MAX_CACHED_BLOCKS = 50_000;

/** Knows the beginnings of earlier prompts, so that a growing conversation is billed at cache prices as in real life. */
export class PrefixCache {
  /** Digests of prompts up to the end of a block, least recently used first. */
  readonly #blocks = new Set<string>();

  /** Looks a prompt up and remembers it. Owners (a key with a model) share nothing. Both results are tokens. */
  use(owner: string, prompt: string): { readonly read: number; readonly written: number } {
    const digests = blockDigests(owner, prompt);
    if (digests.length < MIN_BLOCKS) return { read: 0, written: 0 };
    const firstNew = digests.findIndex((digest) => !this.#blocks.has(digest));
    const known = firstNew === -1 ? digests.length : firstNew;
    for (const digest of digests) this.#remember(digest);
    const read = known < MIN_BLOCKS ? 0 : known * BLOCK_TOKENS;
    return { read, written: digests.length * BLOCK_TOKENS - read };
  }

  #remember(digest: string): void {
    // A Set keeps the order of insertion, so this moves it to the end.
    this.#blocks.delete(digest);
    this.#blocks.add(digest);
    if (this.#blocks.size <= MAX_CACHED_BLOCKS) return;
    const [oldest = ""] = this.#blocks;
    this.#blocks.delete(oldest);
  }
}

/** One digest per full block, each over everything before it. */
function blockDigests(owner: string, prompt: string): string[] {
  const size = BLOCK_TOKENS * CHARACTERS_PER_TOKEN;
  const digests: string[] = [];
  let before = owner;
  for (let start = 0; start + size <= prompt.length; start += size) {
    before = createHash("sha1")
      .update(before)
      .update(prompt.slice(start, start + size))
      .digest("base64");
    digests.push(before);
  }
  return digests;
}
