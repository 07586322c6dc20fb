import type { ErrorCode } from "yaml";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import { lineEnd, lineStart, nextLine } from "../core/lines.ts";
import { redactCredentials } from "../core/redact.ts";

/** A syntax error as the yaml package reports it. */
export interface ParseError {
  readonly at: number;
  readonly code: ErrorCode;
  readonly message: string;
}

/** The same for a person: where the mistake is, which is often above the place where the parser gave up. */
interface SyntaxProblem extends Problem {
  readonly at: number;
}

/** Never repeats a value: the line with the mistake may hold a key. */
export function explainParseError(
  error: ParseError,
  text: string,
  lexemes: readonly string[],
): SyntaxProblem {
  const { at, code } = error;
  const open = openedBefore(error, lexemes);
  if (open.quote !== null)
    return { at: open.quote, problem: "this quote is not closed", next: "close it on the same line" };
  const space = text
    .slice(lineStart(text, at), lineEnd(text, at))
    .search(/[\u00a0\u2000-\u200b\u202f\u3000]/);
  if (space !== -1)
    return {
      at: lineStart(text, at) + space,
      problem: "this is not a plain space but a special one, as in text copied from a web page",
      next: "delete it, and type a plain space",
    };
  if (code === "TAB_AS_INDENT")
    return { at, problem: "a tab is used as indentation", next: "indent with spaces" };
  if (code === "MULTIPLE_DOCS")
    return { at, problem: "there is a second document after `---`", next: "keep one document in the file" };
  if (code === "BAD_ALIAS" || code === "BAD_SCALAR_START") {
    const word = /^\S[^\s,\]}#]*/.exec(text.slice(at, at + 60))?.[0] ?? "";
    const problem = `${word.slice(0, 1)} has a special meaning in YAML`;
    return { at, problem, next: `quote it: "${redactCredentials(word)}"` };
  }
  if (open.bracket !== null) return inBrackets(error, text, open.bracket);
  const closing = /^[\]}]/.exec(text.slice(at, at + 1))?.[0];
  if (closing !== undefined)
    return { at, problem: `this ${closing} closes nothing`, next: "remove it, or open it before" };
  return explainLine(error, text);
}

/** What was opened before the error and not closed by then, by its offset. */
interface Opened {
  /** A quoted text that reaches over several lines: nothing in this file needs that. */
  readonly quote: number | null;
  readonly bracket: number | null;
}

function openedBefore({ at, message }: ParseError, lexemes: readonly string[]): Opened {
  const brackets: number[] = [];
  let offset = 0;
  for (const lexeme of lexemes) {
    const isQuoted = lexeme.startsWith('"') || lexeme.startsWith("'");
    const isClosed = lexeme.length > 1 && lexeme.endsWith(lexeme.charAt(0));
    if (isQuoted && offset <= at && (lexeme.includes("\n") || (!isClosed && /closing/.test(message))))
      return { quote: offset, bracket: null };
    if (offset >= at) break;
    if (lexeme === "[" || lexeme === "{") brackets.push(offset);
    else if (lexeme === "]" || lexeme === "}") brackets.pop();
    if (!LEXER_MARKS.includes(lexeme)) offset += lexeme.length;
  }
  return { quote: null, bracket: brackets.at(-1) ?? null };
}

/** The lexer puts these between tokens: a document starts, a flow ends in error, a scalar follows. They are not in the text. */
export const LEXER_MARKS: readonly string[] = ["\u{FEFF}", "\x02", "\x18", "\x1f"];

function inBrackets({ at, code, message }: ParseError, text: string, bracket: number): SyntaxProblem {
  const opening = text.charAt(bracket);
  const closing = opening === "[" ? "]" : "}";
  const isSameLine = lineStart(text, at) === lineStart(text, bracket);
  if (code === "BLOCK_IN_FLOW" || (isSameLine && /^missing ,/i.test(message)))
    return {
      at,
      problem: `two settings in ${opening} ${closing} need a comma between them`,
      next: `such as ${opening === "[" ? "[a, b]" : "{ a: 1, b: 2 }"}`,
    };
  return { at: bracket, problem: `this ${opening} is not closed`, next: `write the ${closing} that ends it` };
}

/** By the line itself, because the parser's own words are about its inner state. */
function explainLine({ at, code, message }: ParseError, text: string): SyntaxProblem {
  const start = lineStart(text, at);
  const line = withoutComment(text.slice(start, lineEnd(text, at)));
  const indent = countIndent(line);
  const content = start + indent;
  if (/^-(\s|$)/.test(line.trim()) && code !== "BAD_INDENT")
    return {
      at: content,
      problem: "a list begins here, among named settings",
      next: "remove the dash, or put the list below its own name",
    };
  const named = /^\s*(?:"[^"]*"|'[^']*'|[^\s:]+)\s*:(\s|$)/.exec(line);
  if (named === null && line.trim() !== "") {
    const next = /^\s*[\w.-]+:\S/.test(line)
      ? "put a space after the colon"
      : "write `name: value`, or `name:` above settings that are indented deeper";
    return { at: content, problem: "this line is not a setting with a name and a colon", next };
  }
  const below = nextContent(text, start);
  const isCrowded = code === "BLOCK_AS_IMPLICIT_KEY" || code === "MULTILINE_IMPLICIT_KEY";
  if (isCrowded && below !== null && below.indent > indent && below.isSetting)
    return {
      at: below.at,
      problem: "this line is indented deeper than the setting above it, which has a value",
      next: SAME_COLUMN,
    };
  if (isCrowded)
    return {
      at,
      problem: "two settings are on one line",
      next: 'put the second on its own line, or quote a value with ": " in it',
    };
  if (code === "BAD_INDENT" || /indent|same column/.test(message))
    return {
      at: content,
      problem: "this line is indented differently from the settings beside it",
      next: SAME_COLUMN,
    };
  const problem = message.slice(0, 1).toLowerCase() + message.slice(1);
  return {
    at,
    problem: redactCredentials(problem),
    next: `${advice.checkHelp()}, or see config.example.yaml`,
  };
}

const SAME_COLUMN = "settings of the same block begin in the same column";

interface Line {
  /** The offset of its first character that is no space. */
  readonly at: number;
  readonly indent: number;
  readonly isSetting: boolean;
}

/** The next line that is neither empty nor a comment. */
function nextContent(text: string, start: number): Line | null {
  for (let at = nextLine(text, start); at < text.length; at = nextLine(text, at)) {
    const line = withoutComment(text.slice(at, lineEnd(text, at)));
    if (line.trim() === "") continue;
    const indent = countIndent(line);
    return { at: at + indent, indent, isSetting: /:(\s|$)/.test(line) };
  }
  return null;
}

function withoutComment(line: string): string {
  return line.replace(/(^|\s)#.*$/, "");
}

function countIndent(line: string): number {
  return line.length - line.trimStart().length;
}
