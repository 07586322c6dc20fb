import { setToken } from "../../config/edit-tools.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { hashToken, makeToken } from "../../core/token.ts";
import { notice } from "../ui/messages.ts";
import { editConfig } from "./edit.ts";
import { revisionInForce, whenInForce } from "./effect.ts";

export async function token(tool: string, options: { add?: boolean; config?: string }): Promise<void> {
  const paths = findPaths({ config: options.config });
  const made = await newToken(paths, tool, options.add ? "add" : "replace");
  // Alone on stdout, so that it can be piped into the place where it belongs.
  if (made !== null) process.stdout.write(`${made}\n`);
}

/** A token for one more client of a tool: those of the others stay alive. null: it has been told why there is none. */
export function addToken(paths: Paths, tool: string): Promise<string | null> {
  return newToken(paths, tool, "add");
}

/** It is handed out when it is let in, and the old ones are not: a program may use it in the same moment. */
async function newToken(paths: Paths, tool: string, mode: "replace" | "add"): Promise<string | null> {
  const { config: file } = paths;
  const before = await revisionInForce(paths);
  const made = makeToken();
  const hash = `sha256:${hashToken(made)}`;
  const edited = await editConfig(file, (text) => setToken(text, tool, hash, mode));
  if (edited === null) return null;
  const others = mode === "add" ? "the tokens it had go on working" : "the tokens it had, if any, are dead";
  notice(`token for ${tool}: shown this once; ${file} holds its hash, and ${others}`);
  const effect = await whenInForce(paths, tool, (_tool, revision) => revision > before);
  if (effect.state === "not in force") notice(`but ${effect.reason}`);
  return made;
}
