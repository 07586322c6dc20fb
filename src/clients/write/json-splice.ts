import { isDeepStrictEqual } from "node:util";
import {
  commentEnd,
  type JsonFlavour,
  type JsonNode,
  type JsonValue,
  type Member,
  plainValue,
  readJson,
} from "./json-read.ts";
import { applyEdits, type Edit, lineBreakOf, lineStart, nextLine, refuse, type Spliced } from "./spliced.ts";

type ObjectNode = Extract<JsonNode, { kind: "object" }>;
export type Path = readonly [string, ...string[]];

/**
 * Sets one value in the text of a JSON file and leaves every other byte alone: comments, order, indentation, line
 * breaks. What is missing on the way is made. A value that is there already is not written anew.
 */
export function setJson(text: string, path: Path, value: JsonValue, flavour: JsonFlavour): Spliced {
  return editJson(
    text,
    path,
    flavour,
    (root) => {
      const found = descend(root, path);
      if ("fault" in found) return found.fault;
      const { object, name, rest, member } = found;
      if (member === undefined) {
        return insertion(
          text,
          root,
          object,
          name,
          rest.reduceRight<JsonValue>((inner, key) => ({ [key]: inner }), value),
        );
      }
      if (isDeepStrictEqual(plainValue(member.value), value)) return [];
      return [{ from: member.value.start, to: member.value.end, text: JSON.stringify(value) }];
    },
    (tree) => withValue(tree, path, value),
  );
}

/** Takes one member out. The text stays as it is where there is none. */
export function removeJson(text: string, path: Path, flavour: JsonFlavour): Spliced {
  return editJson(
    text,
    path,
    flavour,
    (root) => {
      const found = descend(root, path);
      if ("fault" in found) return found.fault;
      const { object, rest, member } = found;
      return member === undefined || rest.length > 0 ? [] : removal(text, object, member);
    },
    (tree) => withoutValue(tree, path),
  );
}

/** The value at a path; undefined where there is none, or the text is no JSON. */
export function jsonAt(text: string, path: readonly string[], flavour: JsonFlavour): JsonValue | undefined {
  const read = readJson(text, flavour);
  let node: JsonNode | undefined = read.ok ? read.root : undefined;
  for (const name of path) {
    node =
      node?.kind === "object" ? node.members.findLast((member) => member.name === name)?.value : undefined;
  }
  return node === undefined ? undefined : plainValue(node);
}

/** Reads the outcome again: it must be the old file with that one thing changed, or it is not given out. */
function editJson(
  text: string,
  path: Path,
  flavour: JsonFlavour,
  editsIn: (root: ObjectNode) => Edit[] | string,
  wanted: (tree: JsonValue) => JsonValue,
): Spliced {
  const read = readJson(text, flavour);
  if (!read.ok) return refuse(read.fault.what, read.fault.line);
  if (read.root.kind !== "object") return refuse("it is no { } with settings in it", 1);
  const edits = editsIn(read.root);
  if (typeof edits === "string") return refuse(edits);
  const edited = applyEdits(text, edits);
  const again = readJson(edited, flavour);
  if (!again.ok || !isDeepStrictEqual(plainValue(again.root), wanted(plainValue(read.root)))) {
    return refuse(
      `it is written in a way that ${path.join(".")} cannot be changed in safely: change it by hand`,
    );
  }
  return { ok: true, text: edited };
}

interface Found {
  /** The innermost object there is on the way. */
  readonly object: ObjectNode;
  readonly name: string;
  /** Names below it that are still to be made. */
  readonly rest: readonly string[];
  readonly member: Member | undefined;
}

function descend(root: ObjectNode, path: Path): Found | { readonly fault: string } {
  let object = root;
  let [name, ...rest] = path;
  for (;;) {
    const members = object.members.filter((member) => member.name === name);
    if (members.length > 1) return { fault: `it has ${name} twice: delete one, then run this again` };
    const [member] = members;
    const [next, ...more] = rest;
    if (member === undefined || next === undefined) return { object, name, rest, member };
    if (member.value.kind !== "object") return { fault: `${name} in it is no { }: change it by hand` };
    object = member.value;
    name = next;
    rest = more;
  }
}

function insertion(
  text: string,
  root: ObjectNode,
  object: ObjectNode,
  name: string,
  value: JsonValue,
): Edit[] {
  const last = object.members.at(-1);
  const newline = lineBreakOf(text);
  const unit = unitOf(text, root);
  if (last === undefined) {
    const indent = indentAt(text, object.start);
    // Comments may stand between the brackets; they stay above.
    const from = endOfContent(text, object);
    const lines = memberLines(name, value, indent + unit, unit, newline);
    return [{ from, to: object.end - 1, text: `${newline}${lines}${newline}${indent}` }];
  }
  const comma = commaAfter(text, object, last);
  const after = behindComments(text, comma ?? last.value.end);
  if (!text.slice(object.start, object.members[0]?.start).includes("\n")) {
    const colon = text.slice(last.nameEnd, last.value.start) === ":" ? ":" : ": ";
    const one = `${JSON.stringify(name)}${colon}${JSON.stringify(value)}`;
    const gap = colon === ":" ? "" : " ";
    return comma === null
      ? [{ from: last.value.end, to: last.value.end, text: `,${gap}${one}` }]
      : [{ from: comma, to: comma, text: `${gap}${one},` }];
  }
  const lines = `${newline}${memberLines(name, value, indentAt(text, last.start), unit, newline)}`;
  return comma === null
    ? [
        { from: last.value.end, to: last.value.end, text: "," },
        { from: after, to: after, text: lines },
      ]
    : [{ from: after, to: after, text: `${lines},` }];
}

function memberLines(name: string, value: JsonValue, indent: string, unit: string, newline: string): string {
  const lines = JSON.stringify(value, null, unit).split("\n");
  return `${indent}${JSON.stringify(name)}: ${lines.join(`${newline}${indent}`)}`;
}

/** Lines that hold nothing but the member go as a whole, with the comment beside it. */
function removal(text: string, object: ObjectNode, member: Member): Edit[] {
  const index = object.members.indexOf(member);
  const before = object.members[index - 1];
  const next = object.members[index + 1];
  const comma = commaAfter(text, object, member);
  const end = comma ?? member.value.end;
  const from = lineStart(text, member.start);
  const rest = behindComments(text, end);
  const alone =
    /^[ \t]*$/.test(text.slice(from, member.start)) &&
    /^[ \t]*\r?\n/.test(text.slice(rest, nextLine(text, rest)));
  const old = comma === null && before !== undefined ? commaAfter(text, object, before) : null;
  // The last member has no comma, so the one that becomes the last must lose its own.
  const dangling = old === null ? [] : [{ from: old - 1, to: old, text: "" }];
  if (alone) return [...dangling, { from, to: nextLine(text, rest), text: "" }];
  if (next !== undefined) return [{ from: member.start, to: next.start, text: "" }];
  if (before === undefined) return [{ from: member.start, to: end, text: "" }];
  return [{ from: before.value.end, to: member.value.end, text: "" }];
}

/** The place after the comma that follows a member; null where none does. */
function commaAfter(text: string, object: ObjectNode, member: Member): number | null {
  let at = member.value.end;
  while (at < object.end) {
    const end = commentEnd(text, at);
    if (end !== null) at = end;
    else if (text[at] === ",") return at + 1;
    else if (" \t\r\n".includes(text.charAt(at))) at += 1;
    else return null;
  }
  return null;
}

/** Behind the comments that stand on the same line. */
function behindComments(text: string, from: number): number {
  let at = from;
  for (;;) {
    let next = at;
    while (text[next] === " " || text[next] === "\t") next += 1;
    const end = commentEnd(text, next);
    if (end === null) return at;
    at = text[end - 1] === "\r" ? end - 1 : end;
  }
}

/** In an object without members: behind its last comment, or right behind the bracket. */
function endOfContent(text: string, object: ObjectNode): number {
  return object.start + text.slice(object.start, object.end - 1).trimEnd().length;
}

function indentAt(text: string, at: number): string {
  return /^[ \t]*/.exec(text.slice(lineStart(text, at)).replace(/^\uFEFF/, ""))?.[0] ?? "";
}

/** How far one step in is, as the file's own first setting shows it. */
function unitOf(text: string, root: ObjectNode): string {
  const [first] = root.members;
  const own = first === undefined ? "" : indentAt(text, first.start).slice(indentAt(text, root.start).length);
  return own === "" || !text.slice(root.start, first?.start).includes("\n") ? "  " : own;
}

function withValue(tree: JsonValue, path: readonly string[], value: JsonValue): JsonValue {
  const [name, ...rest] = path;
  if (name === undefined) return value;
  const object = asObject(tree);
  return { ...object, [name]: withValue(object[name] ?? {}, rest, value) };
}

function withoutValue(tree: JsonValue, path: readonly string[]): JsonValue {
  const [name = "", ...rest] = path;
  const object = asObject(tree);
  const inner = Object.hasOwn(object, name) ? object[name] : undefined;
  if (inner === undefined) return tree;
  if (rest.length > 0) return { ...object, [name]: withoutValue(inner, rest) };
  return Object.fromEntries(Object.entries(object).filter(([key]) => key !== name));
}

function asObject(tree: JsonValue): { readonly [name: string]: JsonValue } {
  return typeof tree === "object" && tree !== null && !Array.isArray(tree)
    ? (tree as { readonly [name: string]: JsonValue })
    : {};
}
