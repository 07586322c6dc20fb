import type { Client } from "./client.ts";
import { ANYTHING } from "./known/anything.ts";
import { CHAT_APPS } from "./known/chat-apps.ts";
import { CODING_AGENTS } from "./known/coding-agents.ts";
import { EDITORS } from "./known/editors.ts";
import { LIBRARIES } from "./known/libraries.ts";
import { MORE_AGENTS } from "./known/more-agents.ts";

/** Every client that is known, in the order in which they are listed. */
export const CLIENTS: readonly Client[] = [
  ...CODING_AGENTS,
  ...MORE_AGENTS,
  ...EDITORS,
  ...CHAT_APPS,
  ...LIBRARIES,
  ...ANYTHING,
];

export function findClient(id: string): Client | null {
  return CLIENTS.find((client) => client.id === id) ?? null;
}

/**
 * The clients that a tool's name may mean: codex-work is Codex, my-claude Claude Code. The longest name wins, so that
 * cline-cli is not Cline. Several: it could be any of them. None: it says nothing.
 */
export function guessClients(tool: string): readonly Client[] {
  const words = wordsOf(tool);
  const found = CLIENTS.map((client) => ({
    client,
    length: Math.max(
      0,
      ...[client.id, ...(client.aliases ?? [])].map((name) => matched(words, wordsOf(name))),
    ),
  }));
  const longest = Math.max(...found.map(({ length }) => length));
  return longest === 0 ? [] : found.filter(({ length }) => length === longest).map(({ client }) => client);
}

/** How many letters of the tool's name say this: whole words, next to each other. */
function matched(words: readonly string[], name: readonly string[]): number {
  const there = words.some((_, at) => name.every((word, step) => words[at + step] === word));
  return there ? name.join("").length : 0;
}

function wordsOf(text: string): string[] {
  return text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}
