import { redactCredentials } from "../core/secret.ts";

/** Longer commands are cut: the end of a line nobody reads is no place to hide something. */
const MOST_SHOWN = 1000;

/**
 * Makes a text from outside safe to print. Control characters and direction marks could paint over the words
 * around them, and a person is about to decide by those words.
 */
export function plain(text: string): string {
  return text.replace(
    /[\p{C}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

/** A word as it can be typed into a shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command as a person would type it. `whole` is false when a part had to be hidden or cut. */
export function commandInWords(argv: readonly string[]): { readonly words: string; readonly whole: boolean } {
  const [program = "", ...rest] = argv;
  const redacted = rest.map((argument, at) => redactArgument(argument, rest[at - 1] ?? ""));
  const words = plain([program, ...redacted].map(shellWord).join(" "));
  const whole = redacted.every((word, at) => word === rest[at]);
  if (words.length <= MOST_SHOWN) return { words, whole };
  return {
    words: `${words.slice(0, MOST_SHOWN)}… and ${words.length - MOST_SHOWN} more characters`,
    whole: false,
  };
}

const SECRET_OPTION = /^--?[\w-]*(?:pass|token|secret|key|auth)[\w-]*$/i;

/** An argument may hold a secret. A path or an address is blotted part by part: as a whole it looks like one. */
function redactArgument(argument: string, before: string): string {
  if (SECRET_OPTION.test(before) && !argument.startsWith("-")) return "[hidden]";
  const [option = "", ...value] = argument.split("=");
  if (value.length > 0 && SECRET_OPTION.test(option)) return `${option}=[hidden]`;
  if (!/^(?:[a-z][a-z0-9+.-]*:\/)?\//i.test(argument)) return redactCredentials(argument);
  return argument.split("/").map(redactCredentials).join("/");
}
