import type { Tool } from "../config/shape.ts";
import { commandInWords, plain, shellWord } from "../keys/words.ts";

const AGAIN = "then save config.yaml again";

/**
 * What to do about a key that cannot be had, by where it comes from. A new key only where there is none, or where what
 * is there is none: behind a lock that is shut or a variable that is not set there mostly lies a good one.
 */
export function keyStep({ name, key }: Pick<Tool, "name" | "key">, why: string): string {
  const rotate = `keybearer tools rotate ${name}`;
  if (why.startsWith("incomplete key") || /^(?:the keychain has no entry|there is no file) /.test(why))
    return rotate;
  const [, named] = / → (keybearer [a-z -]+)$/.exec(why) ?? [];
  if (named !== undefined) return named;
  switch (key.kind) {
    case "literal":
      return rotate;
    case "keychain":
      return `unlock the keychain or log in to the desktop, ${AGAIN}; the key in it stays as it is`;
    case "env":
      return `set ${key.name} where keybearer is started, and start it again; or: ${rotate} --store file`;
    case "file":
      return `look at the file: ls -l ${plain(shellWord(key.path))}`;
    case "command":
      return `type it yourself and see what it says: ${commandInWords(key.argv).words}; ${AGAIN}`;
  }
}
