import { setToken } from "../../config/edit/splice.ts";
import { hashToken, makeToken } from "../../identity/token.ts";
import { findPlaces } from "../../places.ts";
import { visible } from "../table.ts";
import { editConfig } from "./edit.ts";

export async function token(tool: string, options: { add?: boolean; config?: string }): Promise<void> {
  const { config: file } = findPlaces({ config: options.config });
  const made = makeToken();
  const hash = `sha256:${hashToken(made)}`;
  const edited = await editConfig(file, (text) =>
    setToken(text, tool, hash, options.add ? "add" : "replace"),
  );
  if (edited === null) return;
  // Alone on stdout, so that it can be piped into the place where it belongs.
  process.stdout.write(`${made}\n`);
  const others = options.add ? "the tokens it had go on working" : "the tokens it had, if any, are dead";
  const words = `token for ${tool}: shown this once; ${file} holds its hash, and ${others}`;
  process.stderr.write(`${visible(words)}\n`);
}
