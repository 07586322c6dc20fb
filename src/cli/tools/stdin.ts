import { EXIT } from "../../core/errors.ts";
import { failNull } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";

/** No key and no token is longer; a program that writes for ever must not fill the memory. */
const MOST_CHARACTERS = 64 * 1024;

export interface Wanted {
  readonly key: boolean;
  readonly token: boolean;
}

/** Who is asked, or what was piped in instead. */
export interface Inputs {
  readonly person: Prompter | null;
  readonly key: string | null;
  readonly token: string | null;
}

/**
 * Secrets come from a person or over stdin, never as arguments, which every user of the machine can list. Of two, the
 * key is the first line and the token the second. null: told why there is nothing to read.
 */
export async function readInputs(wanted: Wanted, flags: Wanted, next: string): Promise<Inputs | null> {
  const none = { person: null, key: null, token: null };
  // A key that is typed after --key-stdin must not be shown either: so a terminal is always asked.
  if (process.stdin.isTTY === true) return { ...none, person: createPrompter() };
  if (wanted.key && !flags.key)
    return failNull(`nobody is here to type the key. pipe it in: ${next}`, EXIT.usage);
  if (!(wanted.key && flags.key) && !flags.token) return none;
  const text = await allOf(process.stdin);
  if (!flags.token) return { ...none, key: text };
  if (!wanted.key) return { ...none, token: text.trim() };
  const [key = "", token = "", ...more] = text.trim().split(/\r?\n/);
  if (token !== "" && more.length === 0) return { ...none, key, token: token.trim() };
  return failNull(
    "with --key-stdin and --token-stdin, the key is the first line and the token the second",
    EXIT.usage,
  );
}

async function allOf(input: NodeJS.ReadStream): Promise<string> {
  let text = "";
  for await (const chunk of input.setEncoding("utf8")) {
    text += String(chunk);
    if (text.length > MOST_CHARACTERS) break;
  }
  return text;
}
