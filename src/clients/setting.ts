import { isObject } from "../core/json.ts";
import type { CannotEdit, Edited } from "./text-edit.ts";

/* What the editors of all formats have in common: settings, the paths to them, and values in a parsed text. */

/** Names and list indexes from the top. In a file of variables: the name, and which assignment of it, from 0. */
export type Path = readonly (string | number)[];

export type PlainValue = string | number | boolean;

export interface Setting {
  readonly path: Path;
  /** null: it has no literal value, such as "$X", $(cmd), a YAML alias or a date. */
  readonly value: PlainValue | null;
  /** Where the value is, from 1. */
  readonly line: number;
}

/** All settings of a text, in its order, or why it cannot be read. A problem never quotes the text, which may hold keys. */
export type Settings = { readonly ok: true; readonly settings: readonly Setting[] } | CannotEdit;

export interface SettingsFormat {
  /** All scalars. */
  read(text: string): Settings;
  /** The value at a path; undefined: there is none, or the text cannot be read. An empty path is the whole text. */
  at(text: string, path: Path): unknown;
  /**
   * Sets a scalar, or removes what is at the path (undefined), and keeps every other byte. Missing objects on the way are
   * created. The index behind the last item of a list appends one.
   * @param near in a file of variables: a new one goes behind this one, and is written like it.
   */
  set(text: string, path: Path, value: PlainValue | undefined, near?: Path): Edited;
}

/** The value at a path in a parsed text; undefined: there is none. */
export function valueIn(tree: unknown, path: Path): unknown {
  let value = tree;
  for (const name of path) {
    if (typeof name === "number") value = Array.isArray(value) ? value[name] : undefined;
    else value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  }
  return value;
}

/** A copy with another value at a path; undefined removes it. What is missing on the way is created. */
export function withValue(tree: unknown, path: Path, value: unknown): unknown {
  const [name, ...rest] = path;
  if (name === undefined) return value;
  const inner = withValue(valueIn(tree, [name]), rest, value);
  if (typeof name === "number") {
    const list = Array.isArray(tree) ? tree : [];
    return inner === undefined ? list.toSpliced(name, 1) : list.toSpliced(name, 1, inner);
  }
  const { [name]: _, ...others } = isObject(tree) ? tree : {};
  return inner === undefined ? others : { ...others, [name]: inner };
}

/**
 * Whether a path that does not exist yet cannot be created without empty places in a list.
 * @param length how many items there are where the missing part begins, if that is a list
 */
export function leavesGap(missing: Path, length: number): boolean {
  return missing.some((name, depth) => typeof name === "number" && name !== (depth === 0 ? length : 0));
}

/** A path for messages, such as models[0].apiKey. */
export function showPath(path: Path): string {
  return path
    .map((name, depth) => (typeof name === "number" ? `[${name}]` : depth > 0 ? `.${name}` : name))
    .join("");
}
