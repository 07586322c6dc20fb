import { redactCredentials } from "../../core/secret.ts";
import type { Named } from "../shape.ts";
import { type Dict, type Entry, joinPath, lastName, type Report, type Tree } from "./tree.ts";

/** A value read from text, or why it could not be, with what to write instead. */
export type Reading<T> = { readonly value: T } | { readonly fault: string; readonly hint?: string };
export type Read<T> = (text: string) => Reading<T>;

/** Reads the settings of one dictionary; each that is asked for is known, the rest are reported at the end. */
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
    return this.#entries.get(name);
  }

  entries(): ReadonlyMap<string, Entry> {
    return this.#entries;
  }

  pathOf(name: string): string {
    return joinPath(this.path, name);
  }

  /** Where a setting stands, or the section itself when it is not there. */
  placeOf(name: string): number {
    return this.#entries.get(name)?.value.at ?? this.at;
  }

  /** One scalar, or what stands for it when it is absent or wrong. */
  scalar<T, D>(name: string, read: Read<T>, otherwise: D): T | D {
    const entry = this.entry(name);
    if (entry === undefined) return otherwise;
    return readScalar(entry.value, this.pathOf(name), read, this.report) ?? otherwise;
  }

  /** One scalar or a list of them. */
  scalars<T>(name: string, read: Read<T>): readonly T[] {
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

  /** A dictionary inside this one. */
  section(name: string): Section | null {
    const entry = this.entry(name);
    return entry === undefined ? null : asSection(entry.value, this.pathOf(name), this.report);
  }

  /** A dictionary whose names the person chose. */
  named<T>(name: string, read: (item: Entry, key: string, path: string) => T | null): Named<T> {
    const section = this.section(name);
    const result: Record<string, T> = Object.create(null);
    for (const [key, entry] of section?.entries() ?? []) {
      const value = read(entry, key, joinPath(section?.path ?? "", key));
      if (value !== null) result[key] = value;
    }
    return Object.freeze(result);
  }

  /** Reports every setting that nobody asked for. Called last. */
  finish(): void {
    for (const [name, entry] of this.#entries) {
      if (this.#known.includes(name)) continue;
      const near = nearest(name, this.#known);
      const hint = near ? `did you mean ${near}?` : `known here: ${this.#known.toSorted().join(", ")}`;
      this.report.error(entry.at, this.pathOf(name), `${quoted(name)} is not a setting here`, hint);
    }
  }
}

export function asSection(tree: Tree, path: string, report: Report): Section | null {
  if (tree.kind === "dict") return new Section(tree, path, report);
  const last = lastName(path);
  if (tree.kind === "scalar" && tree.text === "") {
    // A file that was cut off ends like this, so nothing is assumed.
    report.error(
      tree.at,
      path,
      `nothing is written after \`${last}:\``,
      `write \`${last}: {}\` for all defaults`,
    );
  } else {
    report.error(tree.at, path, `${last} must hold settings of its own`, `such as \`${last}: { … }\``);
  }
  return null;
}

function readScalar<T>(tree: Tree, path: string, read: Read<T>, report: Report): T | undefined {
  if (tree.kind !== "scalar") {
    report.error(tree.at, path, `${lastName(path)} must be a single value`);
    return undefined;
  }
  if (tree.text === "" && tree.plain) {
    report.error(tree.at, path, "nothing is written here", "write a value, or take the line out");
    return undefined;
  }
  const reading = read(tree.text);
  if ("value" in reading) return reading.value;
  report.error(tree.at, path, reading.fault, reading.hint);
  return undefined;
}

/** A value as a message may show it: short, on one line, and no secret. */
export function quoted(text: string): string {
  const shown = redactCredentials(text).replace(/\p{Cc}/gu, "?");
  return `"${shown.length > 40 ? `${shown.slice(0, 40)}…` : shown}"`;
}

function nearest(name: string, known: readonly string[]): string | null {
  const folded = (text: string) => text.toLowerCase().replace(/[-_ ]/g, "");
  for (const candidate of known) {
    const limit = candidate.length <= 4 ? 1 : 2;
    if (distance(folded(name).slice(0, 40), folded(candidate)) <= limit) return candidate;
  }
  return null;
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const swap = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, swap));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
