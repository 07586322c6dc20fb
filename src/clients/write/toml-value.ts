import { Unreadable } from "./spliced.ts";

/** A TOML value. Numbers, dates and truths stay as they are written: they are compared, never counted with. */
export type TomlValue = string | { readonly raw: string } | readonly TomlValue[] | TomlTable;

export interface TomlTable {
  readonly entries: Map<string, TomlValue>;
  /** How it came about decides who may add to it: nobody to an inline one, a header only once. */
  by: "inline" | "implied" | "header" | "dotted";
}

export interface ReadAt<Value> {
  readonly value: Value;
  /** The place after it. */
  readonly end: number;
}

const DEEPEST = 100;

export function isTable(value: TomlValue | undefined): value is TomlTable {
  return typeof value === "object" && "entries" in value && value.entries instanceof Map;
}

export function readTomlValue(text: string, at: number, depth = 0): ReadAt<TomlValue> {
  if (depth > DEEPEST) throw new Unreadable(at, `more than ${DEEPEST} brackets inside each other`);
  const first = text[at];
  if (first === '"' || first === "'") return readString(text, at, true);
  if (first === "[") return readArray(text, at, depth);
  if (first === "{") return readInline(text, at, depth);
  const found = matchAt(BARE, text, at);
  if (found === null) throw new Unreadable(at, "a value is missing here");
  const raw = found.trimEnd();
  if (!isPlain(raw))
    throw new Unreadable(at, "a value that is not written as TOML has it (a text needs quotes)");
  return { value: { raw }, end: at + raw.length };
}

/** A name, or names with dots between them. */
export function readTomlKey(text: string, from: number): ReadAt<[string, ...string[]]> {
  const one = (at: number): ReadAt<string> => {
    if (text[at] === '"' || text[at] === "'") return readString(text, at, false);
    const name = matchAt(/[A-Za-z0-9_-]+/y, text, at);
    if (name === null) throw new Unreadable(at, "the name of a setting is missing here");
    return { value: name, end: at + name.length };
  };
  const first = one(from);
  const value: [string, ...string[]] = [first.value];
  let { end } = first;
  for (;;) {
    const dot = skipBlanks(text, end);
    if (text[dot] !== ".") return { value, end };
    const next = one(skipBlanks(text, dot + 1));
    value.push(next.value);
    end = next.end;
  }
}

export function skipBlanks(text: string, from: number): number {
  let at = from;
  while (text[at] === " " || text[at] === "\t") at += 1;
  return at;
}

/** Blanks, comments and line breaks. */
export function skipLines(text: string, from: number): number {
  let at = from;
  for (;;) {
    at = skipBlanks(text, at);
    if (text[at] === "#") at = commentEnd(text, at);
    if (text.startsWith("\r\n", at)) at += 2;
    else if (text[at] === "\n") at += 1;
    else return at;
  }
}

export function commentEnd(text: string, at: number): number {
  const comment = matchAt(/#[^\r\n]*/y, text, at) ?? "";
  if (CONTROL.test(comment)) throw new Unreadable(at, "a comment with a control character in it");
  return at + comment.length;
}

/** Puts a value where a dotted name says, making the tables on the way. Throws where something is there already. */
export function putAt(table: TomlTable, path: readonly string[], value: TomlValue, at: number): void {
  const [name = "", ...rest] = path;
  const there = table.entries.get(name);
  if (rest.length === 0) {
    if (there !== undefined) throw new Unreadable(at, `${name} is set twice`);
    table.entries.set(name, value);
    return;
  }
  if (there !== undefined && !(isTable(there) && there.by === "dotted")) {
    throw new Unreadable(at, `${name} is set twice`);
  }
  const inner: TomlTable = there ?? { entries: new Map(), by: "dotted" };
  table.entries.set(name, inner);
  putAt(inner, rest, value, at);
}

const CONTROL = /[^\P{Cc}\t\n\u0080-\u009f]/u;
const BARE = /[A-Za-z0-9_+:.-]+(?: [0-9][0-9:.Zz+-]*)?/y;
const DIGITS = "\\d(?:_?\\d)*";
const INTEGER = "[+-]?(?:0|[1-9](?:_?\\d)*)";
const PLAIN = new RegExp(
  `^(?:true|false|[+-]?(?:inf|nan)|0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*|${INTEGER}(?:\\.${DIGITS})?(?:[eE][+-]?${DIGITS})?)$`,
);
const TIME =
  /^(?:(\d{4})-(\d\d)-(\d\d))?(?:(^|[Tt ])(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(Z|z|[+-]\d\d:\d\d)?)?$/;

function isPlain(raw: string): boolean {
  if (PLAIN.test(raw)) return true;
  const [, year, month, day, , hour, minute, second, offset] = TIME.exec(raw) ?? [];
  if (year === undefined && hour === undefined) return false;
  if (year === undefined && offset !== undefined) return false;
  const below = (text: string | undefined, most: number) => text === undefined || Number(text) <= most;
  const dated = year === undefined || isDay(Number(year), Number(month), Number(day));
  const [away, past] = /\d/.test(offset ?? "") ? (offset ?? "").slice(1).split(":") : [];
  return (
    dated && below(hour, 23) && below(minute, 59) && below(second, 60) && below(away, 23) && below(past, 59)
  );
}

function isDay(year: number, month: number, day: number): boolean {
  if (month < 1 || month > 12 || day < 1) return false;
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  return day <= (month === 2 ? (leap ? 29 : 28) : [4, 6, 9, 11].includes(month) ? 30 : 31);
}

function readString(text: string, at: number, severalLines: boolean): ReadAt<string> {
  const quote = text.charAt(at);
  const long = quote.repeat(3);
  if (severalLines && text.startsWith(long, at)) return readLong(text, at, quote);
  const pattern = quote === '"' ? /"(?:[^"\\\r\n]|\\.)*"/y : /'[^'\r\n]*'/y;
  const found = matchAt(pattern, text, at);
  if (found === null) throw new Unreadable(at, "a text without its closing quote");
  const inner = found.slice(1, -1);
  if (CONTROL.test(inner)) throw new Unreadable(at, "a text with a control character in it");
  return { value: quote === '"' ? unescaped(inner, at) : inner, end: at + found.length };
}

function readLong(text: string, at: number, quote: string): ReadAt<string> {
  // Up to two quotes may stand directly before the three that end it.
  const pattern =
    quote === '"' ? /"""((?:[^"\\]|\\[\s\S]|"(?!""))*"{0,2})"""/y : /'''((?:[^']|'(?!''))*'{0,2})'''/y;
  pattern.lastIndex = at;
  const [found, inner] = pattern.exec(text) ?? [];
  if (found === undefined || inner === undefined)
    throw new Unreadable(at, "a text without its closing quotes");
  const plain = inner.replaceAll("\r\n", "\n");
  if (CONTROL.test(plain)) throw new Unreadable(at, "a text with a control character in it");
  const body = plain.replace(/^\n/, "");
  const value = quote === '"' ? unescaped(body.replace(JOINED, "$1"), at) : body;
  return { value, end: at + found.length };
}

/** A backslash at the end of a line joins it to the next text; a doubled one is no such. */
const JOINED = /((?<!\\)(?:\\\\)*)\\[ \t]*\n[ \t\n]*/g;
const SHORT: Readonly<Record<string, string>> = {
  b: "\b",
  t: "\t",
  n: "\n",
  f: "\f",
  r: "\r",
  e: "\x1b",
  '"': '"',
  "\\": "\\",
};

function unescaped(text: string, at: number): string {
  return text.replace(
    /\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|([\s\S]|$))/g,
    (_, u, U, x, short) => {
      const code = Number.parseInt(u ?? U ?? x ?? "", 16);
      if (short === undefined && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff))
        return String.fromCodePoint(code);
      const plain = SHORT[short];
      if (plain === undefined)
        throw new Unreadable(at, "a backslash that TOML does not know (a path goes in single quotes)");
      return plain;
    },
  );
}

function readArray(text: string, start: number, depth: number): ReadAt<TomlValue> {
  const items: TomlValue[] = [];
  let at = skipLines(text, start + 1);
  while (text[at] !== "]") {
    const { value, end } = readTomlValue(text, at, depth + 1);
    items.push(value);
    at = behindComma(text, end, "]");
  }
  return { value: items, end: at + 1 };
}

function readInline(text: string, start: number, depth: number): ReadAt<TomlValue> {
  const table: TomlTable = { entries: new Map(), by: "inline" };
  let at = skipLines(text, start + 1);
  while (text[at] !== "}") {
    const key = readTomlKey(text, at);
    const { value, end } = readTomlValue(text, behindEquals(text, key.end), depth + 1);
    putAt(table, key.value, value, at);
    at = behindComma(text, end, "}");
  }
  return { value: table, end: at + 1 };
}

export function behindEquals(text: string, from: number): number {
  const at = skipBlanks(text, from);
  if (text[at] !== "=") throw new Unreadable(at, "an = is missing here");
  return skipBlanks(text, at + 1);
}

function behindComma(text: string, from: number, closing: string): number {
  const at = skipLines(text, from);
  if (text[at] === closing) return at;
  if (text[at] !== ",") throw new Unreadable(at, `a comma or ${closing} is missing here`);
  return skipLines(text, at + 1);
}

function matchAt(pattern: RegExp, text: string, at: number): string | null {
  const sticky = new RegExp(pattern);
  sticky.lastIndex = at;
  return sticky.exec(text)?.[0] ?? null;
}
