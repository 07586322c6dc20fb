import { lineEnd, lineStart, nextLine } from "../core/lines.ts";
import { type Assignment, type Assignments, assignmentFormat, writeLike } from "./assignments.ts";
import type { SettingsFormat } from "./setting.ts";
import { appendLine, lineBreakOf, matchAt, removeLines, splice } from "./text-edit.ts";

/*
 * .env files. There is no standard: dotenv of npm, python-dotenv, docker compose and systemd's environment.d differ in
 * escapes, in `$` and in where a comment begins. So only what all of them read the same way is a literal value.
 */

export const DOTENV: SettingsFormat = assignmentFormat({ read, literal, remove, add });

const NAME_AND_EQUALS = /[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=/y;

function read(text: string): Assignments<Assignment> {
  const assignments: Assignment[] = [];
  let at = text.startsWith("\uFEFF") ? 1 : 0;
  while (at < text.length) {
    const match = matchAt(NAME_AND_EQUALS, text, at);
    if (match !== null) {
      const { start, end } = valueRange(text, at + match[0].length);
      assignments.push({ name: match[1] ?? "", value: literal(text.slice(start, end)), start, end });
      at = end;
    }
    at = nextLine(text, at);
  }
  return { ok: true, assignments };
}

/** @param at behind the equals sign */
function valueRange(text: string, at: number): { readonly start: number; readonly end: number } {
  const start = at + (matchAt(/[ \t]*/y, text, at)?.[0].length ?? 0);
  const lastOnLine = lineEnd(text, at);
  const isNothing = start >= lastOnLine || (start > at && text[start] === "#");
  if (isNothing) return { start: at, end: at };
  const quote = text.charAt(start);
  const close = /['"`]/.test(quote) ? closingQuote(text, start) : null;
  if (close !== null) {
    // What follows a quoted value belongs to it for some readers.
    const rest = text.slice(close, lineEnd(text, close));
    return { start, end: /^[ \t]*(?:#.*)?$/.test(rest) ? close : close + rest.length };
  }
  const line = text.slice(start, lastOnLine);
  const comment = line.search(/[ \t]#/);
  return { start, end: start + (comment === -1 ? line : line.slice(0, comment)).trimEnd().length };
}

/** The position behind it; null: the quote is never closed. */
function closingQuote(text: string, start: number): number | null {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === text[start]) return at + 1;
  }
  return null;
}

/** Some readers replace $X also in single quotes. */
const LITERAL = /^(?:'([^'$\\\p{Cc}]*)'|"([^"$`\\\p{Cc}]*)"|([^'"`$\\#\p{Cc}]*))$/u;

function literal(written: string): string | null {
  const [, single, double, bare] = LITERAL.exec(written) ?? [];
  return single ?? double ?? bare ?? null;
}

function remove(text: string, { start, end }: Assignment): string {
  return removeLines(text, start, end);
}

function add(text: string, name: string, value: string, near: Assignment | undefined): string | null {
  const written = writeLike(near === undefined ? "" : text.slice(near.start, near.end), value, { literal });
  if (written === null) return null;
  if (near === undefined) return appendLine(text, `${name}=${written}`);
  // With its indentation, its `export` and the blanks around its equals sign.
  const before = text.slice(lineStart(text, near.start), near.start).replace("\uFEFF", "");
  const at = before.lastIndexOf(near.name);
  const line = `${before.slice(0, at)}${name}${before.slice(at + near.name.length)}${written}`;
  const end = lineEnd(text, near.end);
  return splice(text, end, end, `${lineBreakOf(text)}${line}`);
}
