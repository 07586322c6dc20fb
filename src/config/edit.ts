import { isDeepStrictEqual } from "node:util";
import { isAlias, isMap, isPair, isScalar, isSeq, type ParsedNode, parseDocument, type YAMLMap } from "yaml";
import { advice } from "../core/advice.ts";
import { type Failed, failed, type Problem } from "../core/display.ts";
import { lineStart } from "../core/lines.ts";
import { redactCredentials } from "../core/redact.ts";
import {
  appendEntry,
  appendTo,
  columnOf,
  contentEnd,
  findPair,
  formatInline,
  formatScalar,
  indentFor,
  isEmpty,
  isList,
  isNull,
  type Replacement,
  removalFromBlock,
  removalFromFlow,
  replaceEntry,
  startOf,
  type YamlMap,
  type YamlValue,
} from "./edit-layout.ts";
import { joinPath, lexInBounds } from "./yaml.ts";

/**
 * Edits of config.yaml's text: set, remove, rename or append a value at a path. yaml's document says where each value is;
 * the edit replaces that range of the text, so every byte outside it stays. The result is parsed again and must be the old
 * value with this one change, otherwise the edit is refused.
 */

/** Names of map entries and indexes of list items, from the top. */
export type Path = readonly [string | number, ...(string | number)[]];

export type EditResult = { readonly ok: true; readonly text: string } | Failed;

/** Sets a value, and creates the maps that lead to it. */
export function setValue(text: string, path: Path, value: YamlValue): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  return finish(source, path, value, replacementFor(source, path, value), changed(source.value, path, value));
}

/** Removes a map entry or a list item. A map or list that held nothing else becomes {} or []. */
export function removeValue(text: string, path: Path): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { parent, item } = itemAt(source, path);
  if (parent === null || item === null) return failed(`there is no ${showPath(path)} in config.yaml`);
  const [first, ...rest] = path.slice(0, -1);
  if (parent.items.length === 1 && first !== undefined)
    return setValue(text, [first, ...rest], isMap(parent) ? {} : []);
  const removal = parent.flow === true ? removalFromFlow : removalFromBlock;
  return finish(source, path, null, removal(text, parent, item), changed(source.value, path, null));
}

/** Gives a map entry another name. */
export function renameKey(text: string, path: Path, name: string): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { parent, item } = itemAt(source, path);
  if (!isMap(parent) || !isPair(item)) return failed(`there is no ${showPath(path)} in config.yaml`);
  if (findPair(parent, name) !== undefined) return failed(`config.yaml already has an entry ${name}`);
  const value = plainValue(item.value, []);
  const expected = changed(changed(source.value, path, null), [...path.slice(0, -1), name], value);
  const [start, end] = item.key.range;
  return finish(source, path, name, { start, end, text: formatScalar(name) }, expected);
}

/** Appends to a list. A single value becomes a list of two, and a missing one becomes a single value. */
export function appendItem(text: string, path: Path, value: YamlValue): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const old = nodeAt(source, path);
  if (old === null || isEmpty(old)) return setValue(text, path, value);
  const inline = formatInline(value);
  const [start, end] = old.range;
  const expected = (items: readonly YamlValue[]) => changed(source.value, path, [...items, value]);
  if (isSeq(old)) {
    const items = old.items.map((item) => plainValue(item, []));
    return finish(source, path, [value], appendTo(text, old, inline), expected(items));
  }
  if (!isScalar(old)) return byHand(path, [value]);
  const list = { start, end, text: `[${text.slice(start, end)}, ${inline}]` };
  return finish(source, path, [value], list, expected([plainValue(old, [])]));
}

/** Whether a comment is right above an entry. One that is indented deeper belongs to the entry before. */
export function hasCommentAbove(text: string, path: Path): boolean {
  const source = readForEdit(text);
  const item = source.ok ? itemAt(source, path).item : null;
  if (item === null) return false;
  const start = lineStart(text, startOf(item));
  const above = start === 0 ? "" : text.slice(lineStart(text, start - 1), start);
  const comment = /^([ \t]*)#/.exec(above);
  return comment !== null && (comment[1] ?? "").length <= columnOf(text, startOf(item));
}

interface Source {
  readonly ok: true;
  readonly text: string;
  readonly root: YAMLMap.Parsed;
  /** All of config.yaml. */
  readonly value: YamlMap;
}

type Names = readonly (string | number)[];

/** Parses config.yaml's text, and refuses it where an edit by ranges could not be trusted. */
export function readForEdit(text: string): Source | Failed {
  if (!lexInBounds(text).ok)
    return failed("config.yaml cannot be edited because it has problems", advice.check());
  const document = parseDocument(text, {
    // Every scalar is its own text, so that `no` and `1.0` are names like others.
    schema: "failsafe",
    version: "1.2",
    // yaml's own check takes quadratic time; plainValue checks instead.
    uniqueKeys: false,
    // Below this level yaml does not report a second document.
    logLevel: "error",
  });
  const root = document.contents;
  if (document.errors.length > 0 || !isMap(root))
    return failed("config.yaml cannot be edited because it has problems", advice.check());
  const problems: Problem[] = [];
  const value = plainMap(root, problems, "");
  const [problem] = problems;
  return problem === undefined ? { ok: true, text, root, value } : { ok: false, ...problem };
}

function plainValue(node: ParsedNode | null, problems: Problem[], path = ""): YamlValue {
  if (node === null) return "";
  if (isAlias(node) || node.anchor !== undefined || node.tag !== undefined) {
    const what = node.tag === undefined ? "an anchor or an alias" : "a tag";
    problems.push({
      problem: `config.yaml has ${what} at ${path}, which keybearer does not support`,
      next: advice.check(),
    });
    return "";
  }
  if (isMap(node)) return plainMap(node, problems, path);
  if (isSeq(node)) return node.items.map((item, at) => plainValue(item, problems, `${path}[${at}]`));
  return String(node.value ?? "");
}

function plainMap(map: YAMLMap.Parsed, problems: Problem[], path: string): YamlMap {
  const entries = new Map<string, YamlValue>();
  for (const pair of map.items) {
    const name = String(plainValue(pair.key, problems, path));
    const inner = joinPath(path, name);
    if (entries.has(name))
      problems.push({
        problem: `config.yaml has ${inner} twice`,
        next: "delete one of them, then run this again",
      });
    entries.set(name, plainValue(pair.value, problems, inner));
  }
  return Object.fromEntries(entries);
}

/** The value with another one at a path; null removes it. */
function changed(value: YamlValue, path: Names, to: YamlValue | null): YamlValue {
  const [name, ...rest] = path;
  if (name === undefined) return to ?? "";
  const isRemoved = to === null && rest.length === 0;
  if (isList(value)) {
    if (isRemoved) return value.toSpliced(Number(name), 1);
    return value.map((item, index) => (index === name ? changed(item, rest, to) : item));
  }
  const map = typeof value === "string" ? {} : value;
  if (isRemoved) return Object.fromEntries(Object.entries(map).filter(([key]) => key !== name));
  return { ...map, [name]: changed(map[name] ?? "", rest, to) };
}

/** The edited text, if it means what was expected. `shown` is what a person would have to write by hand. */
function finish(
  source: Source,
  path: Path,
  shown: YamlValue | null,
  replacement: Replacement | null,
  expected: YamlValue,
): EditResult {
  if (replacement === null) return byHand(path, shown);
  const { start, end, text } = replacement;
  const edited = source.text.slice(0, start) + text + source.text.slice(end);
  const again = readForEdit(edited);
  return again.ok && isDeepStrictEqual(again.value, expected)
    ? { ok: true, text: edited }
    : byHand(path, shown);
}

/** The value is shown without what may be a secret in it: the person has it, the terminal's log need not. */
function byHand(path: Path, value: YamlValue | null): Failed {
  const what =
    value === null
      ? `delete ${showPath(path)} by hand`
      : `change it by hand: ${showPath(path)}: ${redactCredentials(formatInline(value))}`;
  return failed("keybearer cannot edit this config.yaml safely", what);
}

function showPath(path: Path): string {
  return path.reduce<string>(
    (shown, name) => (typeof name === "number" ? `${shown}[${name}]` : joinPath(shown, name)),
    "",
  );
}

function nodeAt({ root }: Source, path: Names): ParsedNode | null {
  let node: ParsedNode | null = root;
  for (const name of path) {
    if (isMap(node)) node = findPair(node, name)?.value ?? null;
    else node = isSeq(node) ? (node.items[Number(name)] ?? null) : null;
  }
  return node;
}

function itemAt(source: Source, path: Path) {
  const parent = nodeAt(source, path.slice(0, -1));
  const name = path.at(-1) ?? "";
  if (isMap(parent)) return { parent, item: findPair(parent, name) ?? null };
  if (isSeq(parent)) return { parent, item: parent.items[Number(name)] ?? null };
  return { parent: null, item: null };
}

function replacementFor(source: Source, path: Path, value: YamlValue): Replacement | null {
  const { text, root } = source;
  const [first, ...rest] = path.slice(0, -1);
  const name = path.at(-1) ?? "";
  const parent = nodeAt(source, path.slice(0, -1));
  if (isMap(parent)) {
    const place = { text, map: parent, depth: path.length, indent: indentFor(text, parent, root) };
    const pair = findPair(parent, name);
    return pair === undefined ? appendEntry(place, String(name), value) : replaceEntry(place, pair, value);
  }
  if (isSeq(parent)) {
    const item = parent.items[Number(name)];
    if (item === undefined || isEmpty(item)) return null;
    return { start: item.range[0], end: contentEnd(text, item), text: formatInline(value) };
  }
  const isMissing = parent === null || isEmpty(parent) || isNull(parent);
  if (!isMissing || first === undefined || typeof name === "number") return null;
  return replacementFor(source, [first, ...rest], { [name]: value });
}
