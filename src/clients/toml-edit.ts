import { isDeepStrictEqual } from "node:util";
import { parse, TomlError } from "smol-toml";
import { isObject } from "../core/json.ts";
import { lineEnd, lineStart, nextLine } from "../core/lines.ts";
import { cannotEdit, changeByHand, type Edited, indentAt, lineBreakOf, splice } from "./text-edit.ts";

/**
 * Sets one string or truth value below a `[table]` header, or removes it (null), and keeps every other byte. An empty table path is the
 * part above the first header. A missing header is appended.
 */
export function editToml(
  text: string,
  table: readonly string[],
  name: string,
  value: TomlValue | null,
): Edited {
  const problem = findProblem(text);
  if (problem !== null) return problem;
  const path = [...table, name];
  const current = tomlAt(text, path) ?? null;
  if (current === value) return { ok: true, text };
  const section = readSections(text).find((each) => isDeepStrictEqual(each.path, table));
  const edited =
    section === undefined ? appendTable(text, table, name, value) : editSection(text, section, name, value);
  // A dotted key or an inline table can also define the setting. Then the result is invalid or means something else.
  const expected = parseTable(text);
  const valid = findProblem(edited) === null && assign(expected, path, value);
  if (!valid || !isDeepStrictEqual(parseTable(edited), expected)) {
    return changeByHand(table.length === 0 ? name : `[${table.join(".")}]`);
  }
  return { ok: true, text: edited };
}

/** Removes the header of a table without settings, and an empty line above it. Comments stay. */
export function removeEmptyTable(text: string, table: readonly string[]): Edited {
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
  return isLeft ? changeByHand(`[${table.join(".")}]`) : { ok: true, text: without };
}

/** The value at a path; undefined: there is none, or the text is not TOML. */
export function tomlAt(text: string, path: readonly string[]): unknown {
  if (findProblem(text) !== null) return undefined;
  let value: unknown = parseTable(text);
  for (const name of path) value = isTable(value) ? value[name] : undefined;
  return value;
}

type TomlValue = string | boolean;
type Table = Record<string, unknown>;

function isTable(value: unknown): value is Table {
  return isObject(value) && !(value instanceof Date);
}

function parseTable(text: string): Table {
  return parse(text, { integersAsBigInt: true });
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

/** false: something that is not a table is in the way. */
function assign(tree: Table, path: readonly string[], value: TomlValue | null): boolean {
  let table = tree;
  for (const name of path.slice(0, -1)) {
    table[name] ??= Object.create(null);
    const inner = table[name];
    if (!isTable(inner)) return false;
    table = inner;
  }
  const name = path.at(-1) ?? "";
  if (value === null) delete table[name];
  else table[name] = value;
  return true;
}

/** A setting such as `a.b = 1`; the path begins at its section. */
interface Setting {
  readonly path: readonly string[];
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

/** A `[header]`, or the part above the first, with the settings below it. */
interface Section {
  /** null: `[[header]]`, an item of a list. */
  readonly path: readonly string[] | null;
  /** The end of the header; above the first header, the start of the text. */
  readonly headerEnd: number;
  readonly settings: Setting[];
}

const KEY_AND_EQUALS = /^((?:"(?:\\.|[^"\\])*"|'[^']*'|[^"'=])*)=[ \t]*/;

/** The sections of a valid TOML file. */
function readSections(text: string): Section[] {
  let section: Section = { path: [], headerEnd: text.startsWith("\uFEFF") ? 1 : 0, settings: [] };
  const sections = [section];
  for (const { start, end } of statementsOf(text)) {
    if (text[start] === "[") {
      const path = text[start + 1] === "[" ? null : keyPath(text.slice(start + 1, end - 1));
      section = { path, headerEnd: end, settings: [] };
      sections.push(section);
      continue;
    }
    const [prefix = "", key = ""] = KEY_AND_EQUALS.exec(text.slice(start, end)) ?? [];
    section.settings.push({ path: keyPath(key), start, valueStart: start + prefix.length, end });
  }
  return sections;
}

/** Strings and comments are one token each, so brackets and line breaks in them do not count. */
const TOKEN =
  /"""(?:\\[\s\S]|[^\\])*?"""+|'''[\s\S]*?'''+|"(?:\\.|[^"\\])*"|'[^']*'|#[^\n]*|[[\]{}\n]|[^"'#[\]{}\n]+/g;

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

function editSection(text: string, section: Section, name: string, value: TomlValue | null): string {
  const { settings, headerEnd } = section;
  const existing = settings.find(({ path }) => path.length === 1 && path[0] === name);
  if (value === null) {
    if (existing === undefined) return text;
    return splice(text, lineStart(text, existing.start), nextLine(text, existing.end), "");
  }
  if (existing !== undefined) return splice(text, existing.valueStart, existing.end, tomlValue(value));
  const newline = lineBreakOf(text);
  const line = `${name} = ${tomlValue(value)}`;
  const last = settings.at(-1);
  if (last === undefined && section.path?.length === 0) {
    // An empty line separates it from what follows, such as the comment above the first header.
    const rest = text.slice(headerEnd);
    const gap = rest.trim() === "" || /^\r?\n/.test(rest) ? "" : newline;
    return splice(text, headerEnd, headerEnd, `${line}${newline}${gap}`);
  }
  const at = lineEnd(text, last?.end ?? headerEnd);
  const indent = last === undefined ? "" : indentAt(text, last.start);
  return splice(text, at, at, `${newline}${indent}${line}`);
}

function appendTable(text: string, table: readonly string[], name: string, value: TomlValue | null): string {
  if (value === null) return text;
  const newline = lineBreakOf(text);
  const header = `[${table.map((part) => (/^[A-Za-z0-9_-]+$/.test(part) ? part : tomlString(part))).join(".")}]`;
  const block = `${header}${newline}${name} = ${tomlValue(value)}`;
  if (text.replace("\uFEFF", "") === "") return `${text}${block}${newline}`;
  // A file without a line break at its end stays one.
  if (!text.endsWith("\n")) return `${text}${newline}${newline}${block}`;
  const gap = /\n\r?\n$/.test(text) ? "" : newline;
  return `${text}${gap}${block}${newline}`;
}

function tomlValue(value: TomlValue): string {
  return typeof value === "string" ? tomlString(value) : String(value);
}

/** JSON's escapes are valid in TOML, too. TOML also requires DEL to be escaped. */
function tomlString(value: string): string {
  return JSON.stringify(value).replaceAll("\x7f", "\\u007f");
}
