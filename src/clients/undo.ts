import { createHmac, randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { diffArrays } from "diff";
import { type Failed, failed } from "../core/display.ts";
import { isObject } from "../core/json.ts";
import { looksLikeCredential } from "../core/redact.ts";
import { type Field, type FieldSet, isVariableFormat, matchingPaths, matchPattern } from "./description.ts";
import { formatFor, type Path, type PlainValue } from "./format.ts";
import { valueIn, withValue } from "./setting.ts";
import type { Edited } from "./text-edit.ts";

/* What a write changed in a file of settings, field by field, and how it is taken back. Pure: keys are stored elsewhere. */

/**
 * What a field held before: nothing, a plain value, or something that is stored like a key. around: the value is the key
 * between these two texts, as in "Bearer sk-…".
 */
export type Before<Key> =
  | null
  | { readonly value: PlainValue }
  | { readonly key: Key; readonly around: readonly [string, string] };

export interface ChangedField<Key> {
  readonly path: Path;
  readonly holds: Field["holds"];
  readonly before: Before<Key>;
  /** The digest of what was written; null: the field was removed. */
  readonly after: string | null;
  /** How many of the objects around it were made with it. */
  readonly made: number;
}

/** Keeps `keep` characters, drops `drop`, and inserts these texts. A number means the old key of that field. */
interface Splice {
  readonly keep: number;
  readonly drop: number;
  readonly insert: readonly (string | number)[];
}

/** One write. `Key` is the old key itself until it is stored, and then where it is stored. */
export interface Change<Key> {
  /** For all digests: a short value could be guessed from a bare one. */
  readonly salt: string;
  /** The digest of the text that was written. */
  readonly written: string;
  readonly fields: readonly ChangedField<Key>[];
  /** From the new text to the old one, to the byte; null: the fields say all. */
  readonly layout: readonly Splice[] | null;
}

/** What is known of a file apart from its text. */
export type FileKind = Pick<FieldSet, "format" | "empty">;

type Described = { readonly ok: true; readonly change: Change<string> } | Failed;

/**
 * What a write changes in these fields of a file. Refused if that could not be taken back. null stands for a file that does
 * not exist.
 */
export function describeChange(file: FieldSet, before: string | null, after: string): Described {
  const salt = randomBytes(32).toString("hex");
  const base = contentOf(file, before);
  const fields = changedFields(file, base, after, salt);
  const bare = { salt, written: digest(salt, after), fields, layout: null };
  // Scripts hold more than their variables. Their text is never put together from a record, which could hold any command.
  const showsAll = !isVariableFormat(file.format);
  const exact = showsAll ? { ...bare, layout: findLayout(before ?? file.empty, after, fields) } : bare;
  for (const change of [exact, bare]) {
    const back = takeBack(file, change, after, fields, (key) => key);
    if (!back.ok || !meansTheSame(file, back.text, base)) continue;
    const isExact = back.text === (before ?? file.empty);
    if (isExact || (showsAll && change.layout === null)) return { ok: true, change };
  }
  return failed("the way it is written, this could not be taken back", "change it by hand");
}

function changedFields(file: FieldSet, before: string, after: string, salt: string): ChangedField<string>[] {
  const old = everythingIn(file, before);
  const now = everythingIn(file, after);
  const found = new Map<string, { readonly path: Path; readonly field: Field }>();
  for (const field of file.fields) {
    for (const path of [...matchingPaths(old, field.path), ...matchingPaths(now, field.path)])
      if (!found.has(JSON.stringify(path))) found.set(JSON.stringify(path), { path, field });
  }
  const isSame = (path: Path) => isDeepStrictEqual(valueIn(old, path), valueIn(now, path));
  const changedKeys = [...found.values()].filter(({ path, field }) => field.holds === "key" && !isSame(path));
  return [...found.values()].flatMap(({ path, field }) => {
    // A key goes back only beside the address that it was beside, so that address is kept in any case.
    const isNeeded =
      field.holds === "address" &&
      changedKeys.some((key) =>
        belongsTo(matchPattern(field.path, path), matchPattern(key.field.path, key.path)),
      );
    if (isSame(path) && !isNeeded) return [];
    const around = path.slice(1).map((_, depth) => path.slice(0, depth + 1));
    const made = around.filter(
      (outer) => valueIn(old, outer) === undefined && valueIn(now, outer) !== undefined,
    );
    return [
      {
        path,
        holds: field.holds,
        before: describeBefore(valueIn(old, path), field),
        after: digestOf(salt, valueIn(now, path)),
        made: made.length,
      },
    ];
  });
}

/** Whether an address belongs to a key: their paths have the same names, as far as the address has any. */
function belongsTo(address: readonly unknown[] | null, key: readonly unknown[] | null): boolean {
  return (
    address !== null &&
    key !== null &&
    address.every((name, index) => index >= key.length || key[index] === name)
  );
}

function describeBefore(value: unknown, { holds, within }: Field): Before<string> {
  if (value === undefined) return null;
  const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
  // Text of another field may hold a key as well, such as a command, or a URL with a password.
  const isKey = holds === "key" && typeof value === "string" && value !== "";
  if (isPlain && !isKey && !looksLikeCredential(String(value))) return { value };
  const [, head = "", key = "", tail = ""] = (isKey ? within?.exec(value) : null) ?? [];
  return key === "" ? { key: textOf(value), around: ["", ""] } : { key, around: [head, tail] };
}

/**
 * The text without these fields' changes. To the byte if nothing else was changed since.
 * @param keyFor the old key of a field; null: it is lost, and the field is left out.
 */
export function takeBack<Key>(
  file: FileKind,
  { salt, written, fields, layout }: Change<Key>,
  text: string,
  taken: readonly ChangedField<Key>[],
  keyFor: (key: Key) => string | null,
): Edited {
  const oldValue = ({ before }: ChangedField<Key>): PlainValue | null => {
    if (before === null) return null;
    if ("value" in before) return before.value;
    const key = keyFor(before.key);
    return key === null ? null : `${before.around[0]}${key}${before.around[1]}`;
  };
  const isWhole = taken.length === fields.length && digest(salt, text) === written;
  if (layout !== null && isWhole && !isVariableFormat(file.format)) {
    const exact = spliced(text, layout, (index) => {
      const { before } = fields[index] ?? { before: null };
      return before === null || "value" in before ? "" : (keyFor(before.key) ?? "");
    });
    // The layout may change how the settings are written, and never what they say.
    if (isSameValue(everythingIn(file, exact), treeBefore(file, text, taken, oldValue)))
      return { ok: true, text: exact };
  }
  const { at, set } = formatFor(file.format);
  let edited: Edited = { ok: true, text };
  for (const path of isVariableFormat(file.format) ? [] : wholePaths(file, text, taken)) {
    // If an object cannot go as a whole, its fields go one by one.
    const without: Edited = edited.ok ? set(edited.text, path, undefined) : edited;
    if (without.ok) edited = without;
  }
  // Backwards, so that the indexes of a list stay right.
  for (const field of taken.toReversed()) {
    const value = oldValue(field) ?? undefined;
    if (edited.ok && !(value === undefined && at(edited.text, field.path) === undefined))
      edited = set(edited.text, field.path, value);
  }
  for (const outer of madeObjects(taken)) {
    if (edited.ok && isEmptyContainer(at(edited.text, outer))) edited = set(edited.text, outer, undefined);
  }
  return edited;
}

/** The objects that were made with the fields, inner ones first and the last item of a list before the others. */
function madeObjects<Key>(taken: readonly ChangedField<Key>[]): readonly Path[] {
  const paths = taken.flatMap(({ path, made }) =>
    Array.from({ length: made }, (_, index) => path.slice(0, path.length - 1 - index)),
  );
  const unique = [...new Map(paths.map((path) => [JSON.stringify(path), path])).values()];
  return unique.toReversed().toSorted((one, other) => other.length - one.length);
}

/** The outermost objects that the write made and in which there is nothing else by now. */
function wholePaths<Key>(file: FileKind, text: string, taken: readonly ChangedField<Key>[]): readonly Path[] {
  const tree = everythingIn(file, text);
  const gone = new Set(taken.filter(({ before }) => before === null).map(({ path }) => JSON.stringify(path)));
  const isOurs = (path: Path): boolean => {
    if (gone.has(JSON.stringify(path))) return true;
    const inner = namesIn(valueIn(tree, path));
    return inner.length > 0 && inner.every((name) => isOurs([...path, name]));
  };
  const whole = madeObjects(taken).filter((path) => valueIn(tree, path) !== undefined && isOurs(path));
  const isInside = (path: Path, outer: Path) =>
    outer.length < path.length && outer.every((name, index) => name === path[index]);
  return whole.filter((path) => !whole.some((outer) => isInside(path, outer)));
}

function namesIn(value: unknown): (string | number)[] {
  if (Array.isArray(value)) return value.map((_, index) => index);
  return isObject(value) && !(value instanceof Date) ? Object.keys(value) : [];
}

/** What the file means once these fields are as they were. */
function treeBefore<Key>(
  file: FileKind,
  text: string,
  taken: readonly ChangedField<Key>[],
  oldValue: (field: ChangedField<Key>) => PlainValue | null,
): unknown {
  let tree = everythingIn(file, text);
  for (const field of taken.toReversed()) {
    const value = oldValue(field) ?? undefined;
    if (value !== undefined || valueIn(tree, field.path) !== undefined)
      tree = withValue(tree, field.path, value);
  }
  for (const outer of madeObjects(taken)) {
    if (isEmptyContainer(valueIn(tree, outer))) tree = withValue(tree, outer, undefined);
  }
  return tree;
}

export type FieldState = "ours" | "as before" | "changed";

/** Whether a field still holds what was written. */
export function judgeField<Key>(
  file: FileKind,
  { salt }: Change<Key>,
  { path, holds, before, after }: ChangedField<Key>,
  text: string,
  isKey: (key: Key, value: string) => boolean,
): FieldState {
  const value = formatFor(file.format).at(text, path);
  if (holds === "stamp" && value !== undefined && after !== null) return "ours";
  if (digestOf(salt, value) === after) return "ours";
  if (before === null) return value === undefined ? "as before" : "changed";
  if (value === undefined) return "changed";
  if ("value" in before) return isDeepStrictEqual(value, before.value) ? "as before" : "changed";
  const [head, tail] = before.around;
  const found = textOf(value);
  const isFramed =
    found.length >= head.length + tail.length && found.startsWith(head) && found.endsWith(tail);
  const key = found.slice(head.length, found.length - tail.length);
  return isFramed && isKey(before.key, key) ? "as before" : "changed";
}

/** Whether nothing is left but what a new file begins with. */
export function isEmpty({ empty }: FileKind, text: string): boolean {
  return text.replace(/\s/g, "") === empty.replace(/\s/g, "");
}

export function digest(salt: string, text: string): string {
  return createHmac("sha256", salt).update(text).digest("hex");
}

function digestOf(salt: string, value: unknown): string | null {
  return value === undefined ? null : digest(salt, `${typeof value} ${textOf(value)}`);
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  // TOML has integers that JSON cannot write.
  return JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner));
}

/** An empty file means the same as a new one. */
export function contentOf({ empty }: FileKind, text: string | null): string {
  return text === null || text.trim() === "" ? empty : text;
}

/** undefined: the text cannot be parsed. */
function everythingIn(file: FileKind, text: string): unknown {
  const content = contentOf(file, text);
  return content.trim() === "" ? {} : formatFor(file.format).at(content, []);
}

function meansTheSame(file: FileKind, one: string, other: string): boolean {
  const value = everythingIn(file, one);
  return value !== undefined && isSameValue(value, everythingIn(file, other));
}

/** Parsers make objects with and without a prototype. */
function isSameValue(one: unknown, other: unknown): boolean {
  if (isEmptyContainer(one) && isEmptyContainer(other)) return true;
  if (Array.isArray(one) || Array.isArray(other)) {
    const isList = Array.isArray(one) && Array.isArray(other) && one.length === other.length;
    return isList && one.every((item, index) => isSameValue(item, other[index]));
  }
  if (one instanceof Date || other instanceof Date || !isObject(one) || !isObject(other))
    return isDeepStrictEqual(one, other);
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && isSameValue(one[name], other[name]))
  );
}

function isEmptyContainer(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && !(value instanceof Date) && Object.keys(value).length === 0;
}

/** A string is one piece, so that an old key is never cut into some that both texts have. */
const PIECE = /"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[ \t]+|\w+|[\s\S]/g;
const MAX_CHANGED_PIECES = 5000;

/** null: a key would be left in it. */
function findLayout(
  before: string,
  after: string,
  fields: readonly ChangedField<string>[],
): readonly Splice[] | null {
  const pieces = diffArrays(after.match(PIECE) ?? [], before.match(PIECE) ?? [], {
    maxEditLength: MAX_CHANGED_PIECES,
  });
  if (pieces === undefined) return null;
  const splices: Splice[] = [];
  let keep = 0;
  let drop = 0;
  for (const { value, added, removed } of pieces) {
    const text = value.join("");
    if (removed) drop += text.length;
    else if (added) {
      splices.push({ keep, drop, insert: withoutKeys(text, fields) });
      keep = 0;
      drop = 0;
    } else {
      if (drop > 0) splices.push({ keep, drop, insert: [] });
      keep = drop > 0 ? text.length : keep + text.length;
      drop = 0;
    }
  }
  if (drop > 0) splices.push({ keep, drop, insert: [] });
  const inserted = splices.flatMap(({ insert }) => insert);
  const hasAllKeys = fields.every(
    ({ before }, index) => before === null || "value" in before || inserted.includes(index),
  );
  const isFreeOfKeys = !inserted.some((text) => typeof text === "string" && looksLikeCredential(text));
  return hasAllKeys && isFreeOfKeys ? splices : null;
}

function withoutKeys(text: string, fields: readonly ChangedField<string>[]): (string | number)[] {
  let parts: (string | number)[] = [text];
  for (const [index, { before }] of fields.entries()) {
    if (before === null || "value" in before || before.key === "") continue;
    const { key } = before;
    parts = parts.flatMap((part) =>
      typeof part === "number"
        ? [part]
        : part.split(key).flatMap((piece, at) => (at === 0 ? [piece] : [index, piece])),
    );
  }
  return parts.filter((part) => part !== "");
}

function spliced(text: string, layout: readonly Splice[], keyFor: (index: number) => string): string {
  let result = "";
  let at = 0;
  for (const { keep, drop, insert } of layout) {
    result += text.slice(at, at + keep);
    at += keep + drop;
    for (const part of insert) result += typeof part === "number" ? keyFor(part) : part;
  }
  return result + text.slice(at);
}
