import { createHmac, randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { diffArrays } from "diff";
import { isObject } from "../core/json.ts";
import { looksLikeCredential } from "../core/redact.ts";
import { ANY_NAME, type ClientSettings, fieldAt, fieldKind, setField } from "./settings-files.ts";
import type { Edited } from "./text-edit.ts";

/* What a write changed in a client's settings, field by field, and how it is taken back. Pure: keys are stored elsewhere. */

/** A value of a setting that is no secret. */
export type PlainValue = string | number | boolean;

/** What a field held before: nothing, a plain value, or something that is stored like a key. */
export type Before<Key> = null | { readonly value: PlainValue } | { readonly key: Key };

export interface ChangedField<Key> {
  readonly path: readonly string[];
  readonly before: Before<Key>;
  /** The digest of what was written; null: the field was removed. */
  readonly after: string | null;
  /** How many of the objects around it were made with it. */
  readonly made: number;
}

/** Goes on `keep` characters, leaves out `drop`, and inserts these texts. A number stands for the old key of that field. */
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

type Described =
  | { readonly ok: true; readonly change: Change<string> }
  | { readonly ok: false; readonly problem: string };

/** What a write changes. Refused if that could not be taken back. null stands for a file that does not exist. */
export function describeChange(settings: ClientSettings, before: string | null, after: string): Described {
  const salt = randomBytes(32).toString("hex");
  const base = contentOf(settings, before);
  const fields = changedFields(settings, base, after, salt);
  const bare = { salt, written: digest(salt, after), fields, layout: null };
  const exact = { ...bare, layout: findLayout(before ?? settings.empty, after, fields) };
  for (const change of [exact, bare]) {
    const back = takeBack(settings, change, after, fields, (key) => key);
    if (!back.ok || !meansTheSame(settings, back.text, base)) continue;
    if (change.layout === null || back.text === (before ?? settings.empty)) return { ok: true, change };
  }
  return { ok: false, problem: "the way it is written, this could not be taken back: change it by hand" };
}

function changedFields(
  settings: ClientSettings,
  before: string,
  after: string,
  salt: string,
): ChangedField<string>[] {
  const at = (text: string, path: readonly string[]) => fieldAt(settings, text, path);
  const paths = settings.fields.flatMap(({ path }) => namedPaths(settings, path, [before, after]));
  return paths.flatMap((path) => {
    const old = at(before, path);
    const now = at(after, path);
    const holds = fieldKind(settings, path);
    // An address is kept in any case: a key goes back only beside the same one.
    if (holds !== "address" && isDeepStrictEqual(old, now)) return [];
    const around = path.slice(1).map((_, depth) => path.slice(0, depth + 1));
    const made = around.filter((outer) => at(before, outer) === undefined && at(after, outer) !== undefined);
    return [
      {
        path,
        before: describeBefore(old, holds === "key"),
        after: digestOf(salt, now),
        made: made.length,
      },
    ];
  });
}

/** The paths that a field stands for in these texts. */
function namedPaths(
  settings: ClientSettings,
  path: readonly string[],
  texts: readonly string[],
): readonly (readonly string[])[] {
  if (path.at(-1) !== ANY_NAME) return [path];
  const outer = path.slice(0, -1);
  const names = texts.flatMap((text) => Object.keys(Object(fieldAt(settings, text, outer))));
  return [...new Set(names)].map((name) => [...outer, name]);
}

function describeBefore(value: unknown, isKey: boolean): Before<string> {
  if (value === undefined) return null;
  const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
  // Text of another field may hold a key as well, such as a command, or a URL with a password.
  const mayBeKey = (isKey && typeof value === "string" && value !== "") || looksLikeCredential(String(value));
  if (isPlain && !mayBeKey) return { value };
  return { key: textOf(value) };
}

/**
 * The text without these fields' changes. To the byte if nothing else was changed since.
 * @param keyFor the old key of a field; null: it is lost, and the field is left out.
 */
export function takeBack<Key>(
  settings: ClientSettings,
  { salt, written, fields, layout }: Change<Key>,
  text: string,
  taken: readonly ChangedField<Key>[],
  keyFor: (key: Key) => string | null,
): Edited {
  const oldValue = ({ before }: ChangedField<Key>) =>
    before === null ? null : "value" in before ? before.value : keyFor(before.key);
  let edited: Edited = { ok: true, text };
  for (const field of taken) {
    if (edited.ok) edited = setField(settings, edited.text, field.path, oldValue(field) ?? undefined);
  }
  for (const { path, made } of taken) {
    for (let depth = path.length - 1; depth >= path.length - made; depth -= 1) {
      const outer = path.slice(0, depth);
      if (edited.ok && isEmptyObject(fieldAt(settings, edited.text, outer)))
        edited = setField(settings, edited.text, outer, undefined);
    }
  }
  if (!edited.ok || layout === null || taken.length < fields.length || digest(salt, text) !== written)
    return edited;
  const exact = spliced(text, layout, (index) => {
    const field = fields[index];
    return field === undefined ? "" : String(oldValue(field) ?? "");
  });
  // The layout may change how the settings are written, and never what they say.
  return meansTheSame(settings, exact, edited.text) ? { ok: true, text: exact } : edited;
}

export type FieldState = "ours" | "as before" | "changed";

/** Whether a field still holds what was written. */
export function judgeField<Key>(
  settings: ClientSettings,
  { salt }: Change<Key>,
  { path, before, after }: ChangedField<Key>,
  text: string,
  isKey: (key: Key, value: string) => boolean,
): FieldState {
  const value = fieldAt(settings, text, path);
  if (digestOf(salt, value) === after) return "ours";
  if (before === null) return value === undefined ? "as before" : "changed";
  if (value === undefined) return "changed";
  if ("value" in before) return isDeepStrictEqual(value, before.value) ? "as before" : "changed";
  return isKey(before.key, textOf(value)) ? "as before" : "changed";
}

/** Whether nothing is left but what a new file begins with. */
export function isEmpty(settings: ClientSettings, text: string): boolean {
  return text.replace(/\s/g, "") === settings.empty.replace(/\s/g, "");
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
function contentOf(settings: ClientSettings, text: string | null): string {
  return text === null || text.trim() === "" ? settings.empty : text;
}

function meansTheSame(settings: ClientSettings, one: string, other: string): boolean {
  const root = (text: string) => fieldAt(settings, contentOf(settings, text), []);
  const value = root(one);
  return value !== undefined && isDeepStrictEqual(value, root(other));
}

function isEmptyObject(value: unknown): boolean {
  return isObject(value) && Object.keys(value).length === 0;
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
