import type { Node, Pair, ParsedNode, YAMLMap, YAMLSeq } from "yaml";
import { type Document, isMap, isNode, isPair, isScalar, isSeq, parseDocument, visit } from "yaml";
import { lexInBounds } from "../text/bounds.ts";

/** Replaces text[start, end). Everything outside stays as it is, byte for byte. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export type Collection = YAMLMap<unknown, unknown> | YAMLSeq<unknown>;

/** What a node means, free of how it is written: order and duplicates count, quotes and comments do not. */
export type Tree =
  | string
  | { readonly items: readonly Tree[] }
  | { readonly entries: readonly (readonly [Tree, Tree])[] };

export function applyEdit(text: string, edit: Edit): string {
  return text.slice(0, edit.start) + edit.text + text.slice(edit.end);
}

/** The document, or null when an edit by ranges cannot be trusted: it has errors, or anchors that tie places together. */
export function readForEdit(text: string): Document.Parsed | null {
  if (!lexInBounds(text).ok) return null;
  // failsafe: every scalar is its own text, so that no and 1.0 are names like others. uniqueKeys: quadratic in yaml.
  const doc = parseDocument(text, {
    schema: "failsafe",
    version: "1.2",
    uniqueKeys: false,
    keepSourceTokens: true,
    // Below this level yaml does not report a second document.
    logLevel: "error",
  });
  let tied = false;
  visit(doc, {
    Alias: () => {
      tied = true;
      return visit.BREAK;
    },
    Node: (_key, node) => {
      tied ||= "anchor" in node && node.anchor !== undefined;
    },
  });
  return doc.errors.length > 0 || tied ? null : doc;
}

export function treeOf(node: unknown): Tree {
  if (isMap(node)) return { entries: node.items.map((pair) => [treeOf(pair.key), treeOf(pair.value)]) };
  if (isSeq(node)) return { items: node.items.map(treeOf) };
  // In a flow sequence, `[a: b]` is a pair without a map around it.
  if (isPair(node)) return { entries: [[treeOf(node.key), treeOf(node.value)]] };
  return isScalar(node) ? String(node.value ?? "") : "";
}

/** The pairs of a map that have this key: more than one in a file that repeats itself. */
export function pairsOf(map: YAMLMap<unknown, unknown>, key: string): Pair<unknown, unknown>[] {
  return map.items.filter((pair) => isScalar(pair.key) && String(pair.key.value) === key);
}

export function isEmpty(node: unknown): boolean {
  return !isNode(node) || (isScalar(node) && startOf(node) === endOf(node));
}

/** The text of a node as it is written, quotes and brackets included, comments not. */
export function sourceOf(text: string, node: ParsedNode | Node): string {
  return text.slice(startOf(node), endOf(node));
}

/** Puts a value in the place of the one that a pair has, or has not. */
export function setValue(text: string, pair: Pair<unknown, unknown>, value: string): Edit {
  const { key, value: old } = pair;
  if (!isNode(old)) {
    const at = isNode(key) ? endOf(key) : 0;
    return { start: at, end: at, text: `: ${value}` };
  }
  if (isEmpty(old)) {
    // The place that yaml gives an empty value is behind the spaces, right in front of a comment.
    const at = endBeforeSpaces(text, startOf(old));
    return { start: at, end: at, text: ` ${value}` };
  }
  if (isBlockCollection(old)) {
    // The rest of the key's line stays, for its comment; the lines of the collection go, with theirs.
    const at = isNode(key) ? text.indexOf(":", endOf(key)) + 1 : 0;
    return {
      start: at,
      end: lineEnd(text, contentEnd(text, old)),
      text: ` ${value}${text.slice(at, lineEnd(text, at))}`,
    };
  }
  const end = isBlockScalar(old) ? contentEnd(text, old) : endOf(old);
  return { start: startOf(old), end, text: value };
}

/** Adds an item, `key: value` or a value, behind the last one and in the way the collection is written. */
export function append(text: string, collection: Collection, item: string): Edit {
  const last = collection.items.at(-1);
  if (collection.flow === true) return appendToFlow(text, collection, last, item);
  const indent = " ".repeat(columnOf(text, startOf(collection)));
  return insertLine(text, contentEnd(text, last), indent, isSeq(collection) ? `- ${item}` : item);
}

function appendToFlow(text: string, collection: Collection, last: unknown, item: string): Edit {
  if (last === undefined) {
    const pad = isMap(collection) ? " " : "";
    const start = startOf(collection) + 1;
    const inside = text.slice(start, endOf(collection) - 1);
    // Spaces alone are not kept; a comment or line breaks are, and the item goes in front of them.
    return /^[ \t]*$/.test(inside)
      ? { start, end: start + inside.length, text: `${pad}${item}${pad}` }
      : { start, end: start, text: `${pad}${item}` };
  }
  const at = endBeforeSpaces(text, contentEnd(text, last));
  const first = isPair(last) ? last.key : last;
  const start = isNode(first) ? startOf(first) : at;
  const indent = text.slice(lineStart(text, start), start);
  const rest = text.slice(at, lineEnd(text, at));
  // One item a line is kept so, unless something other than a comma and a comment follows on the last one's line.
  const trailing = /^[ \t]*(,?)[ \t]*(?:#.*)?$/.exec(rest);
  if (!/^[ \t]+$/.test(indent) || trailing === null) return { start: at, end: at, text: `, ${item}` };
  const comma = trailing[1] ?? "";
  const line = `${lineBreak(text, at)}${indent}${item}${comma}`;
  return { start: at, end: at + rest.length, text: `${comma === "" ? "," : ""}${rest}${line}` };
}

/** A new line behind the one on which `after` lies, and behind comments below it that are indented deeper. */
export function insertLine(text: string, after: number, indent: string, line: string): Edit {
  let at = lineEnd(text, after);
  const deeper = new RegExp(`\\r?\\n${indent}[ \\t]+#[^\\n]*?(?=\\r?\\n|$)`, "y");
  for (deeper.lastIndex = at; deeper.test(text); deeper.lastIndex = at) at = deeper.lastIndex;
  return { start: at, end: at, text: `${lineBreak(text, at)}${indent}${line}` };
}

export function columnOf(text: string, at: number): number {
  const start = lineStart(text, at);
  return at - start - (text[start] === "\uFEFF" ? 1 : 0);
}

/** Where the last thing inside a node ends that is not a comment or a line break. */
export function contentEnd(text: string, node: unknown): number {
  if (isPair(node)) return contentEnd(text, isNode(node.value) ? node.value : node.key);
  if (!isNode(node)) return 0;
  if (isBlockCollection(node)) return contentEnd(text, node.items.at(-1));
  const end = endOf(node);
  // A block scalar ends behind its line break; |+ owns the blank lines that follow as well.
  if (isBlockScalar(node)) return end - (/\r?\n$/.exec(text.slice(0, end))?.[0].length ?? 0);
  return isEmpty(node) ? endBeforeSpaces(text, end) : end;
}

function isBlockCollection(node: unknown): node is Collection {
  return (isMap(node) || isSeq(node)) && node.flow !== true;
}

function isBlockScalar(node: unknown): boolean {
  return isScalar(node) && (node.type === "BLOCK_LITERAL" || node.type === "BLOCK_FOLDED");
}

export function startOf(node: Node): number {
  return node.range?.[0] ?? 0;
}

function endOf(node: Node): number {
  return node.range?.[1] ?? 0;
}

function endBeforeSpaces(text: string, at: number): number {
  let end = at;
  while (text[end - 1] === " " || text[end - 1] === "\t") end -= 1;
  return end;
}

export function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

/** In front of the line break, whichever it is. */
export function lineEnd(text: string, at: number): number {
  const end = text.indexOf("\n", at);
  if (end === -1) return text.length;
  return text[end - 1] === "\r" && end > at ? end - 1 : end;
}

/** The line break of this line, or of the file's first line where this one is the last. */
export function lineBreak(text: string, at: number): string {
  const end = text.indexOf("\n", at);
  const sample = end === -1 ? text.indexOf("\n") : end;
  return text[sample - 1] === "\r" ? "\r\n" : "\n";
}
