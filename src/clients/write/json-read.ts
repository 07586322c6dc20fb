import { type Fault, faultAt, Unreadable } from "./spliced.ts";

/** A JSON value and where it stands: from its first character to the one after its last. */
export type JsonNode =
  | {
      readonly kind: "object";
      readonly start: number;
      readonly end: number;
      readonly members: readonly Member[];
    }
  | {
      readonly kind: "array";
      readonly start: number;
      readonly end: number;
      readonly items: readonly JsonNode[];
    }
  | { readonly kind: "scalar"; readonly start: number; readonly end: number; readonly value: Scalar };

export interface Member {
  readonly name: string;
  /** Of the name with its quotes. */
  readonly start: number;
  readonly nameEnd: number;
  readonly value: JsonNode;
}

type Scalar = string | number | boolean | null;
export type JsonValue = Scalar | readonly JsonValue[] | { readonly [name: string]: JsonValue };

/** strict: as RFC 8259 has it. comments: also comments and a comma before a closing bracket. */
export type JsonFlavour = "strict" | "comments";

export type JsonRead =
  | { readonly ok: true; readonly root: JsonNode }
  | { readonly ok: false; readonly fault: Fault };

/** Deeper than any settings; a reader that calls itself must end before the stack does. */
const DEEPEST = 200;

export function readJson(text: string, flavour: JsonFlavour): JsonRead {
  const reader = { text, flavour };
  try {
    // Editors on Windows put a mark at the beginning.
    const root = readValue(reader, skip(reader, text.startsWith("\uFEFF") ? 1 : 0), 0);
    const end = skip(reader, root.end);
    if (end < text.length) throw new Unreadable(end, "something stands behind the end of the value");
    return { ok: true, root };
  } catch (error) {
    if (error instanceof Unreadable) return { ok: false, fault: faultAt(text, error) };
    throw error;
  }
}

export function plainValue(node: JsonNode): JsonValue {
  if (node.kind === "scalar") return node.value;
  if (node.kind === "array") return node.items.map(plainValue);
  return Object.fromEntries(node.members.map(({ name, value }) => [name, plainValue(value)]));
}

interface Reader {
  readonly text: string;
  readonly flavour: JsonFlavour;
}

/** The next place that is neither blank nor comment. */
export function skip(reader: Reader, from: number): number {
  const { text, flavour } = reader;
  let at = from;
  for (;;) {
    while (at < text.length && " \t\r\n".includes(text.charAt(at))) at += 1;
    const end = text[at] === "/" ? commentEnd(text, at) : null;
    if (end === null) return at;
    if (flavour === "strict") throw new Unreadable(at, "a comment, which has no place in this file");
    at = end;
  }
}

/** null: no comment begins here. A line comment ends before its line break. */
export function commentEnd(text: string, at: number): number | null {
  if (text.startsWith("//", at)) {
    const end = text.indexOf("\n", at);
    return end === -1 ? text.length : end;
  }
  if (!text.startsWith("/*", at)) return null;
  const end = text.indexOf("*/", at + 2);
  if (end === -1) throw new Unreadable(at, "a comment without its end");
  return end + 2;
}

function readValue(reader: Reader, at: number, depth: number): JsonNode {
  if (depth > DEEPEST) throw new Unreadable(at, `more than ${DEEPEST} brackets inside each other`);
  const first = reader.text[at];
  if (first === "{") return readObject(reader, at, depth);
  if (first === "[") return readArray(reader, at, depth);
  return readScalar(reader.text, at);
}

function readObject(reader: Reader, start: number, depth: number): JsonNode {
  const members: Member[] = [];
  const end = readItems(reader, start, "}", (at) => {
    const name = readScalar(reader.text, at);
    if (name.kind !== "scalar" || typeof name.value !== "string") {
      throw new Unreadable(at, "a name in double quotes is missing here");
    }
    const colon = skip(reader, name.end);
    if (reader.text[colon] !== ":") throw new Unreadable(colon, "a colon is missing here");
    const value = readValue(reader, skip(reader, colon + 1), depth + 1);
    members.push({ name: name.value, start: at, nameEnd: name.end, value });
    return value.end;
  });
  return { kind: "object", start, end, members };
}

function readArray(reader: Reader, start: number, depth: number): JsonNode {
  const items: JsonNode[] = [];
  const end = readItems(reader, start, "]", (at) => {
    const item = readValue(reader, at, depth + 1);
    items.push(item);
    return item.end;
  });
  return { kind: "array", start, end, items };
}

/** Everything between two brackets; answers the place after the closing one. */
function readItems(reader: Reader, start: number, closing: string, readOne: (at: number) => number): number {
  const { text, flavour } = reader;
  let at = skip(reader, start + 1);
  if (text[at] === closing) return at + 1;
  for (;;) {
    at = skip(reader, readOne(at));
    if (text[at] === closing) return at + 1;
    if (text[at] !== ",") throw new Unreadable(at, `a comma or ${closing} is missing here`);
    at = skip(reader, at + 1);
    if (text[at] !== closing) continue;
    if (flavour === "strict") throw new Unreadable(at, `a comma stands before ${closing}`);
    return at + 1;
  }
}

const SCALAR = /"(?:[^"\\\p{Cc}]|\\.|[\x7f-\x9f])*"|-?\d[\d.eE+-]*|true|false|null/uy;

function readScalar(text: string, at: number): JsonNode {
  const pattern = new RegExp(SCALAR);
  pattern.lastIndex = at;
  const [found] = pattern.exec(text) ?? [];
  if (found === undefined) {
    throw new Unreadable(at, at >= text.length ? "the file ends too early" : "a value is missing here");
  }
  try {
    // What a number or an escape may look like, the language knows best.
    return { kind: "scalar", start: at, end: at + found.length, value: JSON.parse(found) };
  } catch {
    throw new Unreadable(at, "a number or a text that is not written as JSON has it");
  }
}
