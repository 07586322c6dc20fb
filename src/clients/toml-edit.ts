import { isDeepStrictEqual } from "node:util";
import { parse, TomlError } from "smol-toml";
import { isObject } from "../core/json.ts";
import { lineEnd, lineStart, nextLine } from "../core/lines.ts";
import {
  type Path,
  type PlainValue,
  type Setting,
  type Settings,
  type SettingsFormat,
  showPath,
  valueIn,
} from "./setting.ts";
import {
  cannotEdit,
  changeByHand,
  type Edited,
  indentAt,
  lineBreakOf,
  lineCounter,
  matchAt,
  removeLines,
  splice,
} from "./text-edit.ts";

export const TOML: SettingsFormat = {
  read: readToml,
  at: tomlAt,
  set(text, path, value) {
    const name = path.at(-1);
    if (name === undefined) return cannotEdit("a setting has no name");
    if (value === undefined && isTable(tomlAt(text, path))) return removeEmptyTable(text, path);
    return editToml(text, path.slice(0, -1), name, value ?? null);
  },
};

/**
 * Sets one scalar, or removes it (null), and keeps every other byte. A scalar that is there is replaced wherever it is: below
 * a header, in an inline table, in a list. A new one is added below its `[table]` header, which is appended if it is missing;
 * an empty table path is the part above the first header.
 */
export function editToml(text: string, table: Path, name: string | number, value: PlainValue | null): Edited {
  const problem = findProblem(text);
  if (problem !== null) return problem;
  const path = [...table, name];
  if ((tomlAt(text, path) ?? null) === value) return { ok: true, text };
  const edited = editText(text, table, name, value);
  // A dotted key or an inline table can also define the setting. Then the result is invalid or means something else.
  const expected = parseTable(text);
  const valid = edited !== null && findProblem(edited) === null && assign(expected, path, value);
  if (!valid || !isDeepStrictEqual(parseTable(edited), expected)) {
    return changeByHand(table.length === 0 ? String(name) : `[${showPath(table)}]`);
  }
  return { ok: true, text: edited };
}

/** Removes the header of a table without settings, and an empty line above it. Comments stay. */
export function removeEmptyTable(text: string, table: Path): Edited {
  const problem = findProblem(text);
  if (problem !== null) return problem;
  const section = readSections(text).find((each) => isDeepStrictEqual(each.path, table));
  // Tables around it have no header of their own, and end with it.
  if (section === undefined) return { ok: true, text };
  const start = lineStart(text, section.headerEnd);
  const above = lineStart(text, start - 1);
  const isEmptyAbove = start > 0 && text.slice(above, start).trim() === "";
  const without = splice(text, isEmptyAbove ? above : start, nextLine(text, section.headerEnd), "");
  const isLeft = section.settings.length > 0 || findProblem(without) !== null;
  return isLeft ? changeByHand(`[${showPath(table)}]`) : { ok: true, text: without };
}

/** The value at a path; undefined: there is none, or the text is not TOML. */
export function tomlAt(text: string, path: Path): unknown {
  return findProblem(text) === null ? valueIn(parsePlain(text), path) : undefined;
}

function readToml(text: string): Settings {
  const problem = findProblem(text);
  if (problem !== null) return problem;
  const lineAt = lineCounter(text);
  const tree = parsePlain(text);
  const settings = readScalars(text).map(
    ({ path, start }): Setting => ({ path, value: literalOf(valueIn(tree, path)), line: lineAt(start) }),
  );
  return { ok: true, settings };
}

/** Dates, and numbers that JavaScript does not have, are no literals. */
function literalOf(value: unknown): PlainValue | null {
  if (typeof value === "string" || typeof value === "boolean") return value;
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

type Table = Record<string, unknown>;

function isTable(value: unknown): value is Table {
  return isObject(value) && !(value instanceof Date);
}

function parseTable(text: string): Table {
  return parse(text, { integersAsBigInt: true });
}

/** Its integers are numbers, if a number can hold them. */
function parsePlain(text: string): Table {
  return parse(text, { integersAsBigInt: "asNeeded" });
}

function findProblem(text: string): (Edited & { readonly ok: false }) | null {
  try {
    parseTable(text);
    return null;
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // The further lines of the message quote the file, which may hold keys.
    return cannotEdit(error.message.split("\n")[0] ?? "", error.line);
  }
}

/** false: something that is neither a table nor a list is in the way, or the list has no such item. */
function assign(tree: Table, path: Path, value: PlainValue | null): boolean {
  let container: unknown = tree;
  for (const [depth, name] of path.entries()) {
    const isLast = depth === path.length - 1;
    if (Array.isArray(container)) {
      if (typeof name !== "number" || name >= container.length) return false;
      if (isLast && value === null) container.splice(name, 1);
      else if (isLast) container[name] = parsedValue(value);
      container = container[name];
    } else {
      if (!isTable(container)) return false;
      if (isLast && value === null) delete container[name];
      else if (isLast) container[name] = parsedValue(value);
      else container[name] ??= Object.create(null);
      container = container[name];
    }
  }
  return true;
}

/** As parseTable gives it. */
function parsedValue(value: PlainValue | null): unknown {
  return Number.isSafeInteger(value) ? BigInt(Number(value)) : value;
}

/** A setting such as `a.b = 1`; the path begins at its section. */
interface Statement {
  readonly path: readonly string[];
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

/** A `[header]`, or the part above the first, with the settings below it. */
interface Section {
  /** `[[header]]` is an item of a list: its path ends with an index. */
  readonly path: Path;
  /** The end of the header; above the first header, the start of the text. */
  readonly headerEnd: number;
  readonly settings: Statement[];
}

const KEY_AND_EQUALS = /((?:"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'|[^"'=])*)=[ \t]*/y;

/** The sections of a valid TOML file. */
function readSections(text: string): Section[] {
  let section: Section = { path: [], headerEnd: text.startsWith("\uFEFF") ? 1 : 0, settings: [] };
  const sections = [section];
  const listLengths = new Map<string, number>();
  for (const { start, end } of statementsOf(text)) {
    if (text[start] === "[") {
      section = { path: headerPath(text.slice(start, end), listLengths), headerEnd: end, settings: [] };
      sections.push(section);
      continue;
    }
    const [prefix = "", key = ""] = matchAt(KEY_AND_EQUALS, text, start) ?? [];
    section.settings.push({ path: keyPath(key), start, valueStart: start + prefix.length, end });
  }
  return sections;
}

/** The path of a header. A name that stands for a list means its last item, and `[[header]]` adds one. */
function headerPath(header: string, listLengths: Map<string, number>): Path {
  const isItem = header.startsWith("[[");
  const names = keyPath(isItem ? header.slice(2, -2) : header.slice(1, -1));
  const path: (string | number)[] = [];
  for (const [depth, name] of names.entries()) {
    path.push(name);
    const list = JSON.stringify(path);
    if (isItem && depth === names.length - 1) listLengths.set(list, (listLengths.get(list) ?? 0) + 1);
    const length = listLengths.get(list);
    if (length !== undefined) path.push(length - 1);
  }
  return path;
}

/** Strings and comments are one token each, so brackets and line breaks in them do not count. */
const TOKEN =
  /"""(?:\\[\s\S]|[^\\])*?"""+|'''[\s\S]*?'''+|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'|#[^\n]*|[[\]{}\n]|[^"'#[\]{}\n]+/g;

/** Where each header and each setting is, without comments. A setting may span several lines. */
function statementsOf(text: string): { readonly start: number; readonly end: number }[] {
  const statements: { start: number; end: number }[] = [];
  let current: { start: number; end: number } | null = null;
  let depth = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (token === "\n" && depth === 0) current = null;
    if (token.startsWith("#") || token.trim() === "") continue;
    if (current === null) {
      current = { start: index + token.search(/\S/), end: 0 };
      statements.push(current);
    }
    current.end = index + token.trimEnd().length;
    if (token === "[" || token === "{") depth += 1;
    if (token === "]" || token === "}") depth -= 1;
  }
  return statements;
}

/** a, b.c of `a . "b.c"`. */
function keyPath(key: string): string[] {
  const path: string[] = [];
  let node: unknown = parse(`${key} = 0`);
  while (isTable(node)) {
    const [name = ""] = Object.keys(node);
    path.push(name);
    node = node[name];
  }
  return path;
}

/** A string, number, truth value or date. */
interface Scalar {
  readonly path: Path;
  readonly start: number;
  readonly end: number;
}

/** All scalars of a valid TOML file. */
function readScalars(text: string): Scalar[] {
  const scalars: Scalar[] = [];
  for (const section of readSections(text)) {
    for (const { path, valueStart } of section.settings) {
      collectScalars(text, valueStart, [...section.path, ...path], scalars);
    }
  }
  return scalars;
}

const SCALAR =
  /"""(?:\\[\s\S]|[^\\])*?"""+|'''[\s\S]*?'''+|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'|[^,[\]{}#\r\n]+/y;
/** Between the values of a list. */
const VOID = /(?:\s+|#[^\n]*|,)*/y;

/** Adds the scalars of the value at a position, and returns its end. The parser has limited its depth. */
function collectScalars(text: string, at: number, path: Path, scalars: Scalar[]): number {
  const skipVoid = (from: number) => from + (matchAt(VOID, text, from)?.[0].length ?? 0);
  if (text[at] === "[") {
    let index = 0;
    let next = skipVoid(at + 1);
    for (; next < text.length && text[next] !== "]"; index += 1) {
      next = skipVoid(collectScalars(text, next, [...path, index], scalars));
    }
    return next + 1;
  }
  if (text[at] === "{") {
    let next = skipVoid(at + 1);
    while (next < text.length && text[next] !== "}") {
      const [prefix = "", key = ""] = matchAt(KEY_AND_EQUALS, text, next) ?? [];
      next = skipVoid(collectScalars(text, next + prefix.length, [...path, ...keyPath(key)], scalars));
    }
    return next + 1;
  }
  const end = at + (matchAt(SCALAR, text, at)?.[0].trimEnd().length ?? 0);
  scalars.push({ path, start: at, end });
  return end;
}

/** null: the table has no header, and cannot get one. */
function editText(text: string, table: Path, name: string | number, value: PlainValue | null): string | null {
  const path = [...table, name];
  const scalar = readScalars(text).find((each) => isDeepStrictEqual(each.path, path));
  if (scalar !== undefined && value !== null) {
    const { start, end } = scalar;
    return splice(text, start, end, tomlValue(value, text.slice(start, end)));
  }
  if (typeof name === "number") return null;
  const section = readSections(text).find((each) => isDeepStrictEqual(each.path, table));
  if (section !== undefined) return editSection(text, section, name, value);
  const names = table.filter((part) => typeof part === "string");
  return names.length === table.length && value !== null ? appendTable(text, names, name, value) : null;
}

function editSection(text: string, section: Section, name: string, value: PlainValue | null): string {
  const { settings, headerEnd } = section;
  const existing = settings.find(({ path }) => path.length === 1 && path[0] === name);
  if (value === null) return existing === undefined ? text : removeLines(text, existing.start, existing.end);
  if (existing !== undefined) return splice(text, existing.valueStart, existing.end, tomlValue(value));
  const newline = lineBreakOf(text);
  const line = `${tomlKey(name)} = ${tomlValue(value)}`;
  const last = settings.at(-1);
  if (last === undefined && section.path.length === 0) {
    // An empty line separates it from what follows, such as the comment above the first header.
    const rest = text.slice(headerEnd);
    const gap = rest.trim() === "" || /^\r?\n/.test(rest) ? "" : newline;
    return splice(text, headerEnd, headerEnd, `${line}${newline}${gap}`);
  }
  const at = lineEnd(text, last?.end ?? headerEnd);
  const indent = last === undefined ? "" : indentAt(text, last.start);
  return splice(text, at, at, `${newline}${indent}${line}`);
}

function appendTable(text: string, table: readonly string[], name: string, value: PlainValue): string {
  const newline = lineBreakOf(text);
  const block = `[${table.map(tomlKey).join(".")}]${newline}${tomlKey(name)} = ${tomlValue(value)}`;
  if (text.replace("\uFEFF", "") === "") return `${text}${block}${newline}`;
  // A file without a line break at its end stays one.
  if (!text.endsWith("\n")) return `${text}${newline}${newline}${block}`;
  const gap = /\n\r?\n$/.test(text) ? "" : newline;
  return `${text}${gap}${block}${newline}`;
}

function tomlKey(name: string): string {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : tomlString(name);
}

/** Written like the value before it: in single quotes if that was, and if they can hold it. */
function tomlValue(value: PlainValue, before = ""): string {
  if (typeof value !== "string") return String(value);
  const wasLiteral = before.startsWith("'") && !before.startsWith("'''");
  return wasLiteral && /^[^'\p{Cc}]*$/u.test(value) ? `'${value}'` : tomlString(value);
}

/** JSON's escapes are valid in TOML, too. TOML also requires DEL to be escaped. */
function tomlString(value: string): string {
  return JSON.stringify(value).replaceAll("\x7f", "\\u007f");
}
