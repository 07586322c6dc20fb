import { setToken } from "../../config/edit/splice.ts";
import { hashToken, makeToken } from "../../identity/token.ts";
import { findPlaces } from "../../places.ts";
import { visible } from "../table.ts";
import { editConfig } from "./edit.ts";

export async function token(tool: string, options: { add?: boolean; config?: string }): Promise<void> {
  const { config: file } = findPlaces({ config: options.config });
  const made = await newToken(file, tool, options.add ? "add" : "replace");
  // Alone on stdout, so that it can be piped into the place where it belongs.
  if (made !== null) process.stdout.write(`${made}\n`);
}

/** A token for one more client of a tool: those of the others stay alive. null: it has been told why there is none. */
export function addToken(file: string, tool: string): Promise<string | null> {
  return newToken(file, tool, "add");
}

async function newToken(file: string, tool: string, mode: "replace" | "add"): Promise<string | null> {
  const made = makeToken();
  const hash = `sha256:${hashToken(made)}`;
  const edited = await editConfig(file, (text) => setToken(text, tool, hash, mode));
  if (edited === null) return null;
  const others = mode === "add" ? "the tokens it had go on working" : "the tokens it had, if any, are dead";
  const words = `token for ${tool}: shown this once; ${file} holds its hash, and ${others}`;
  process.stderr.write(`${visible(words)}\n`);
  return made;
}
