import { blotCredentials } from "../../secret.ts";

const WIDEST = 100;
// To the end of the line: where a broken value ends is exactly what is not known.
const SECRET_VALUE =
  /((?:^|[\s{,"'])(?:key|token|password|access_token|refresh_token)["']?\s*:\s*)(?!\s*(?:env:|file:|keychain:|sha256:|\{|\[|$)).+/i;

/**
 * One source line with a caret below it. The line is shown to people and written to logs, and the line with the
 * mistake is often the one with the key: whatever stands in a secret's place, or looks like one, is hidden.
 */
export function excerpt(text: string, line: number, column: number): string | null {
  const source = text.split(/\r\n|\n|\r/, line)[line - 1];
  if (source === undefined) return null;
  const before = hide(source.slice(0, column - 1));
  // Hidden as a whole, then cut, so that a key the caret points into is not shown by half.
  const whole = hide(source);
  const caret = Math.min(source.slice(0, column - 1) === before ? column - 1 : before.length, whole.length);
  const start = caret > WIDEST - 20 ? caret - (WIDEST - 20) : 0;
  const shown = whole.slice(start, start + WIDEST).replaceAll("\t", " ");
  return `${shown}\n${" ".repeat(caret - start)}^`;
}

function hide(line: string): string {
  return blotCredentials(line.replace(SECRET_VALUE, "$1[hidden]")).replace(/\p{Cc}/gu, (c) =>
    c === "\t" ? c : "?",
  );
}
