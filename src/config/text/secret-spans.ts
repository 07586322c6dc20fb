import type { Span } from "../../core/spans.ts";

/** Settings whose value is a secret, and how people call them by mistake. */
const SECRET_NAME =
  /(?<![\w-])["']?(?:(?:api[-_]?)?key|token|access[-_]?token|refresh[-_]?token|password)["']?[^\S\n]*(?:\r?\n[^\S\n]*)?:/gi;

/** What stands there and is no secret: a reference to one, a variable, a token's hash, a command. */
const REFERENCE =
  /^(?:env:[A-Za-z_]\w*|\$\{?[A-Za-z_]\w*\}?|file:\S*|keychain:\S*|sha256:[0-9a-f]*|\[(?:["']?sha256:[0-9a-f]*["']?[ ,]?)*\])(?<end>,?[^\S\n]*(?:[#\n]|$)|[^\S\n]*[,}\]])/i;
const COMMAND = /^(?:\{\s*)?["']?command["']?\s*:/i;
const REFERENCE_REACH = 2000;

/** The beginning of another setting. */
const SETTING = /^\s*["']?[\w.-]+["']?\s*:(?:\s|$)/;
const SWITCHED_OFF = /^\s*#["']?[\w.-]+["']?\s*:(?:\s|$)/;

/**
 * Where the secrets of a config.yaml stand, line by line. Found in the text and not in the tree: a line with a mistake
 * in it is often the one with the key, and then where the value ends is exactly what is not known. So everything to
 * the end of the line is taken, and every line below up to the next setting that is no deeper.
 */
export function secretPlaces(text: string): Span[] {
  const paths: Span[] = [];
  let covered = 0;
  for (const match of text.matchAll(SECRET_NAME)) {
    const from = match.index + match[0].length;
    // One inside another ends no later: it stands deeper.
    if (from < covered) continue;
    const column = columnOf(text, match.index);
    const known = knownEnd(text, match.index, from);
    if (known === null) covered = cover(text, from, column, paths);
    // What a stray sign or line break cut off from it may still be the secret.
    else if (!isInBrackets(text, match.index)) cover(text, known, column, paths);
  }
  return paths;
}

/** Where a value ends that is no secret; null where it may be one. */
function knownEnd(text: string, name: number, from: number): number | null {
  const value = text.slice(from, from + REFERENCE_REACH);
  const start = from + value.length - value.trimStart().length;
  if (COMMAND.test(value.trimStart())) return text.length;
  const match = REFERENCE.exec(value.trimStart());
  const end = match?.groups?.end ?? "";
  // A comma or a bracket ends a value only inside brackets; elsewhere what follows belongs to it.
  if (match === null || (/[,}\]]$/.test(end) && !isInBrackets(text, name))) return null;
  return start + match[0].length - end.length;
}

function isInBrackets(text: string, at: number): boolean {
  return /[{[,]/.test(text.slice(at - columnOf(text, at), at));
}

function columnOf(text: string, at: number): number {
  return at - (text.lastIndexOf("\n", at - 1) + 1);
}

/** Notes the places of one value and says where they end. */
function cover(text: string, from: number, column: number, paths: Span[]): number {
  let end = endOfLine(text, from);
  add(text, from, end, paths);
  while (end < text.length) {
    const start = end + 1;
    const next = endOfLine(text, start);
    const line = text.slice(start, next);
    const indent = line.length - line.trimStart().length;
    if (indent <= column && SETTING.test(line)) break;
    if (indent > column || !isSwitchedOff(line)) add(text, start, next, paths);
    end = next;
  }
  return end;
}

/**
 * A setting behind a # is no part of the value above it, but need not end it either. Taken for a secret, the examples
 * of a new config.yaml would be blotted out of every hint that names the same.
 */
function isSwitchedOff(line: string): boolean {
  return SWITCHED_OFF.test(line) && line.search(SECRET_NAME) === -1;
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  return end === -1 ? text.length : end;
}

function add(text: string, from: number, to: number, paths: Span[]): void {
  const value = text.slice(from, to);
  const start = from + value.length - value.trimStart().length;
  const end = from + value.trimEnd().length;
  if (start < end) paths.push({ from: start, to: end });
}
