import { EXIT } from "../../core/errors.ts";
import { failNull } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";
import { stdio } from "../ui/stdio.ts";

/** No key or token is longer. A program that never stops writing must not fill the memory. */
const MAX_CHARACTERS = 64 * 1024;

interface Secrets {
  readonly key: boolean;
  readonly token: boolean;
}

/** A person to ask, or what was piped in instead. */
export interface Inputs {
  readonly prompter: Prompter | null;
  readonly key: string | null;
  readonly token: string | null;
}

/**
 * Secrets come from a person or from stdin, never from arguments, which every user of the machine can list. Of two, the key is
 * the first line and the token the second. null: there is nothing to read, and that was printed.
 */
export async function readInputs(needed: Secrets, flags: Secrets, next: string): Promise<Inputs | null> {
  const nothing = { prompter: null, key: null, token: null };
  // With --key-stdin, too: a key that is typed at a terminal must not be shown.
  if (stdio().stdin.isTTY === true) return { ...nothing, prompter: createPrompter() };
  if (needed.key && !flags.key)
    return failNull(`there is no terminal to type the key at. pipe it in: ${next}`, EXIT.usage);
  if (!(needed.key && flags.key) && !flags.token) return nothing;
  const text = await readStdin();
  if (!flags.token) return { ...nothing, key: text };
  if (!needed.key) return { ...nothing, token: text.trim() };
  const [key = "", token = "", ...more] = text.trim().split(/\r?\n/);
  if (token !== "" && more.length === 0) return { ...nothing, key, token: token.trim() };
  return failNull(
    "with --key-stdin and --token-stdin, the key is the first line and the token the second",
    EXIT.usage,
  );
}

async function readStdin(): Promise<string> {
  let text = "";
  for await (const chunk of stdio().stdin.setEncoding("utf8")) {
    text += String(chunk);
    if (text.length > MAX_CHARACTERS) break;
  }
  return text;
}
