import { typeable } from "../../core/command-name.ts";
import type { Problem } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import { type Output, setExitCode, stdio } from "./stdio.ts";
import { readScreen } from "./terminal.ts";
import { printable, textWidth, wrap } from "./text.ts";

/*
 * Results go to stdout (print, printText), everything else to stderr (notice, fail). On a terminal long lines are
 * wrapped; a program that reads a pipe finds each message on one line.
 */

/** Prints lines to stdout as they are. */
export function print(...lines: readonly string[]): void {
  for (const line of lines) stdio().stdout.write(`${printable(typeable(line))}\n`);
}

/** Prints a text that was laid out already: with tables, columns or colors. */
export function printLayout(text: string, stream: Output = stdio().stdout): void {
  stream.write(typeable(text));
}

/** Prints a value for programs to stdout. */
export function printJson(value: unknown): void {
  stdio().stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints a diff to stdout, with the tabs that are in it. */
export function printDiff(lines: readonly string[]): void {
  for (const line of lines) stdio().stdout.write(`${line.split("\t").map(printable).join("\t")}\n`);
}

/** A sentence, or a problem with what to type next. */
export type Message = string | Problem;

/** Prints sentences to stdout. */
export function printText(...messages: readonly Message[]): void {
  writeText(stdio().stdout, messages);
}

/** Prints sentences to stderr, because stdout is for what a program may read: a token, or JSON. */
export function notice(...messages: readonly Message[]): void {
  writeText(stdio().stderr, messages);
}

/** Says what failed and sets the exit code. The program ends with it once everything is written. */
export function fail(message: Message | readonly Message[], exitCode: number): void {
  notice(...[message].flat());
  setExitCode(exitCode);
}

/** `fail` for functions that return null if they cannot go on. */
export function failNull(message: Message | readonly Message[], exitCode: number): null {
  fail(message, exitCode);
  return null;
}

/** The person pressed Ctrl-C or Ctrl-D at a question. */
export function canceled(): null {
  return failNull("stopped; nothing was changed", EXIT.failed);
}

/** Something the person should know, and what to type; null: there is nothing to type. */
export interface Note {
  readonly what: string;
  readonly next: string | null;
}

/** On one line if it fits; otherwise the command to type has its own line, unbroken, so that it can be copied. */
export function formatNote(note: Note, width: number): string {
  const what = printable(typeable(note.what));
  if (note.next === null) return wrap(what, width);
  const next = printable(typeable(note.next));
  const line = `${what} → ${next}`;
  if (textWidth(line) <= width) return line;
  const indent = /^ */.exec(what)?.[0] ?? "";
  return `${wrap(what, width)}\n${indent}  → ${next}`;
}

/** The same as lines, indented below what they belong to. */
export function indentedNote(note: Note, width: number): string[] {
  return formatNote(note, width - 2)
    .split("\n")
    .map((line) => `  ${line}`);
}

function writeText(stream: Output, messages: readonly Message[]): void {
  const width =
    stream.isTTY === true ? readScreen(stdio().env, stream.columns).width : Number.POSITIVE_INFINITY;
  for (const message of messages) {
    const { problem, next } = typeof message === "string" ? { problem: message, next: null } : message;
    const lines = problem.split("\n");
    const last = lines.pop() ?? "";
    for (const line of lines) stream.write(`${formatNote({ what: line, next: null }, width)}\n`);
    stream.write(`${formatNote({ what: last, next }, width)}\n`);
  }
}

/**
 * A reader that has seen enough (`| head`) is not an error, so a closed pipe is ignored; without a listener Node would end
 * the program with a stack trace. Other failures (`> file` on a full disk) are reported once.
 */
export function handleOutputErrors(): void {
  let isReported = false;
  stdio().stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE" || isReported) return;
    isReported = true;
    fail(
      { problem: `the output cannot be written: ${errorMessage(error)}`, next: "write it somewhere else" },
      EXIT.failed,
    );
  });
  // stderr is closed, so there is nowhere to report it.
  stdio().stderr.on("error", () => {});
}

/** For commands that only print: they end when the reader has gone. */
export function exitOnClosedOutput(): void {
  stdio().stdout.on("error", () => process.exit());
}
