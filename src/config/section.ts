import type { Problem } from "../core/display.ts";
import { nearest } from "../core/nearest.ts";
import { redactCredentials } from "../core/redact.ts";
import type { Report } from "./problems.ts";
import type { Named } from "./schema.ts";
import { type Dict, type Entry, joinPath, lastName, type Tree } from "./yaml.ts";

/** A value, or what is wrong with its text and what to write instead. */
export type ValueResult<T> =
  | { readonly value: T }
  | (Problem & {
      /** What was probably meant. */
      readonly suggestion?: string;
    });
export type Reader<T> = (text: string) => ValueResult<T>;

/** Reads the settings of one map. A setting that was asked for is known; finish() reports the others. */
export class Section {
  readonly path: string;
  readonly at: number;
  readonly report: Report;
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #known: string[] = [];

  constructor(dict: Dict, path: string, report: Report) {
    this.#entries = dict.entries;
    this.path = path;
    this.at = dict.at;
    this.report = report;
  }

  entry(name: string): Entry | undefined {
    this.#known.push(name);
    this.report.noteSetting(name);
    return this.#entries.get(name);
  }

  entries(): ReadonlyMap<string, Entry> {
    return this.#entries;
  }

  pathOf(name: string): string {
    return joinPath(this.path, name);
  }

  /** The offset of a setting, or of the section if it is missing. */
  offsetOf(name: string): number {
    return this.#entries.get(name)?.value.at ?? this.at;
  }

  /** One value, or the default if it is missing or wrong. */
  scalar<T, D>(name: string, read: Reader<T>, defaultValue: D): T | D {
    const entry = this.entry(name);
    if (entry === undefined) return defaultValue;
    return readScalar(entry.value, this.pathOf(name), read, this.report) ?? defaultValue;
  }

  /** One value or a list of them. */
  scalars<T>(name: string, read: Reader<T>): readonly T[] {
    const entry = this.entry(name);
    if (entry === undefined) return Object.freeze([]);
    const path = this.pathOf(name);
    const items: readonly Tree[] = entry.value.kind === "list" ? entry.value.items : [entry.value];
    const values: T[] = [];
    for (const [index, item] of items.entries()) {
      const itemPath = entry.value.kind === "list" ? `${path}[${index}]` : path;
      const value = readScalar(item, itemPath, read, this.report);
      if (value !== undefined) values.push(value);
    }
    return Object.freeze(values);
  }

  /** A map inside this one. */
  section(name: string): Section | null {
    const entry = this.entry(name);
    return entry === undefined ? null : asSection(entry.value, this.pathOf(name), this.report);
  }

  /** A map of maps whose names the person chose. */
  named<T>(name: string, read: (inner: Section, key: string) => T | null, isValid = anyName): Named<T> {
    const section = this.section(name);
    const result: Record<string, T> = Object.create(null);
    for (const [key, entry] of section?.entries() ?? []) {
      const path = joinPath(section?.path ?? "", key);
      const inner = isValid(key, entry, path, this.report) ? asSection(entry.value, path, this.report) : null;
      const value = inner === null ? null : read(inner, key);
      if (value !== null) result[key] = value;
    }
    return Object.freeze(result);
  }

  /** Whether a setting is there, perhaps under a name with a typing mistake, which finish() reports. */
  has(name: string): boolean {
    if (this.#entries.has(name)) return true;
    return [...this.#entries.keys()].some(
      (key) => !this.#known.includes(key) && nearest(key, this.#known) === name,
    );
  }

  /** Reports every unknown setting. Called last. */
  finish(): void {
    for (const [name, entry] of this.#entries) {
      if (this.#known.includes(name)) continue;
      const near = nearest(name, this.#known);
      let hint = near
        ? `did you mean ${near}?`
        : `known here: ${[...new Set(this.#known)].toSorted().join(", ")}`;
      // In brackets a comma ends the value: `{ multiplier: 1,5 }`.
      if (/^\d+$/.test(name)) hint = "a number is written with a dot, such as 1.5";
      this.report.error(entry.at, this.pathOf(name), `${quoted(name)} is not a setting here`, hint);
    }
  }
}

/** Whether a text can be a name. Reports why not. */
export type NameCheck = (name: string, entry: Entry, path: string, report: Report) => boolean;
const anyName: NameCheck = () => true;

export function asSection(tree: Tree, path: string, report: Report): Section | null {
  if (tree.kind === "dict") return new Section(tree, path, report);
  const last = lastName(path);
  if (tree.kind === "scalar" && tree.text === "") {
    // A file that was cut off ends like this, so no default is assumed.
    report.error(
      tree.at,
      path,
      `nothing is written after \`${last}:\``,
      `write \`${last}: {}\` for all defaults`,
    );
  } else {
    const hint =
      tree.kind === "list" ? "write `name: { … }` for each, without a dash" : `such as \`${last}: { … }\``;
    report.error(tree.at, path, `${last} must be a map of settings`, hint);
  }
  return null;
}

export function readScalar<T>(tree: Tree, path: string, read: Reader<T>, report: Report): T | undefined {
  if (tree.kind !== "scalar") {
    const last = lastName(path);
    report.error(tree.at, path, `${last} must be a single value`, `write \`${last}: value\` on one line`);
    return undefined;
  }
  if (tree.text === "" && tree.plain) {
    report.error(tree.at, path, "nothing is written here", "write a value, or remove the line");
    return undefined;
  }
  const reading = read(tree.text);
  if ("value" in reading) return reading.value;
  report.error(tree.at, path, reading.problem, reading.next);
  return undefined;
}

/** A value as a message may show it: short, on one line, without secrets. */
export function quoted(text: string): string {
  const shown = redactCredentials(text).replace(/\p{Cc}/gu, "?");
  return `"${shown.length > 40 ? `${shown.slice(0, 40)}…` : shown}"`;
}
