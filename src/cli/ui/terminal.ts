import { styleText } from "node:util";
import { type Output, stdio } from "./stdio.ts";

export interface Screen {
  readonly width: number;
  /** Whether block characters can be drawn. */
  readonly utf8: boolean;
}

/** `columns` is what the terminal says; a pipe says nothing, and then COLUMNS or 80 counts. */
export function readScreen(env: NodeJS.ProcessEnv, columns: number | undefined): Screen {
  const fromEnv = /^\d{1,4}$/.test(env.COLUMNS ?? "") ? Number(env.COLUMNS) : 0;
  const width = columns || fromEnv || 80;
  const locale = env.LC_ALL || env.LC_CTYPE || env.LANG || "";
  return { width: Math.max(20, width), utf8: /utf-?8/i.test(locale) };
}

/** The terminal behind stdout. */
export function stdoutScreen(): Screen {
  return readScreen(stdio().env, stdio().stdout.columns);
}

/** The width to wrap text at on stdout. A program that reads a pipe finds each text on one line. */
export function outputWidth(): number {
  return stdio().stdout.isTTY === true ? stdoutScreen().width : Number.POSITIVE_INFINITY;
}

/** Whether a person is there who can answer a question. */
export function isInteractive(): boolean {
  return stdio().stdin.isTTY === true && stdio().stdout.isTTY === true;
}

export type Color = "red" | "yellow" | "green" | "dim" | "bold";

/** Colors the text on a terminal that shows colors; not on a pipe, not with NO_COLOR, not with TERM=dumb. */
export function color(name: Color, text: string, stream: Output = stdio().stdout): string {
  return stream.isTTY === true && stream.hasColors?.() === true
    ? styleText(name, text, { validateStream: false })
    : text;
}
