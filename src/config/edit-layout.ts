import { isMap, isPair, isScalar, isSeq, type Pair, type ParsedNode, type YAMLMap, type YAMLSeq } from "yaml";
import { lineEnd, lineStart } from "../core/lines.ts";

/**
 * The layout of config.yaml's text: which characters an edit replaces, and with what, so that comments, indentation, line
 * breaks and the style of the other entries stay. Ranges come from yaml's document.
 */

/** A value as config.yaml means it, whatever its quotes, comments and layout. Numbers and flags are texts. */
export type YamlValue = string | readonly YamlValue[] | YamlMap;
export interface YamlMap {
  readonly [name: string]: YamlValue;
}

export type Collection = YAMLMap.Parsed | YAMLSeq.Parsed;
export type Entry = Pair<ParsedNode, ParsedNode | null>;

/** Replaces text[start, end). */
export interface Replacement {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Maps down to this depth, such as tools.codex, are written as indented lines; deeper ones as { a: b } on one line. */
const BLOCK_DEPTH = 2;

/** A map in the text, and how entries inside its entries are indented. */
interface Place {
  readonly text: string;
  readonly map: YAMLMap.Parsed;
  readonly depth: number;
  readonly indent: number;
}

/** As the map's other entries do it, else as the map itself does. */
export function indentFor(text: string, map: YAMLMap.Parsed, root: YAMLMap.Parsed): number {
  const column = columnOf(text, map.range[0]);
  for (const { value } of map.items) {
    if (isMap(value) && value.flow !== true) return columnOf(text, value.range[0]) - column;
  }
  return Math.max(column - columnOf(text, root.range[0]), 2);
}

function isBlockValue({ map, depth }: Place, value: YamlValue): value is YamlMap {
  return isFilledMap(value) && depth <= BLOCK_DEPTH && map.flow !== true;
}

export function appendEntry(place: Place, name: string, value: YamlValue): Replacement {
  const { text, map, depth, indent } = place;
  const entry = `${formatScalar(name)}: ${formatInline(value)}`;
  if (!isBlockValue(place, value)) return appendTo(text, map, entry);
  const column = columnOf(text, map.range[0]);
  const eol = lineBreak(text, 0);
  const lines = blockLines(value, depth + 1, column + indent, indent);
  const added = appendTo(text, map, [`${formatScalar(name)}:`, ...lines].join(eol));
  return hasBlankLineBeforeLast(text, map) ? { ...added, text: eol + added.text } : added;
}

function blockLines(map: YamlMap, depth: number, column: number, indent: number): string[] {
  const spaces = " ".repeat(column);
  return Object.entries(map).flatMap(([name, value]) => {
    const key = `${spaces}${formatScalar(name)}:`;
    if (!isFilledMap(value) || depth > BLOCK_DEPTH) return [`${key} ${formatInline(value)}`];
    return [key, ...blockLines(value, depth + 1, column + indent, indent)];
  });
}

function hasBlankLineBeforeLast(text: string, map: YAMLMap.Parsed): boolean {
  const [before, last] = map.items.slice(-2);
  if (before === undefined || last === undefined) return false;
  return /\n[ \t]*\r?\n/.test(text.slice(contentEnd(text, before), last.key.range[0]));
}

export function replaceEntry(place: Place, pair: Entry, value: YamlValue): Replacement {
  const { text, map, depth, indent } = place;
  const { key, value: old } = pair;
  const inline = formatInline(value);
  // In { a, b } a name can stand without a colon.
  if (old === null) return { start: key.range[1], end: key.range[1], text: `: ${inline}` };
  const colon = text.indexOf(":", key.range[1]) + 1;
  if (isBlockValue(place, value) && !isNull(old) && !isFlow(old)) {
    const column = columnOf(text, map.range[0]) + indent;
    const lines = blockLines(value, depth + 1, column, indent).map((line) => lineBreak(text, 0) + line);
    const end = isEmpty(old) ? lineEnd(text, colon) : lineEnd(text, contentEnd(text, old));
    const rest = isScalar(old) && !isBlockScalar(old) && !isEmpty(old) ? old.range[1] : colon;
    return { start: colon, end, text: text.slice(rest, lineEnd(text, rest)) + lines.join("") };
  }
  if (isEmpty(old)) {
    // yaml puts an empty value behind the spaces, right in front of a comment.
    const at = endBeforeSpaces(text, old.range[0]);
    return { start: at, end: at, text: ` ${inline}` };
  }
  if (isBlockCollection(old)) {
    // The comment on the key's line stays; the lines of the collection go with theirs.
    const end = lineEnd(text, contentEnd(text, old));
    return { start: colon, end, text: ` ${inline}${text.slice(colon, lineEnd(text, colon))}` };
  }
  return { start: old.range[0], end: contentEnd(text, old), text: inline };
}

/** Adds an item, `name: value` or a value, behind the last one, in the style of the collection. */
export function appendTo(text: string, collection: Collection, item: string): Replacement {
  const last = collection.items.at(-1);
  if (collection.flow === true) return appendToFlow(text, collection, last, item);
  const indent = " ".repeat(columnOf(text, collection.range[0]));
  // Comments that are indented deeper belong to the last item.
  const at = endWithComments(text, lineEnd(text, contentEnd(text, last)), `${indent}[ \\t]+`);
  const line = isSeq(collection) ? `- ${item}` : item;
  return { start: at, end: at, text: `${lineBreak(text, at)}${indent}${line}` };
}

function appendToFlow(
  text: string,
  collection: Collection,
  last: ParsedNode | Entry | undefined,
  item: string,
): Replacement {
  if (last === undefined) {
    const pad = isMap(collection) ? " " : "";
    const start = collection.range[0] + 1;
    const inside = text.slice(start, collection.range[1] - 1);
    // Comments and line breaks inside the brackets stay, behind the item.
    return /^[ \t]*$/.test(inside)
      ? { start, end: start + inside.length, text: `${pad}${item}${pad}` }
      : { start, end: start, text: `${pad}${item}` };
  }
  const at = endBeforeSpaces(text, contentEnd(text, last));
  const start = startOf(last);
  const indent = text.slice(lineStart(text, start), start);
  const rest = text.slice(at, lineEnd(text, at));
  // With one item per line the new one gets its own line, unless more than a comma and a comment follows the last one.
  const trailing = /^[ \t]*(,?)[ \t]*(?:#.*)?$/.exec(rest);
  if (!/^[ \t]+$/.test(indent) || trailing === null) return { start: at, end: at, text: `, ${item}` };
  const comma = trailing[1] ?? "";
  const line = `${lineBreak(text, at)}${indent}${item}${comma}`;
  return { start: at, end: at + rest.length, text: `${comma === "" ? "," : ""}${rest}${line}` };
}

/** The item's lines, and the comments right below that are indented deeper than it. */
export function removalFromBlock(
  text: string,
  collection: Collection,
  item: ParsedNode | Entry,
): Replacement | null {
  const column = columnOf(text, isSeq(collection) ? collection.range[0] : startOf(item));
  const start = lineStart(text, startOf(item));
  const before = text.slice(start, startOf(item)).replace("\uFEFF", "");
  if (!/^[ \t]*(?:[-?][ \t]+)?$/.test(before)) return null;
  const end = endWithComments(text, lineEnd(text, contentEnd(text, item)), ` {${column + 1},}`, true);
  return wholeLines(text, text[start] === "\uFEFF" ? start + 1 : start, end);
}

export function removalFromFlow(
  text: string,
  collection: Collection,
  item: ParsedNode | Entry,
): Replacement | null {
  const start = startOf(item);
  const end = contentEnd(text, item);
  const line = { start: lineStart(text, start), end: lineEnd(text, end) };
  const isAlone =
    /^[ \t]+$/.test(text.slice(line.start, start)) &&
    /^[ \t]*,?[ \t]*(?:#.*)?$/.test(text.slice(end, line.end));
  const comma = /^\s*,[ \t]*/.exec(text.slice(end));
  if (comma !== null) {
    if (isAlone) return wholeLines(text, line.start, line.end);
    return { start, end: end + comma[0].length, text: "" };
  }
  // For the last item the comma in front of it goes, unless a comment is in between: then the comma may stay.
  const items: readonly (ParsedNode | Entry)[] = collection.items;
  const previous = contentEnd(text, items[items.indexOf(item) - 1]);
  if (/^\s*,\s*$/.test(text.slice(previous, start)))
    return { start: previous, end: isAlone ? line.end : end, text: "" };
  return isAlone ? wholeLines(text, line.start, line.end) : null;
}

/** With the line break behind them; at the end of the file with the one before. */
function wholeLines(text: string, start: number, end: number): Replacement {
  const behind = /^\r?\n/.exec(text.slice(end, end + 2));
  if (behind !== null) return { start, end: end + behind[0].length, text: "" };
  const before = /\r?\n$/.exec(text.slice(Math.max(0, start - 2), start));
  return { start: start - (before?.[0].length ?? 0), end, text: "" };
}

/** The end of the comment lines that follow `at` and are indented like this. */
function endWithComments(text: string, at: number, indent: string, overBlankLines = false): number {
  const blank = overBlankLines ? "(?:\\r?\\n[ \\t]*)*" : "";
  const comment = new RegExp(`${blank}\\r?\\n${indent}#[^\\n]*?(?=\\r?\\n|$)`, "y");
  let end = at;
  for (comment.lastIndex = end; comment.test(text); comment.lastIndex = end) end = comment.lastIndex;
  return end;
}

// Positions in the text.

export function startOf(item: ParsedNode | Entry): number {
  return isPair(item) ? item.key.range[0] : item.range[0];
}

/** The end of the last character in a node that is neither a comment nor a line break. */
export function contentEnd(text: string, item: ParsedNode | Entry | undefined): number {
  if (item === undefined) return 0;
  if (isPair(item)) return contentEnd(text, item.value ?? item.key);
  if (isBlockCollection(item)) return contentEnd(text, item.items.at(-1));
  const end = item.range[1];
  // A block scalar ends behind its line break; |+ also owns the blank lines that follow.
  if (isBlockScalar(item)) return end - (/\r?\n$/.exec(text.slice(0, end))?.[0].length ?? 0);
  return isEmpty(item) ? endBeforeSpaces(text, end) : end;
}

export function isEmpty(node: ParsedNode): boolean {
  return isScalar(node) && node.range[0] === node.range[1];
}

/** The failsafe schema reads these as texts; other readers as nothing. */
export function isNull(node: ParsedNode): boolean {
  return isScalar(node) && node.type === "PLAIN" && /^(?:~|null|Null|NULL)$/.test(String(node.value));
}

function isFlow(node: ParsedNode): boolean {
  return (isMap(node) || isSeq(node)) && node.flow === true;
}

export function isBlockCollection(node: ParsedNode): node is Collection {
  return (isMap(node) || isSeq(node)) && node.flow !== true;
}

export function isBlockScalar(node: ParsedNode): boolean {
  return isScalar(node) && (node.type === "BLOCK_LITERAL" || node.type === "BLOCK_FOLDED");
}

export function endBeforeSpaces(text: string, at: number): number {
  let end = at;
  while (text[end - 1] === " " || text[end - 1] === "\t") end -= 1;
  return end;
}

export function columnOf(text: string, at: number): number {
  const start = lineStart(text, at);
  return at - start - (text[start] === "\uFEFF" ? 1 : 0);
}

/** The line break of this line, or on the last line that of the first. */
export function lineBreak(text: string, at: number): string {
  const end = text.indexOf("\n", at);
  const sample = end === -1 ? text.indexOf("\n") : end;
  return text[sample - 1] === "\r" ? "\r\n" : "\n";
}

// How values are written.

/** Needs no quotes, neither in a block nor inside { } and [ ]. */
const PLAIN = /^[A-Za-z$/~][A-Za-z0-9$/._~+-]*(?::[A-Za-z0-9$/._~+-]+)*$|^\d[\d.]*[A-Za-z]*\/[a-z]+$/;
/** Other readers of YAML do not take these for texts. */
export const AMBIGUOUS = /^(?:y|n|yes|no|on|off|true|false|null|~)$/i;
/** Values that are meant as a flag, a number, a duration or a date. */
const UNQUOTED = /^(?:true|false|\d{1,9}(?:\.\d{1,6})?(?:ms|[smhdkM])?|\d{4}-\d{2}-\d{2})$/;

/** A text or a name as one YAML scalar, quoted where another reader could take it for something else. */
export function formatScalar(text: string): string {
  // JSON's strings are YAML's, too.
  return PLAIN.test(text) && !AMBIGUOUS.test(text) ? text : JSON.stringify(text);
}

/** A value on one line, safe inside { } and [ ]. */
export function formatInline(value: YamlValue): string {
  if (typeof value === "string") return UNQUOTED.test(value) ? value : formatScalar(value);
  if (isList(value)) return `[${value.map(formatInline).join(", ")}]`;
  const entries = Object.entries(value).map(
    ([name, inner]) => `${formatScalar(name)}: ${formatInline(inner)}`,
  );
  return entries.length === 0 ? "{}" : `{ ${entries.join(", ")} }`;
}

export function isList(value: YamlValue): value is readonly YamlValue[] {
  return Array.isArray(value);
}

function isFilledMap(value: YamlValue): value is YamlMap {
  return typeof value !== "string" && !isList(value) && Object.keys(value).length > 0;
}

export function findPair(map: YAMLMap.Parsed, name: string | number): Entry | undefined {
  return map.items.find(({ key }) => isScalar(key) && String(key.value) === String(name));
}
