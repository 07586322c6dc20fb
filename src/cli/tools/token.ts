import { setToken } from "../../config/edit/splice.ts";
import { findPlaces, type Places } from "../../core/paths.ts";
import { hashToken, makeToken } from "../../identity/token.ts";
import { editConfig } from "./edit.ts";
import { revisionInForce, whenInForce } from "./effect.ts";
import { tell } from "./tell.ts";

export async function token(tool: string, options: { add?: boolean; config?: string }): Promise<void> {
  const places = findPlaces({ config: options.config });
  const made = await newToken(places, tool, options.add ? "add" : "replace");
  // Alone on stdout, so that it can be piped into the place where it belongs.
  if (made !== null) process.stdout.write(`${made}\n`);
}

/** A token for one more client of a tool: those of the others stay alive. null: it has been told why there is none. */
export function addToken(places: Places, tool: string): Promise<string | null> {
  return newToken(places, tool, "add");
}

/** It is handed out when it is let in, and the old ones are not: a program may use it in the same moment. */
async function newToken(places: Places, tool: string, mode: "replace" | "add"): Promise<string | null> {
  const { config: file } = places;
  const before = await revisionInForce(places);
  const made = makeToken();
  const hash = `sha256:${hashToken(made)}`;
  const edited = await editConfig(file, (text) => setToken(text, tool, hash, mode));
  if (edited === null) return null;
  const others = mode === "add" ? "the tokens it had go on working" : "the tokens it had, if any, are dead";
  tell(`token for ${tool}: shown this once; ${file} holds its hash, and ${others}`);
  const effect = await whenInForce(places, tool, (_tool, revision) => revision > before);
  if (effect.state === "not in force") tell(`but ${effect.reason}`);
  return made;
}
