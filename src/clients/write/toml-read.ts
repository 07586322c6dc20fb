import { type Fault, faultAt, Unreadable } from "./spliced.ts";
import {
  behindEquals,
  commentEnd,
  isTable,
  putAt,
  readTomlKey,
  readTomlValue,
  skipBlanks,
  skipLines,
  type TomlTable,
  type TomlValue,
} from "./toml-value.ts";

/** One `[header]`, or the part above the first, with the settings that stand below it. */
export interface Section {
  /** Empty: above the first header. */
  readonly path: readonly string[];
  /** `[[header]]`: one more item of a list. */
  readonly listed: boolean;
  /** After the header; for the part above the first, where the text begins. */
  readonly end: number;
  readonly pairs: readonly Pair[];
}

export interface Pair {
  /** From the section on. */
  readonly path: readonly string[];
  readonly start: number;
  readonly valueStart: number;
  readonly valueEnd: number;
  readonly value: TomlValue;
}

export type TomlRead =
  | { readonly ok: true; readonly sections: readonly [Section, ...Section[]]; readonly tree: TomlTable }
  | { readonly ok: false; readonly fault: Fault };

/**
 * Reads TOML 1.0, and what 1.1 allows beyond it. A file that comes out of here was understood as a whole, so that
 * an edit cannot be led astray by a `[header]` inside a text of several lines.
 */
export function readToml(text: string): TomlRead {
  try {
    return { ok: true, ...readSections(text) };
  } catch (error) {
    if (error instanceof Unreadable) return { ok: false, fault: faultAt(text, error) };
    throw error;
  }
}

function readSections(text: string): { sections: [Section, ...Section[]]; tree: TomlTable } {
  const tree: TomlTable = { entries: new Map(), by: "header" };
  let at = text.startsWith("\uFEFF") ? 1 : 0;
  let pairs: Pair[] = [];
  let table = tree;
  const sections: [Section, ...Section[]] = [{ path: [], listed: false, end: at, pairs }];
  for (at = skipLines(text, at); at < text.length; at = endOfLine(text, at)) {
    if (text[at] === "[") {
      const header = readHeader(text, at);
      table = tableFor(tree, header.path, header.listed, at);
      pairs = [];
      sections.push({ ...header, pairs });
      at = header.end;
    } else {
      const pair = readPair(text, at);
      putAt(table, pair.path, pair.value, at);
      pairs.push(pair);
      at = pair.valueEnd;
    }
  }
  return { sections, tree };
}

function readPair(text: string, start: number): Pair {
  const key = readTomlKey(text, start);
  const valueStart = behindEquals(text, key.end);
  const { value, end } = readTomlValue(text, valueStart);
  return { path: key.value, start, valueStart, valueEnd: end, value };
}

function readHeader(text: string, start: number): { path: string[]; listed: boolean; end: number } {
  const listed = text.startsWith("[[", start);
  const key = readTomlKey(text, skipBlanks(text, start + (listed ? 2 : 1)));
  const at = skipBlanks(text, key.end);
  const closing = listed ? "]]" : "]";
  if (!text.startsWith(closing, at)) throw new Unreadable(at, `${closing} is missing here`);
  return { path: key.value, listed, end: at + closing.length };
}

/** Only blanks and a comment may follow on the line; answers where the next setting or header begins. */
function endOfLine(text: string, from: number): number {
  const blank = skipBlanks(text, from);
  const at = text[blank] === "#" ? commentEnd(text, blank) : blank;
  if (at < text.length && text[at] !== "\n" && !text.startsWith("\r\n", at)) {
    throw new Unreadable(at, "something stands behind the end of the setting");
  }
  return skipLines(text, at);
}

/** The table that a header opens, with those on the way to it. */
function tableFor(tree: TomlTable, path: readonly string[], listed: boolean, at: number): TomlTable {
  const twice = () => new Unreadable(at, `[${path.join(".")}] is there already`);
  let table = tree;
  for (const name of path.slice(0, -1)) {
    const there = table.entries.get(name);
    if (Array.isArray(there) && there.length === 0) throw twice();
    const inner: TomlValue | undefined = Array.isArray(there) ? there.at(-1) : there;
    if (inner === undefined) {
      const made: TomlTable = { entries: new Map(), by: "implied" };
      table.entries.set(name, made);
      table = made;
    } else if (isTable(inner) && inner.by !== "inline") table = inner;
    else throw twice();
  }
  const name = path.at(-1) ?? "";
  const there = table.entries.get(name);
  const made: TomlTable = { entries: new Map(), by: "header" };
  if (listed) {
    const items = there ?? [];
    // A list that is written with brackets is closed.
    const open = Array.isArray(items) && items.every((item) => isTable(item) && item.by === "header");
    if (!open || (there !== undefined && items.length === 0)) throw twice();
    table.entries.set(name, [...items, made]);
    return made;
  }
  if (there === undefined) {
    table.entries.set(name, made);
    return made;
  }
  if (!isTable(there) || there.by !== "implied") throw twice();
  there.by = "header";
  return there;
}
