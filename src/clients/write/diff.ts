import { redactCredentials } from "../../core/secret.ts";

const AROUND = 3;
/** Beyond this a comparison line by line takes too long; then everything between the common ends counts as changed. */
const MOST_CELLS = 4_000_000;

type Change = { readonly sign: " " | "-" | "+"; readonly line: string };

/** A unified diff; empty where nothing differs. null: there is no such file, before or after. */
export function unifiedDiff(file: string, before: string | null, after: string | null): string[] {
  const changes = changesBetween(linesOf(before ?? ""), linesOf(after ?? ""));
  const hunks = hunksIn(changes);
  if (hunks.length === 0) return [];
  const name = (text: string | null) => (text === null ? "/dev/null" : file);
  return [`--- ${name(before)}`, `+++ ${name(after)}`, ...hunks];
}

/** The same for people: without what may be a secret, whichever file it stands in. Tokens keep their beginning. */
export function shownDiff(file: string, before: string | null, after: string | null): string[] {
  return unifiedDiff(file, before, after).map((line, at) => (at < 2 ? line : masked(line)));
}

const TOKEN = /\bkb_([A-Za-z0-9_-]{3})[A-Za-z0-9_-]{4,}/g;
/** A name that promises a secret, and the text behind it. */
const NAMED =
  /(["']?[\w.-]*(?:key|token|secret|passw|auth|credential|headers?)[\w.-]*["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"?|'[^']*'?)/gi;

function masked(line: string): string {
  const short = line.replace(TOKEN, "kb_$1…");
  const unnamed = short.replace(NAMED, (whole, name: string, value: string) => {
    const harmless = /^["']kb_.{3}…["']$/.test(value) || value.length <= 2;
    // env_key holds the name of a variable.
    if (harmless || /^["']?env_key\b/.test(name)) return whole;
    const quote = value.charAt(0);
    return `${name}${quote}[hidden]${quote}`;
  });
  return redactCredentials(unnamed);
}

/** A line keeps a mark where it is the last and has no line break, so that it differs from one that has. */
function linesOf(text: string): string[] {
  const lines = text.split("\n");
  const last = lines.pop() ?? "";
  return last === "" ? lines : [...lines, `${last}\n`];
}

function changesBetween(before: readonly string[], after: readonly string[]): Change[] {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const same = (lines: readonly string[]): Change[] => lines.map((line) => ({ sign: " ", line }));
  return [
    ...same(before.slice(0, head)),
    ...middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...same(before.slice(before.length - tail)),
  ];
}

/** By the longest common sequence of lines. */
function middle(before: readonly string[], after: readonly string[]): Change[] {
  const width = after.length + 1;
  const all = before.length * after.length <= MOST_CELLS;
  const common = new Uint32Array(all ? (before.length + 1) * width : 0);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = before.length - 1; all && row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        before[row] === after[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const changes: Change[] = [];
  let [row, column] = [0, 0];
  while (row < before.length || column < after.length) {
    const [old, now] = [before[row], after[column]];
    if (all && old !== undefined && old === now) {
      changes.push({ sign: " ", line: old });
      row += 1;
      column += 1;
    } else if (old !== undefined && (now === undefined || at(row + 1, column) >= at(row, column + 1))) {
      changes.push({ sign: "-", line: old });
      row += 1;
    } else {
      changes.push({ sign: "+", line: now ?? "" });
      column += 1;
    }
  }
  return changes;
}

function hunksIn(changes: readonly Change[]): string[] {
  const near = (at: number) =>
    changes.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(({ sign }) => sign !== " ");
  const lines: string[] = [];
  let [old, now] = [1, 1];
  for (let at = 0; at < changes.length; ) {
    let end = at;
    while (end < changes.length && near(end)) end += 1;
    const hunk = changes.slice(at, Math.max(end, at + 1));
    const olds = hunk.filter(({ sign }) => sign !== "+").length;
    const nows = hunk.filter(({ sign }) => sign !== "-").length;
    if (end > at) lines.push(`@@ -${range(old, olds)} +${range(now, nows)} @@`, ...hunk.flatMap(shownLine));
    old += olds;
    now += nows;
    at += hunk.length;
  }
  return lines;
}

function range(start: number, count: number): string {
  if (count === 1) return String(start);
  // Where there is no line, the format names the one before.
  return `${count === 0 ? start - 1 : start},${count}`;
}

function shownLine({ sign, line }: Change): string[] {
  const text = `${sign}${line.replace(/\r?\n?$/, "")}`;
  return line.endsWith("\n") ? [text, "\\ No newline at end of file"] : [text];
}
