import { isDeepStrictEqual } from "node:util";
import { isAlias, isMap, isPair, isScalar, isSeq, type ParsedNode, type Scalar } from "yaml";
import {
  AMBIGUOUS,
  appendTo,
  type Collection,
  columnOf,
  contentEnd,
  type Entry,
  endBeforeSpaces,
  formatScalar,
  indentFor,
  isBlockScalar,
  isEmpty,
  isNull,
  lineBreak,
  type Replacement,
  removalFromBlock,
  removalFromFlow,
  startOf,
} from "../config/edit-layout.ts";
import { explainParseError } from "../config/syntax-problem.ts";
import { compose, lexInBounds } from "../config/yaml.ts";
import { lineEnd, lineStart } from "../core/lines.ts";
import {
  leavesGap,
  type Path,
  type PlainValue,
  type Setting,
  type Settings,
  type SettingsFormat,
  showPath,
  valueIn,
  withValue,
} from "./setting.ts";
import { appendLine, cannotEdit, changeByHand, type Edited, lineCounter, splice } from "./text-edit.ts";

/*
 * Clients' settings in YAML. The ranges come from yaml's document, and the layout is that of config.yaml's editor. Unlike
 * config.yaml these files may have anchors, aliases, tags and values of all types; an edit beside one of these is refused,
 * because it could change what another place means.
 */

export const YAML: SettingsFormat = { read: readYaml, at: yamlAt, set: editYaml };

function readYaml(text: string): Settings {
  const parsed = parseYaml(text);
  if (!parsed.ok) return parsed;
  const settings: Setting[] = [];
  const lineAt = lineCounter(text);
  const visit = (node: ParsedNode | null, path: Path, at: number) => {
    if (isMap(node)) {
      for (const { key, value } of node.items) visit(value, [...path, nameOf(key)], key.range[1]);
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) visit(item, [...path, index], item.range[0]);
    } else {
      const value = isScalar(node) ? scalarValue(node) : null;
      settings.push({ path, value, line: lineAt(node?.range[0] ?? at) });
    }
  };
  if (parsed.root !== null) visit(parsed.root, [], 0);
  return { ok: true, settings };
}

function yamlAt(text: string, path: Path): unknown {
  const parsed = parseYaml(text);
  return parsed.ok ? valueIn(treeOf(parsed.root), path) : undefined;
}

function editYaml(text: string, path: Path, value: PlainValue | undefined): Edited {
  const parsed = parseYaml(text);
  if (!parsed.ok) return parsed;
  const tree = treeOf(parsed.root);
  if (valueIn(tree, path) === value) return { ok: true, text };
  const place = findPlace(parsed.root, path);
  if (!place.ok) return place;
  const edited = editPlace(text, parsed.root, place, path, value);
  const after = edited === null ? null : parseYaml(edited);
  const isExpected = after?.ok && isDeepStrictEqual(treeOf(after.root), withValue(tree, path, value));
  return isExpected && edited !== null ? { ok: true, text: edited } : changeByHand(showPath(path));
}

type Parsed = { readonly ok: true; readonly root: ParsedNode | null } | (Edited & { readonly ok: false });

function parseYaml(text: string): Parsed {
  const lexed = lexInBounds(text);
  if (!lexed.ok) return cannotEdit(lexed.problem);
  const { document, error } = compose(lexed.lexemes, text.length);
  if (error !== null) {
    const { at, problem } = explainParseError(error, text, lexed.lexemes);
    return cannotEdit(problem, lineCounter(text)(at));
  }
  const root = document?.contents ?? null;
  // Only comments.
  return { ok: true, root: root !== null && isEmpty(root) ? null : root };
}

function treeOf(node: ParsedNode | null): unknown {
  return node === null ? {} : plainOf(node);
}

function plainOf(node: ParsedNode | null): unknown {
  // What an alias means is written elsewhere.
  if (node === null || isAlias(node)) return null;
  if (isMap(node))
    return Object.fromEntries(node.items.map(({ key, value }) => [nameOf(key), plainOf(value)]));
  return isSeq(node) ? node.items.map(plainOf) : scalarValue(node);
}

/** A name that is an alias, a map or a list cannot be in a path of ours. */
function nameOf(key: ParsedNode): string {
  return isScalar(key) ? String(key.value) : "?";
}

/** As the core schema of YAML 1.2 reads it. */
function scalarValue(node: Scalar): PlainValue | null {
  if (node.tag !== undefined) return null;
  const text = String(node.value ?? "");
  if (node.type !== "PLAIN") return text;
  if (/^(?:|~|null|Null|NULL)$/.test(text)) return null;
  if (/^(?:true|True|TRUE|false|False|FALSE)$/.test(text)) return text.toLowerCase() === "true";
  // A number in another notation, such as 0012 or 1e6, stays a text: it may be a key of digits.
  return String(Number(text)) === text && Number.isFinite(Number(text)) ? Number(text) : text;
}

type Item = Entry | ParsedNode;

/** One step down a path. */
interface Step {
  readonly collection: Collection;
  readonly item: Item;
}

interface Place {
  readonly ok: true;
  /** As far as the path exists. */
  readonly steps: readonly Step[];
  /** Where they lead. */
  readonly node: ParsedNode | null;
}

function findPlace(root: ParsedNode | null, path: Path): Place | (Edited & { readonly ok: false }) {
  const steps: Step[] = [];
  let node = root;
  for (const [depth, name] of path.entries()) {
    if (isShared(node)) return changeByHand(showPath(path));
    if (node === null || isEmpty(node) || isNull(node)) break;
    if (!isCollection(node) || isSeq(node) !== (typeof name === "number")) {
      const kind = typeof name === "number" ? "list" : "map";
      return cannotEdit(
        `${showPath(path.slice(0, depth)) || "it"} is not a ${kind}`,
        null,
        "change it by hand",
      );
    }
    const [item, second] = itemsAt(node, name);
    if (second !== undefined)
      return cannotEdit(`it has ${name} twice`, null, "delete one, then run this again");
    if (item === undefined) break;
    steps.push({ collection: node, item });
    node = valueNode(item);
  }
  const isFound = steps.length === path.length;
  return isFound && containsShared(node) ? changeByHand(showPath(path)) : { ok: true, steps, node };
}

/** What it means is used elsewhere, or comes from elsewhere, or has a type of its own. */
function isShared(node: ParsedNode | null): boolean {
  if (node === null) return false;
  if (isAlias(node) || node.anchor !== undefined || node.tag !== undefined) return true;
  return isMap(node) && node.items.some(({ key }) => !isScalar(key) || key.value === "<<" || isShared(key));
}

function containsShared(node: ParsedNode | null): boolean {
  if (isShared(node)) return true;
  if (isMap(node)) return node.items.some(({ value }) => containsShared(value));
  return isSeq(node) && node.items.some(containsShared);
}

function isCollection(node: ParsedNode | null): node is Collection {
  return isMap(node) || isSeq(node);
}

function itemsAt(collection: Collection, name: string | number): readonly Item[] {
  if (isMap(collection)) return collection.items.filter(({ key }) => nameOf(key) === name);
  return collection.items.slice(Number(name), Number(name) + 1);
}

function valueNode(item: Item): ParsedNode | null {
  return isPair(item) ? item.value : item;
}

/** null: an edit by ranges cannot do it. */
function editPlace(
  text: string,
  root: ParsedNode | null,
  { steps, node }: Place,
  path: Path,
  value: PlainValue | undefined,
): string | null {
  const step = steps.at(-1);
  if (value === undefined) return step === undefined ? null : remove(text, step, steps.at(-2));
  const missing = path.slice(steps.length);
  if (missing.length === 0) return step === undefined ? null : replace(text, step, value);
  if (leavesGap(missing, isSeq(node) ? node.items.length : 0)) return null;
  if (isCollection(node)) return append(text, root, node, missing, value);
  if (step !== undefined) return fill(text, root, step, missing, value);
  // The text has only comments.
  return appendLine(text, formatBlock(text, missing, value, 0, 2));
}

function replace(text: string, { collection, item }: Step, value: PlainValue): string | null {
  const node = valueNode(item);
  if (isPair(item) && node === null) {
    // In { a, b } a name can stand without a colon.
    const [, end] = item.key.range;
    return splice(text, end, end, `: ${formatValue(value)}`);
  }
  if (node === null || isCollection(node)) return null;
  if (isEmpty(node)) {
    // yaml puts an empty value behind the spaces, right in front of a comment.
    const at = endBeforeSpaces(text, node.range[0]);
    return splice(text, at, at, ` ${formatValue(value)}`);
  }
  const [start] = node.range;
  // The comment beside the | of a text would be lost.
  if (isBlockScalar(node) && text.slice(start, lineEnd(text, start)).includes("#")) return null;
  const type = isScalar(node) ? node.type : undefined;
  return splice(text, start, contentEnd(text, node), formatValue(value, type, collection.flow === true));
}

/** Adds what is missing of a path behind the last item, in the style of the collection. */
function append(
  text: string,
  root: ParsedNode | null,
  collection: Collection,
  missing: Path,
  value: PlainValue,
): string {
  const [name, ...rest] = missing;
  if (collection.flow === true) {
    const label = typeof name === "string" ? `${formatText(name)}: ` : "";
    return applied(text, appendTo(text, collection, `${label}${formatFlow(rest, value)}`));
  }
  // The layout adds the dash of an item.
  const names = typeof name === "string" ? missing : rest;
  const column = columnOf(text, collection.range[0]) + (typeof name === "string" ? 0 : 2);
  const lines = formatBlock(text, names, value, column, indentIn(text, root, collection));
  return applied(text, appendTo(text, collection, lines));
}

/** Puts what is missing of a path below a name that has no value. */
function fill(
  text: string,
  root: ParsedNode | null,
  { collection, item }: Step,
  missing: Path,
  value: PlainValue,
): string | null {
  const node = valueNode(item);
  if (!isPair(item) || node === null || !isEmpty(node) || collection.flow === true) return null;
  const indent = indentIn(text, root, collection);
  const column = columnOf(text, startOf(item)) + indent;
  const at = lineEnd(text, node.range[0]);
  const lines = formatBlock(text, missing, value, column, indent);
  return splice(text, at, at, `${lineBreak(text, at)}${" ".repeat(column)}${lines}`);
}

/** @param outer the item whose value the collection is */
function remove(text: string, { collection, item }: Step, outer: Step | undefined): string | null {
  const [first, second] = collection.items;
  const empty = isMap(collection) ? "{}" : "[]";
  if (collection.flow === true) {
    if (second !== undefined) return appliedOrNull(text, removalFromFlow(text, collection, item));
    const [start, end] = collection.range;
    return text.slice(start, end).includes("#") ? null : splice(text, start, end, empty);
  }
  const start = startOf(item);
  const isBehindDash = isMap(collection) && /-[ \t]+$/.test(text.slice(lineStart(text, start), start));
  if (isBehindDash && second === undefined) return splice(text, start, contentEnd(text, item), empty);
  if (isBehindDash && item === first && second !== undefined) {
    // The next entry takes its place behind the dash.
    const next = startOf(second);
    return text.slice(contentEnd(text, item), next).trim() === "" ? splice(text, start, next, "") : null;
  }
  const without = appliedOrNull(text, removalFromBlock(text, collection, item));
  if (without === null || second !== undefined || outer === undefined) return without;
  // A name without a value means nothing, and not an empty collection.
  if (!isPair(outer.item)) return null;
  const colon = text.indexOf(":", outer.item.key.range[1]) + 1;
  return splice(without, colon, colon, ` ${empty}`);
}

function applied(text: string, { start, end, text: insert }: Replacement): string {
  return splice(text, start, end, insert);
}

function appliedOrNull(text: string, replacement: Replacement | null): string | null {
  return replacement === null ? null : applied(text, replacement);
}

function indentIn(text: string, root: ParsedNode | null, collection: Collection): number {
  if (!isMap(collection)) return 2;
  return indentFor(text, collection, isMap(root) ? root : collection);
}

/** The lines of a path and its value. The first is meant for this column. */
function formatBlock(text: string, path: Path, value: PlainValue, column: number, indent: number): string {
  const [name, ...rest] = path;
  if (name === undefined) return formatValue(value);
  if (typeof name === "number") return `- ${formatBlock(text, rest, value, column + 2, indent)}`;
  if (rest.length === 0) return `${formatText(name)}: ${formatValue(value)}`;
  const inner = column + indent;
  const lines = formatBlock(text, rest, value, inner, indent);
  return `${formatText(name)}:${lineBreak(text, 0)}${" ".repeat(inner)}${lines}`;
}

/** The same on one line, for the inside of { } or [ ]. */
function formatFlow(path: Path, value: PlainValue): string {
  const [name, ...rest] = path;
  if (name === undefined) return formatValue(value);
  const inner = formatFlow(rest, value);
  return typeof name === "number" ? `[${inner}]` : `{ ${formatText(name)}: ${inner} }`;
}

/** In the quotes of the value before it, or without quotes if that had none. */
function formatValue(value: PlainValue, before?: Scalar.Type, isInFlow = false): string {
  if (typeof value !== "string") return String(value);
  if (before === "QUOTE_DOUBLE") return quoted(value);
  if (before === "QUOTE_SINGLE" && !SPECIAL.test(value)) return `'${value.replaceAll("'", "''")}'`;
  return before === "PLAIN" && isBare(value, isInFlow) ? value : formatText(value);
}

/** Control characters and line breaks, also those that only YAML 1.1 knows. */
const SPECIAL = /[\p{Cc}\u2028\u2029\uFEFF]/u;

function formatText(text: string): string {
  return formatScalar(text) === text ? text : quoted(text);
}

function quoted(text: string): string {
  return JSON.stringify(text).replace(
    /[\x7f-\x9f\u2028\u2029\uFEFF]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** No indicator in front, no blank at an end, and no ": " and no " #" inside. */
const BARE = /^[A-Za-z0-9$/.](?:[^\s:#]|:(?=\S)|(?<=\S)#| (?=[^\s#:]))*$/;
/** A reader of YAML 1.1 or 1.2 takes these for numbers, times or dates. */
const LIKE_NUMBER = /^[\d.][\d_.,:]*(?:e[-+]?\d*)?$|^0[xob][\da-f_]+$|^\d+-\d+-\d+|^\.(?:inf|nan)$/i;

/** Whether a text can replace another one without quotes. */
function isBare(text: string, isInFlow: boolean): boolean {
  if (!BARE.test(text) || AMBIGUOUS.test(text) || LIKE_NUMBER.test(text) || SPECIAL.test(text)) return false;
  // Older readers take :? inside { } for a name.
  return !isInFlow || !/[,[\]{}]|:\?/.test(text);
}
