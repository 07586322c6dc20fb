import { isDeepStrictEqual } from "node:util";
import type { Path, SettingsFormat } from "../../src/clients/format.ts";
import { withValue } from "../../src/clients/setting.ts";
import type { Edited } from "../../src/clients/text-edit.ts";
import { withNext } from "../../src/core/display.ts";
import { changedRange } from "./written-config.ts";

/** What holds for every edit of every format. */

export function done(edited: Edited): string {
  if (!edited.ok) throw new Error(`line ${edited.line}: ${withNext(edited)}`);
  return edited.text;
}

/** Whether every character of one is in the other, in the same order. */
export function isWithin(inner: string, outer: string): boolean {
  let at = 0;
  for (const character of outer) if (character === inner[at]) at += 1;
  return at === inner.length;
}

export interface Checked {
  readonly format: SettingsFormat;
  /** What a text means to another program. */
  meaning(text: string): unknown;
  /** The same with one change. Without it, a list that had one item becomes an empty list. */
  changed?(meaning: unknown, path: Path, value: string | undefined): unknown;
  /** Whether a value on this line is written as the editor writes it, so that it can be written again. */
  isUsual(line: string): boolean;
  /** What a removal may add, such as {} for what had one entry. A global expression. */
  readonly mayAdd?: RegExp;
}

/** Sets and removes each setting of a text, and returns how many edits were made and how many were left to the person. */
export function checkEdits(checked: Checked, text: string, value: string): { made: number; left: number } {
  const { format } = checked;
  const read = format.read(text);
  if (!read.ok) throw new Error(`line ${read.line}: ${read.problem}`);
  const counts = { made: 0, left: 0 };
  for (const { path, value: old, line } of read.settings) {
    const shown = `${JSON.stringify(path)} in ${JSON.stringify(text)}`;
    if (path.length === 0) continue;
    if (old !== null && !Object.is(format.at(text, path), old))
      throw new Error(`at() is not read(): ${shown}`);
    for (const edited of [
      checkReplaced(checked, text, path, old, line, value, shown),
      checkRemoved(checked, text, path, shown),
    ]) {
      if (edited) counts.made += 1;
      else counts.left += 1;
    }
  }
  return counts;
}

function isLeft(edited: Edited): boolean {
  if (edited.ok) return false;
  if (!/by hand|twice/.test(withNext(edited))) throw new Error(edited.problem);
  return true;
}

function checkReplaced(
  { format, meaning, isUsual, changed = withValue }: Checked,
  text: string,
  path: Path,
  old: string | number | boolean | null,
  line: number,
  value: string,
  shown: string,
): boolean {
  const edited = format.set(text, path, value);
  if (isLeft(edited)) return false;
  const after = done(edited);
  if (format.at(after, path) !== value) throw new Error(`not set: ${shown}`);
  if (!isDeepStrictEqual(meaning(after), changed(meaning(text), path, value)))
    throw new Error(`means something else now: ${shown}: ${JSON.stringify(after)}`);
  if (done(format.set(after, path, value)) !== after) throw new Error(`twice is not once: ${shown}`);
  const lines = text.split("\n");
  if (!isUsual(lines[line - 1] ?? "")) return true;
  const [from, to] = changedRange(text, after);
  if (text.slice(from, to).includes("\n")) throw new Error(`more than a line was changed: ${shown}`);
  if (text.slice(0, from).split("\n").length !== line && after !== text)
    throw new Error(`another line was changed: ${shown}`);
  // A value that needs quotes brings them along.
  const isSafe = /^[a-z_]+(?::[a-z0-9/.:]+)?$/.test(value);
  if (isSafe && old !== null && done(format.set(after, path, old)) !== text)
    throw new Error(`set back is not as before: ${shown}`);
  return true;
}

function checkRemoved(
  { format, meaning, mayAdd, changed = withValue }: Checked,
  text: string,
  path: Path,
  shown: string,
): boolean {
  const edited = format.set(text, path, undefined);
  if (isLeft(edited)) return false;
  const after = done(edited);
  if (!isDeepStrictEqual(meaning(after), changed(meaning(text), path, undefined)))
    throw new Error(`more than one setting went: ${shown}: ${JSON.stringify(after)}`);
  const without = (each: string) => (mayAdd === undefined ? each : each.replace(mayAdd, ""));
  if (!isWithin(without(after), without(text)))
    throw new Error(`something came in: ${shown}: ${JSON.stringify(after)}`);
  return true;
}

/** For files of variables: a name that is assigned once, and then no more, is gone. */
export function changedVariables(meaning: unknown, path: Path, value: string | undefined): unknown {
  const changed = Object.entries(withValue(meaning, path, value) as Record<string, readonly unknown[]>);
  return Object.fromEntries(changed.filter(([, values]) => values.length > 0));
}
