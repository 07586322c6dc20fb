import { createHash } from "node:crypto";
import { CHARACTERS_PER_TOKEN } from "./tokens.ts";

/**
 * Remembers the beginnings of prompts, as real gateways do, so that a conversation that grows is billed for its old
 * part at the cache price. Works by blocks of 128 tokens, from 1024 tokens on.
 */
export interface PrefixCache {
  /** Looks up and remembers. Who: one key and one model; they share nothing with others. */
  visit(who: string, prompt: string): { readonly readTokens: number; readonly newTokens: number };
}

const BLOCK_TOKENS = 128;
const LEAST_BLOCKS = 8;
const MOST_REMEMBERED = 50_000;

export function createPrefixCache(): PrefixCache {
  const seen = new Set<string>();

  function remember(digest: string): void {
    // Deleting first moves it to the young end: a Set keeps the order of insertion.
    seen.delete(digest);
    seen.add(digest);
    for (const oldest of seen) {
      if (seen.size <= MOST_REMEMBERED) break;
      seen.delete(oldest);
    }
  }

  return {
    visit(who, prompt) {
      const digests = blockDigests(who, prompt);
      if (digests.length < LEAST_BLOCKS) return { readTokens: 0, newTokens: 0 };
      const firstNew = digests.findIndex((digest) => !seen.has(digest));
      const read = firstNew === -1 ? digests.length : firstNew;
      for (const digest of digests) remember(digest);
      const readTokens = read < LEAST_BLOCKS ? 0 : read * BLOCK_TOKENS;
      return { readTokens, newTokens: digests.length * BLOCK_TOKENS - readTokens };
    },
  };
}

/** One digest per full block, each over everything before it. */
function blockDigests(who: string, prompt: string): readonly string[] {
  const size = BLOCK_TOKENS * CHARACTERS_PER_TOKEN;
  const digests: string[] = [];
  let before = who;
  for (let at = 0; at + size <= prompt.length; at += size) {
    before = createHash("sha1")
      .update(before)
      .update(prompt.slice(at, at + size))
      .digest("base64");
    digests.push(before);
  }
  return digests;
}
