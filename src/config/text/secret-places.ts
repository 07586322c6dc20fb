import type { Span } from "../../secret.ts";

/** Settings whose value is a secret, and how people call them by mistake. */
const SECRET_NAME =
  /(?<![\w-])["']?(?:(?:api[-_]?)?key|token|access[-_]?token|refresh[-_]?token|password)["']?[^\S\n]*(?:\r?\n[^\S\n]*)?:/gi;

/** What stands there and is no secret: a reference to one, a token's hash, a command. */
const REFERENCE =
  /^(?:(?:env:[A-Za-z_]\w*|file:\S*|keychain:\S*|sha256:[0-9a-f]*)[^\S\n]*(?:[,}\]#\n]|$)|\[(?:["']?sha256:[0-9a-f]*["']?[ ,]?)*\]|(?:\{\s*)?["']?command["']?\s*:)/i;
const REFERENCE_REACH = 2000;

/** Only signs that a value begins: it then goes on in the next line. */
const OPENING = /^[|>"'[{]*[-+\d]{0,2}(?:\s*#.*)?$/;

/**
 * Where the secrets of a config.yaml stand, line by line. Found in the text and not in the tree: a line with a mistake
 * in it is often the one with the key, and then where the value ends is exactly what is not known. So everything to
 * the end of the line is taken, and every deeper line below.
 */
export function secretPlaces(text: string): Span[] {
  const places: Span[] = [];
  let covered = 0;
  for (const match of text.matchAll(SECRET_NAME)) {
    const from = match.index + match[0].length;
    const isReference = REFERENCE.test(text.slice(from, from + REFERENCE_REACH).trimStart());
    if (isReference || (from < covered && !isBlank(text, from, covered))) continue;
    covered = cover(text, from, columnOf(text, match.index), places);
  }
  return places;
}

function isBlank(text: string, from: number, to: number): boolean {
  return to - from < 200 && OPENING.test(text.slice(from, to).trim());
}

function columnOf(text: string, at: number): number {
  return at - (text.lastIndexOf("\n", at - 1) + 1);
}

/** Notes the places of one value and says where they end. */
function cover(text: string, from: number, column: number, places: Span[]): number {
  let end = endOfLine(text, from);
  add(text, from, end, places);
  const first = text.slice(from, end).replace(/(?:^|\s)[&!]\S*/g, "");
  let goesOn = OPENING.test(first.trim());
  while (end < text.length) {
    const start = end + 1;
    const next = endOfLine(text, start);
    const line = text.slice(start, next);
    const indent = line.length - line.trimStart().length;
    if (line.trim() !== "") {
      if (!goesOn && indent <= column) break;
      goesOn = false;
      add(text, start, next, places);
    }
    end = next;
  }
  return end;
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  return end === -1 ? text.length : end;
}

function add(text: string, from: number, to: number, places: Span[]): void {
  const value = text.slice(from, to);
  const start = from + value.length - value.trimStart().length;
  const end = from + value.trimEnd().length;
  if (start < end) places.push([start, end]);
}
