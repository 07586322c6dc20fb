import { isDeepStrictEqual } from "node:util";
import { type Path, type Setting, type SettingsFormat, valueIn } from "./setting.ts";
import { cannotEdit, changeByHand, type Edited, lineCounter, splice } from "./text-edit.ts";

/* What .env files and the start files of shells have in common: they are lists of assignments. */

export interface Assignment {
  readonly name: string;
  /** null: not a literal, such as "$X" or $(cmd). */
  readonly value: string | null;
  /** The value as it is written, with its quotes. */
  readonly start: number;
  readonly end: number;
}

export type Assignments<Each extends Assignment> =
  | { readonly ok: true; readonly assignments: readonly Each[] }
  | (Edited & { readonly ok: false });

/** How a format writes assignments. An edit is null if it cannot be made safely. */
export interface AssignmentSyntax<Each extends Assignment> {
  /** In the order of the text. */
  read(text: string): Assignments<Each>;
  /** What a value means as it is written; null: no literal. */
  literal(written: string): string | null;
  remove(text: string, assignment: Each): string | null;
  /** @param near the new one goes behind it, and is written like it; undefined: at the end */
  add(text: string, name: string, value: string, near: Each | undefined): string | null;
}

/** A format with the paths [name, which assignment of it from 0]. The result of each edit is read again. */
export function assignmentFormat<Each extends Assignment>(syntax: AssignmentSyntax<Each>): SettingsFormat {
  return {
    read(text) {
      const read = syntax.read(text);
      if (!read.ok) return read;
      const lineAt = lineCounter(text);
      const counts = new Map<string, number>();
      const settings = read.assignments.map(({ name, value, start }): Setting => {
        const index = counts.get(name) ?? 0;
        counts.set(name, index + 1);
        return { path: [name, index], value, line: lineAt(start) };
      });
      return { ok: true, settings };
    },

    at(text, path) {
      const read = syntax.read(text);
      return read.ok ? valueIn(valuesByName(read.assignments), path) : undefined;
    },

    set(text, path, value, near) {
      const [name, index] = path;
      if (typeof name !== "string" || typeof index !== "number") return cannotEdit("a variable has no name");
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return cannotEdit("this cannot be the name of a variable");
      const read = syntax.read(text);
      if (!read.ok) return read;
      const found = assignmentAt(read.assignments, path);
      const wanted = value === undefined ? undefined : String(value);
      if (found?.value === wanted) return { ok: true, text };
      const beside = near === undefined ? undefined : assignmentAt(read.assignments, near);
      const edited = editText(syntax, text, name, found, wanted, beside);
      const after = edited === null ? null : syntax.read(edited);
      if (edited === null || !after?.ok) return changeByHand(name);
      const made = wanted === undefined ? undefined : assignmentAt(after.assignments, path);
      const isExpected =
        made?.value === wanted &&
        isDeepStrictEqual(others(after.assignments, made), others(read.assignments, found));
      return isExpected ? { ok: true, text: edited } : changeByHand(name);
    },
  };
}

function editText<Each extends Assignment>(
  syntax: AssignmentSyntax<Each>,
  text: string,
  name: string,
  found: Each | undefined,
  wanted: string | undefined,
  near: Each | undefined,
): string | null {
  if (found === undefined) return wanted === undefined ? text : syntax.add(text, name, wanted, near);
  const before = text.slice(found.start, found.end);
  if (before.includes("\n")) return null;
  // With quotes around parts of it, it could not be written again as it was.
  if (/['"]/.test(before) && found.value !== null && writeLike(before, found.value, syntax) !== before)
    return null;
  if (wanted === undefined) return syntax.remove(text, found);
  const written = writeLike(before, wanted, syntax);
  return written === null ? null : splice(text, found.start, found.end, written);
}

/** All readers take these characters as they are, also the shells that load .env files. */
const SAFE = /^(?:[A-Za-z0-9_./][A-Za-z0-9_./:@%+,=-]*)?$/;

/** A value in the quotes that another one is in, or in others if those cannot hold it. null: none can. */
export function writeLike(
  other: string,
  value: string,
  { literal }: Pick<AssignmentSyntax<Assignment>, "literal">,
): string | null {
  const quote = /^['"]/.exec(other)?.[0] ?? "";
  for (const each of [quote, "", "'", '"']) {
    const written = `${each}${value}${each}`;
    const isAllowed = each !== "" || SAFE.test(value);
    if (isAllowed && literal(written) === value) return written;
  }
  return null;
}

function assignmentAt<Each extends Assignment>(all: readonly Each[], [name, index]: Path): Each | undefined {
  return all.filter((each) => each.name === name)[Number(index)];
}

function others(all: readonly Assignment[], one: Assignment | undefined): unknown {
  return all.filter((each) => each !== one).map(({ name, value }) => [name, value]);
}

function valuesByName(all: readonly Assignment[]): unknown {
  const values = new Map<string, (string | null)[]>();
  for (const { name, value } of all) {
    const list = values.get(name);
    if (list === undefined) values.set(name, [value]);
    else list.push(value);
  }
  return Object.fromEntries(values);
}
