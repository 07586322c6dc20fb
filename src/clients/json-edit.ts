import { isDeepStrictEqual } from "node:util";
import {
  createScanner,
  getNodeValue,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from "jsonc-parser";
import { lineStart, nextLine } from "../core/lines.ts";
import {
  leavesGap,
  type Path,
  type Setting,
  type Settings,
  type SettingsFormat,
  showPath,
  valueIn,
  withValue,
} from "./setting.ts";
import {
  cannotEdit,
  changeByHand,
  type Edited,
  indentAt,
  lineBreakOf,
  lineCounter,
  splice,
} from "./text-edit.ts";

/* jsonc-parser's own modify() reformats whole lines and separates comments from their settings, so the edits are ours. */

export type JsonValue = string | number | boolean | null | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: JsonValue;
}

/** strict: RFC 8259. comments: comments and trailing commas are allowed, too. */
export type JsonDialect = "strict" | "comments";

/** Settings are never nested this deep, and the parser is recursive. */
const MAX_DEPTH = 200;

export const STRICT_JSON: SettingsFormat = jsonFormat("strict");
export const JSON_WITH_COMMENTS: SettingsFormat = jsonFormat("comments");

function jsonFormat(dialect: JsonDialect): SettingsFormat {
  return {
    read: (text) => readJson(text, dialect),
    at: (text, path) => jsonAt(text, path, dialect),
    set: (text, path, value) => editJson(text, path, value, dialect),
  };
}

/**
 * Sets the value at a path, or removes it (undefined), and keeps every other byte: comments, order, indentation, line
 * breaks. Missing objects on the way are created. The index behind the last item of a list appends one.
 */
export function editJson(
  text: string,
  path: Path,
  value: JsonValue | undefined,
  dialect: JsonDialect,
): Edited {
  const parsed = parseJson(text, dialect);
  if (!parsed.ok) return parsed;
  const edited = editTree(text, parsed.root, path, value);
  if (!edited.ok || edited.text === text) return edited;
  const after = parseJson(edited.text, dialect);
  const expected = withValue(plainValue(parsed.root), path, value);
  const isExpected = after.ok && isDeepStrictEqual(plainValue(after.root), expected);
  return isExpected ? edited : changeByHand(showPath(path));
}

/** The value at a path; undefined: there is none, or the text is not JSON. */
export function jsonAt(text: string, path: Path, dialect: JsonDialect): unknown {
  const parsed = parseJson(text, dialect);
  return parsed.ok ? valueIn(plainValue(parsed.root), path) : undefined;
}

function readJson(text: string, dialect: JsonDialect): Settings {
  const parsed = parseJson(text, dialect);
  if (!parsed.ok) return parsed;
  const settings: Setting[] = [];
  const lineAt = lineCounter(text);
  const visit = (node: Node, path: Path) => {
    for (const { name, value } of membersOf(node)) visit(value, [...path, name]);
    const { type, offset, value } = node;
    if (type === "object" || type === "array") return;
    settings.push({ path, value: type === "null" ? null : value, line: lineAt(offset) });
  };
  visit(parsed.root, []);
  return { ok: true, settings };
}

type Parsed = { readonly ok: true; readonly root: Node } | (Edited & { readonly ok: false });

function parseJson(text: string, dialect: JsonDialect): Parsed {
  // A space instead of the byte order mark keeps all offsets.
  const body = text.replace(/^\uFEFF/, " ");
  if (isTooDeep(body)) return cannotEdit(`more than ${MAX_DEPTH} brackets are nested`, 1);
  const errors: ParseError[] = [];
  const strict = dialect === "strict";
  const root = parseTree(body, errors, { disallowComments: strict, allowTrailingComma: !strict });
  const [error] = errors;
  if (error !== undefined) {
    // "CommaExpected" becomes "comma expected".
    const problem = printParseErrorCode(error.error)
      .replace(/(?<=[a-z])(?=[A-Z])/g, " ")
      .toLowerCase();
    return cannotEdit(problem, text.slice(0, error.offset).split("\n").length);
  }
  return root === undefined ? cannotEdit("it is empty", 1) : { ok: true, root };
}

/** jsonc-parser's objects have no prototype, so they never equal plain ones. A clone has one. */
function plainValue(node: Node): JsonValue {
  return structuredClone(getNodeValue(node));
}

function isTooDeep(text: string): boolean {
  const scanner = createScanner(text, true);
  let depth = 0;
  // Behind a comment that does not end, the scanner reports a length at the end of the text, too.
  for (scanner.scan(); scanner.getTokenOffset() < text.length; scanner.scan()) {
    const first = text[scanner.getTokenOffset()];
    if (first === "{" || first === "[") depth += 1;
    if (first === "}" || first === "]") depth -= 1;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

/** A member of an object, or an item of a list. */
interface Member {
  readonly name: string | number;
  readonly start: number;
  readonly end: number;
  readonly value: Node;
}

function membersOf(container: Node): Member[] {
  const nodes = container.children ?? [];
  if (container.type === "array") {
    return nodes.map((node, index) => ({
      name: index,
      start: node.offset,
      end: node.offset + node.length,
      value: node,
    }));
  }
  return nodes.flatMap(({ offset, length, children: [key, value] = [] }) =>
    value === undefined ? [] : [{ name: key?.value, start: offset, end: offset + length, value }],
  );
}

function editTree(text: string, root: Node, path: Path, value: JsonValue | undefined): Edited {
  let container = root;
  for (const [depth, name] of path.entries()) {
    const type = typeof name === "number" ? "array" : "object";
    if (container.type !== type) {
      return depth === 0
        ? cannotEdit(`it is not a JSON ${type}`, 1)
        : cannotEdit(`${showPath(path.slice(0, depth))} is not an ${type}`, null, "change it by hand");
    }
    const members = membersOf(container);
    const found = members.filter((member) => member.name === name);
    if (found.length > 1) return cannotEdit(`it has ${name} twice`, null, "delete one, then run this again");
    const [member] = found;
    const rest = path.slice(depth + 1);
    if (member === undefined) {
      if (value === undefined) return { ok: true, text };
      if (leavesGap(path.slice(depth), members.length)) {
        return cannotEdit(`${showPath(path)} would leave a gap in its list`);
      }
      const nested = rest.reduceRight<JsonValue>(
        (inner, key) => (typeof key === "number" ? [inner] : { [key]: inner }),
        value,
      );
      return { ok: true, text: insertMember(text, root, container, name, nested) };
    }
    if (rest.length === 0) {
      if (value === undefined) return { ok: true, text: removeMember(text, members, member) };
      if (isDeepStrictEqual(plainValue(member.value), value)) return { ok: true, text };
      return { ok: true, text: splice(text, member.value.offset, member.end, JSON.stringify(value)) };
    }
    container = member.value;
  }
  return cannotEdit("a setting has no name");
}

/** Adds a member at the end of an object, or an item at the end of a list, written like those before it. */
function insertMember(
  text: string,
  root: Node,
  container: Node,
  name: string | number,
  value: JsonValue,
): string {
  const newline = lineBreakOf(text);
  const unit = indentUnit(text, root);
  const label = (colon: string) => (typeof name === "number" ? "" : `${JSON.stringify(name)}${colon}`);
  const multiLine = (indent: string) => {
    const lines = JSON.stringify(value, null, unit).replaceAll("\n", `${newline}${indent}`);
    return `${newline}${indent}${label(": ")}${lines}`;
  };
  const members = membersOf(container);
  const last = members.at(-1);
  if (last === undefined) {
    const indent = indentAt(text, container.offset);
    const close = container.offset + container.length - 1;
    // Comments inside the empty object stay above the new member.
    const contentEnd = text.slice(0, close).trimEnd().length;
    return splice(text, contentEnd, close, `${multiLine(indent + unit)}${newline}${indent}`);
  }
  const comma = commaAfter(text, last.end);
  const onOneLine = !text.slice(container.offset, members[0]?.start).includes("\n");
  if (onOneLine) {
    const gap = gapBefore(text, members, last);
    const member = `${gap}${label(`:${gap}`)}${JSON.stringify(value)}`;
    return comma === null
      ? splice(text, last.end, last.end, `,${member}`)
      : splice(text, comma, comma, `${member},`);
  }
  const member = multiLine(indentAt(text, last.start));
  const end = commentsEnd(text, comma ?? last.end);
  if (comma !== null) return splice(text, end, end, `${member},`);
  return splice(text, last.end, end, `,${text.slice(last.end, end)}${member}`);
}

/** What is between two members on one line, and behind their colons: a blank, or nothing. */
function gapBefore(text: string, members: readonly Member[], last: Member): string {
  if (typeof last.name === "number") return members.length > 1 && text[last.start - 1] === "," ? "" : " ";
  return /:\S$/.test(text.slice(last.start, last.value.offset + 1)) ? "" : " ";
}

/** Removes a member. A line that holds nothing else goes as a whole, with its comment. */
function removeMember(text: string, members: readonly Member[], member: Member): string {
  const index = members.indexOf(member);
  const previous = members[index - 1];
  const next = members[index + 1];
  const comma = commaAfter(text, member.end);
  const start = lineStart(text, member.start);
  const end = commentsEnd(text, comma ?? member.end);
  const aloneOnLine = text.slice(start, member.start).trim() === "" && /^[ \t]*\r?\n/.test(text.slice(end));
  if (aloneOnLine) {
    const without = splice(text, start, nextLine(text, end), "");
    // The previous member becomes the last one, and loses its comma if the last one had none.
    const extra = previous === undefined || comma !== null ? null : commaAfter(text, previous.end);
    return extra === null ? without : splice(without, extra - 1, extra, "");
  }
  if (next !== undefined) return splice(text, member.start, next.start, "");
  if (previous !== undefined) return splice(text, previous.end, member.end, "");
  return splice(text, member.start, comma ?? member.end, "");
}

/** The position after the comma that follows a value; null: there is none. */
function commaAfter(text: string, valueEnd: number): number | null {
  const scanner = createScanner(text, true);
  scanner.setPosition(valueEnd);
  scanner.scan();
  return text[scanner.getTokenOffset()] === "," ? scanner.getPosition() : null;
}

/** The end of the comments that follow on the same line. */
function commentsEnd(text: string, from: number): number {
  const comments = /(?:[ \t]*(?:\/\/[^\r\n]*|\/\*[\s\S]*?\*\/))*/y;
  comments.lastIndex = from;
  return from + (comments.exec(text)?.[0].length ?? 0);
}

/** One level of indentation, as the file's first setting shows it. */
function indentUnit(text: string, root: Node): string {
  const first = root.children?.[0];
  if (first === undefined || !text.slice(root.offset, first.offset).includes("\n")) return "  ";
  return indentAt(text, first.offset).slice(indentAt(text, root.offset).length) || "  ";
}
