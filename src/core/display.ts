import { redactCredentials } from "./redact.ts";

/** Texts from outside, made safe to print. */

/** Control characters and direction marks could overwrite the text around them, and people decide by that text. */
export function escapeControlChars(text: string): string {
  return text.replace(
    /[\p{C}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

/** An argument as it can be typed into a shell. */
export function quoteForShell(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** What failed, for a person. */
export interface Problem {
  readonly problem: string;
  /** What to type or do next; null: nothing is known that helps, or nothing is needed. */
  readonly next: string | null;
}

/** The result of something that failed. */
export interface Failed extends Problem {
  readonly ok: false;
}

export function failed(problem: string, next: string | null = null): Failed {
  return { ok: false, problem, next };
}

/** What failed, and what to do about it, in one line. */
export function withNext({ problem, next }: Problem): string {
  return next === null ? problem : `${problem} → ${next}`;
}

/** The same in two lines. */
export function withNextBelow({ problem, next }: Problem): string {
  return next === null ? problem : `${problem}\n→ ${next}`;
}

/** Longer commands are cut: something could be hidden at the end of a line that is too long to read. */
const MAX_COMMAND = 1000;

/** A command as a person would type it. isComplete is false if a part was hidden or cut. */
export function describeCommand(argv: readonly string[]): {
  readonly text: string;
  readonly isComplete: boolean;
} {
  const [program = "", ...rest] = argv;
  const redacted = rest.map((argument, index) => redactArgument(argument, rest[index - 1] ?? ""));
  const text = escapeControlChars([program, ...redacted].map(quoteForShell).join(" "));
  if (text.length <= MAX_COMMAND)
    return { text, isComplete: redacted.every((argument, index) => argument === rest[index]) };
  const more = text.length - MAX_COMMAND;
  return { text: `${text.slice(0, MAX_COMMAND)}… and ${more} more characters`, isComplete: false };
}

const SECRET_OPTION = /^--?[\w-]*(?:pass|token|secret|key|auth)[\w-]*$/i;

function redactArgument(argument: string, before: string): string {
  if (SECRET_OPTION.test(before) && !argument.startsWith("-")) return "[hidden]";
  const [option = "", ...value] = argument.split("=");
  if (value.length > 0 && SECRET_OPTION.test(option)) return `${option}=[hidden]`;
  if (!/^(?:[a-z][a-z0-9+.-]*:\/)?\//i.test(argument)) return redactCredentials(argument);
  // A path or an address looks like a secret as a whole, so its parts are redacted one by one.
  return argument.split("/").map(redactCredentials).join("/");
}

/** ~/.zshrc instead of /home/me/.zshrc. */
export function shortenHome(path: string, home: string): string {
  return path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}
