import { isDeepStrictEqual } from "node:util";
import {
  applyEdits,
  type Edit,
  lineBreakOf,
  lineEnd,
  lineStart,
  nextLine,
  refuse,
  type Spliced,
} from "./spliced.ts";
import { type Pair, readToml, type Section } from "./toml-read.ts";
import { isTable, type TomlTable, type TomlValue } from "./toml-value.ts";

/** Texts below one `[header]`; an empty path is the part above the first header. null takes a setting out. */
export interface TomlChange {
  readonly table: readonly string[];
  readonly set: Readonly<Record<string, string | null>>;
}

type Sections = readonly [Section, ...Section[]];

/**
 * Sets texts below one header and leaves every other byte alone. A header that is not there comes at the end, as the
 * format wants it; settings above the first header come behind the last of them.
 */
export function changeToml(text: string, change: TomlChange): Spliced {
  const read = readToml(text);
  if (!read.ok) return refuse(read.fault.what, read.fault.line);
  const name = change.table.join(".");
  const section = read.sections.find(({ path, listed }) => !listed && isDeepStrictEqual(path, change.table));
  const wanted = plainTree(read.tree);
  if (!changeTree(wanted, change)) return byHand(name);
  const edits =
    section === undefined ? newTable(text, read.sections, change) : tableEdits(text, section, change.set);
  const edited = applyEdits(text, edits);
  const again = readToml(edited);
  if (!again.ok || !isDeepStrictEqual(plainTree(again.tree), wanted)) return byHand(name);
  return { ok: true, text: edited };
}

/** The text at a path; undefined where there is none. */
export function tomlTextAt(text: string, path: readonly string[]): string | undefined {
  const read = readToml(text);
  let value: TomlValue | undefined = read.ok ? read.tree : undefined;
  for (const name of path) value = isTable(value) ? value.entries.get(name) : undefined;
  return typeof value === "string" ? value : undefined;
}

export function hasToml(text: string, path: readonly string[]): boolean {
  const read = readToml(text);
  let value: TomlValue | undefined = read.ok ? read.tree : undefined;
  for (const name of path) value = isTable(value) ? value.entries.get(name) : undefined;
  return value !== undefined;
}

function tableEdits(text: string, section: Section, set: TomlChange["set"]): Edit[] {
  const edits: Edit[] = [];
  const missing: string[] = [];
  for (const [name, value] of Object.entries(set)) {
    const pair = section.pairs.find(({ path }) => path.length === 1 && path[0] === name);
    if (pair === undefined) {
      if (value !== null) missing.push(`${name} = ${tomlText(value)}`);
    } else if (value === null) {
      edits.push({ from: lineStart(text, pair.start), to: nextLine(text, pair.valueEnd), text: "" });
    } else if (pair.value !== value) {
      edits.push({ from: pair.valueStart, to: pair.valueEnd, text: tomlText(value) });
    }
  }
  return missing.length === 0 ? edits : [...edits, insertion(text, section, missing, edits)];
}

/** Behind the section's last setting that stays, set in as far as that one is. */
function insertion(text: string, section: Section, lines: readonly string[], edits: readonly Edit[]): Edit {
  const newline = lineBreakOf(text);
  const stays = (pair: Pair) => !edits.some(({ from, to }) => from <= pair.start && pair.valueEnd <= to);
  const last = section.pairs.findLast(stays);
  if (last === undefined && section.path.length === 0) {
    // What stands there, comments of the first header perhaps, is kept apart by an empty line.
    const rest = text.slice(section.end);
    const gap = rest.trim() === "" || /^\r?\n/.test(rest) ? "" : newline;
    return { from: section.end, to: section.end, text: lines.map((line) => line + newline).join("") + gap };
  }
  const at = lineEnd(text, last?.valueEnd ?? section.end);
  const indent =
    last === undefined ? "" : text.slice(lineStart(text, last.start), last.start).replace(/[^ \t]/g, "");
  return { from: at, to: at, text: lines.map((line) => newline + indent + line).join("") };
}

function newTable(text: string, sections: Sections, { table, set }: TomlChange): Edit[] {
  const newline = lineBreakOf(text);
  const lines = Object.entries(set).flatMap(([name, value]) =>
    value === null ? [] : [`${name} = ${tomlText(value)}`],
  );
  if (lines.length === 0) return [];
  const block = [`[${table.map(tomlName).join(".")}]`, ...lines].join(newline);
  const empty = text.length === sections[0].end;
  const ended = text.endsWith("\n") || empty;
  const gap = empty || /\n\r?\n$/.test(text) ? "" : newline;
  // A file without a line break at its end stays one.
  const whole = `${ended ? "" : newline}${gap}${block}${ended ? newline : ""}`;
  return [{ from: text.length, to: text.length, text: whole }];
}

function tomlName(name: string): string {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : tomlText(name);
}

/** JSON's escapes are TOML's too, but for DEL, which JSON leaves bare. */
function tomlText(value: string): string {
  return JSON.stringify(value).replaceAll("\x7f", "\\u007f");
}

type Plain = string | { raw: string } | Plain[] | Map<string, Plain>;

function plainTree(table: TomlTable): Map<string, Plain> {
  return new Map([...table.entries].map(([name, value]) => [name, plainOf(value)]));
}

function plainOf(value: TomlValue): Plain {
  if (typeof value === "string") return value;
  if (isTable(value)) return plainTree(value);
  return Array.isArray(value) ? value.map(plainOf) : { raw: (value as { raw: string }).raw };
}

/** false: something that is no table stands in the way. */
function changeTree(tree: Map<string, Plain>, { table, set }: TomlChange): boolean {
  let inner = tree;
  for (const name of table) {
    const next = inner.get(name) ?? new Map<string, Plain>();
    if (!(next instanceof Map)) return false;
    inner.set(name, next);
    inner = next;
  }
  for (const [name, value] of Object.entries(set)) {
    if (value === null) inner.delete(name);
    else inner.set(name, value);
  }
  return true;
}

function byHand(name: string): Spliced {
  const where = name === "" ? "the settings above its first header" : `[${name}]`;
  return refuse(`it is written in a way that ${where} cannot be changed in safely: change it by hand`);
}
