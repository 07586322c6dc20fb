import { lineEnd, lineStart } from "../core/lines.ts";
import { type Assignment, type Assignments, assignmentFormat, writeLike } from "./assignments.ts";
import type { SettingsFormat } from "./setting.ts";
import { type Command, readCommands, type ShellDialect, type Word } from "./shell-words.ts";
import { appendLine, lineBreakOf, matchAt, removeLines, splice } from "./text-edit.ts";

/*
 * Variables in the start files of shells: `export A=x`, `A=x`, `declare -x A=x B=y`, and in fish `set -gx A x`. Also those that
 * are set for one command, as in `A=x command`. Whether a command is reached, such as in an `if`, is not known.
 */

export const SH: SettingsFormat = shellFormat("sh");
export const FISH: SettingsFormat = shellFormat("fish");

interface ShellAssignment extends Assignment {
  readonly command: Command;
  /** Where the name is. */
  readonly nameStart: number;
  /** In fish, `set NAME value`; else NAME=value in one word. */
  readonly isSet: boolean;
}

function shellFormat(dialect: ShellDialect): SettingsFormat {
  const literal = (written: string) => literalValue(written, dialect);
  return assignmentFormat<ShellAssignment>({
    read: (text) => readAssignments(text, dialect),
    literal,
    remove,
    add(text, name, value, near) {
      const other = near === undefined ? "" : text.slice(near.start, near.end);
      const written = writeLike(other, value, { literal });
      if (written === null) return null;
      if (near !== undefined) return addBehind(text, name, written, near);
      return appendLine(
        text,
        dialect === "fish" ? `set -gx ${name} ${written}` : `export ${name}=${written}`,
      );
    },
  });
}

function readAssignments(text: string, dialect: ShellDialect): Assignments<ShellAssignment> {
  const read = readCommands(text, dialect);
  if (!read.ok) return read;
  const assignments = read.commands.flatMap((command) => {
    const isSet = dialect === "fish" && wordIs(text, command.words[0], /^set$/);
    return isSet ? fishSet(text, command) : assignmentsIn(text, command, dialect);
  });
  return { ok: true, assignments };
}

const DECLARATION = /^\\?(?:export|declare|typeset|readonly|local)$/;
const NAME_AND_EQUALS = /([A-Za-z_][A-Za-z0-9_]*)(\+?)=/y;

/** The words NAME=value in front of a command, or behind `export` and the like. */
function assignmentsIn(text: string, command: Command, dialect: ShellDialect): ShellAssignment[] {
  const assignments: ShellAssignment[] = [];
  const isDeclaration = wordIs(text, command.words[0], DECLARATION);
  for (const word of command.words.slice(isDeclaration ? 1 : 0)) {
    const [prefix, name, plus] = matchAt(NAME_AND_EQUALS, text, word.start) ?? [];
    if (prefix === undefined || name === undefined) {
      if (isDeclaration) continue;
      break;
    }
    const start = word.start + prefix.length;
    const { end } = word;
    // What NAME+=value makes of it depends on the value before.
    const value = plus === "+" ? null : literalValue(text.slice(start, end), dialect);
    assignments.push({ name, value, start, end, command, nameStart: word.start, isSet: false });
  }
  return assignments;
}

/** Options that only say where the variable is seen. */
const FISH_OPTION = /^-(?:[gxUlfu]+|-global|-export|-universal|-local|-function|-unexport|-path|-unpath)$/;

/** `set -gx NAME value`; more values are a list, and no literal. */
function fishSet(text: string, command: Command): ShellAssignment[] {
  const [, ...words] = command.words;
  const names = words.findIndex((word) => !wordIs(text, word, FISH_OPTION));
  const [nameWord, first, ...more] = words.slice(names);
  if (names === -1 || nameWord === undefined || first === undefined) return [];
  if (!wordIs(text, nameWord, /^[A-Za-z_][A-Za-z0-9_]*$/)) return [];
  const name = text.slice(nameWord.start, nameWord.end);
  const { start } = first;
  const { end } = more.at(-1) ?? first;
  const value = more.length > 0 ? null : literalValue(text.slice(start, end), "fish");
  return [{ name, value, start, end, command, nameStart: nameWord.start, isSet: true }];
}

function wordIs(text: string, { start, end }: Word, expression: RegExp): boolean {
  return expression.test(text.slice(start, end));
}

const SINGLE_QUOTED = /^'([^'\p{Cc}]*)'$/u;
const DOUBLE_QUOTED = /^"([^"$`\\\p{Cc}]*)"$/u;
/** No quotes, and nothing that a shell could expand. */
const BARE = /^[^\s\p{Cc}'"`$\\*?[\]{}()<>|&;~!^]*$/u;
/** zsh puts the path of ls in the place of =ls, and older fish a number in that of %self. */
const EXPANDED = /(?:^|:)=|^%/;

const QUOTED_PART = /'[^'\p{Cc}]*'|"[^"$`\\\p{Cc}]*"/u;

/** A word that a shell takes as it is: in quotes as a whole, not at all, or in parts. */
function literalValue(written: string, dialect: ShellDialect): string | null {
  const quoted = SINGLE_QUOTED.exec(written) ?? DOUBLE_QUOTED.exec(written);
  const [, value] = quoted ?? [];
  // In fish \' does not end single quotes.
  if (value !== undefined) return dialect === "fish" && value.includes("\\") ? null : value;
  // In fish a variable without a value is an empty list.
  if (written === "" && dialect === "fish") return null;
  if (BARE.test(written)) return EXPANDED.test(written) ? null : written;
  return joinedValue(written, dialect);
}

/** sk-abc of "sk-"abc. */
function joinedValue(written: string, dialect: ShellDialect): string | null {
  let value = "";
  let rest = written;
  for (let part = QUOTED_PART.exec(rest); part !== null; part = QUOTED_PART.exec(rest)) {
    value += rest.slice(0, part.index) + part[0].slice(1, -1);
    const bare = rest.slice(0, part.index);
    if (!BARE.test(bare) || EXPANDED.test(bare)) return null;
    if (dialect === "fish" && part[0].includes("\\")) return null;
    rest = rest.slice(part.index + part[0].length);
  }
  return BARE.test(rest) && !EXPANDED.test(rest) ? value + rest : null;
}

/** A command beside one of these decides whether another one runs, or the other way round. */
const TIE = /^(?:&&|\|\|?|\|&|!|and|or|not|if|elif|while|until|time)$/;
const OPENER = /^(?:then|else|do|[{()])$/;
const CLOSER = /^(?:elif|else|fi|done|[})]|;;|;&|;;&|esac)$/;

function isTied({ before, after }: Command): boolean {
  return TIE.test(before) || TIE.test(after);
}

/** Without it the shell could not read `if x; then fi`. */
function isOnlyOneInBlock({ before, after }: Command): boolean {
  return OPENER.test(before) && CLOSER.test(after);
}

function remove(text: string, assignment: ShellAssignment): string | null {
  const { command, isSet, nameStart } = assignment;
  const { words } = command;
  const at = words.findIndex((word) => word.start === nameStart);
  const [, ...options] = words.filter((word) => word.start !== nameStart);
  const isDeclaration =
    wordIs(text, words[0], DECLARATION) && options.every((word) => wordIs(text, word, /^-/));
  if (!isSet && !isDeclaration && words.length > 1)
    return removeWord(text, words[at - 1], words[at], words[at + 1]);
  if (isTied(command) || isOnlyOneInBlock(command)) return null;
  const { start, end } = rangeOf(command);
  if (isAlone(text, command)) return removeLines(text, start, end);
  const behind = matchAt(/[ \t]*;(?!;)[ \t]*(?![\r\n])/y, text, end);
  if (behind !== null) return splice(text, start, end + behind[0].length, "");
  const line = lineStart(text, start);
  const before = /(?<!;);[ \t]*$/.exec(text.slice(line, start));
  return before === null ? null : splice(text, line + before.index, end, "");
}

/** With the blanks between it and the word before it, or else the one behind it. */
function removeWord(
  text: string,
  previous: Word | undefined,
  word: Word | undefined,
  next: Word | undefined,
): string | null {
  if (word === undefined) return null;
  const start = previous?.end ?? word.start;
  const end = previous === undefined ? (next?.start ?? word.end) : word.end;
  const blanks = text.slice(start, word.start) + text.slice(word.end, end);
  return /^[ \t]*$/.test(blanks) ? splice(text, start, end, "") : null;
}

function addBehind(text: string, name: string, written: string, near: ShellAssignment): string | null {
  const { command, isSet, nameStart } = near;
  const [firstWord] = command.words;
  const { start, end } = rangeOf(command);
  const assignments = command.words.filter((word) => matchAt(NAME_AND_EQUALS, text, word.start) !== null);
  const isPrefix =
    !isSet && !wordIs(text, firstWord, DECLARATION) && assignments.length < command.words.length;
  const nameAt = isSet ? nameStart : (assignments[0]?.start ?? nameStart);
  const declaration = text.slice(start, nameAt);
  const line = `${declaration}${name}${isSet ? " " : "="}${written}`;
  if (isAlone(text, command) && !isTied(command) && !isPrefix && !declaration.includes("\n")) {
    const indent = text.slice(lineStart(text, start), start).replace("\uFEFF", "");
    const at = lineEnd(text, end);
    return splice(text, at, at, `${lineBreakOf(text)}${indent}${line}`);
  }
  if (!isSet) return splice(text, near.end, near.end, ` ${name}=${written}`);
  return isTied(command) ? null : splice(text, end, end, `; ${line}`);
}

function rangeOf({ words }: Command): Word {
  return { start: words[0].start, end: (words.at(-1) ?? words[0]).end };
}

/** Whether nothing else is on the lines of a command, except for a comment. */
function isAlone(text: string, command: Command): boolean {
  const { start, end } = rangeOf(command);
  return (
    /^\uFEFF?[ \t]*$/.test(text.slice(lineStart(text, start), start)) &&
    /^[ \t]*;?[ \t]*(?:#.*)?$/.test(text.slice(end, lineEnd(text, end)))
  );
}
