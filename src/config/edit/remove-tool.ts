import { isDeepStrictEqual } from "node:util";
import { isNode, type Pair } from "yaml";
import { changeIn, type FoundTool, findTool } from "./splice.ts";
import {
  applyEdit,
  columnOf,
  contentEnd,
  type Edit,
  lineEnd,
  lineStart,
  readForEdit,
  startOf,
  type Tree,
  treeOf,
} from "./yaml-edit.ts";

export type Removed =
  | {
      readonly ok: true;
      readonly text: string;
      /** Comments stand right above where the tool was. They may be about it, or about what follows. */
      readonly commentAbove: boolean;
    }
  | { readonly ok: false; readonly reason: string };

/**
 * Takes a tool out of the text of config.yaml and leaves every other byte alone. What is written inside it goes with
 * it, comments too; what stands above it stays.
 */
export function removeTool(text: string, tool: string): Removed {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  if (found.tools.items.length === 1) {
    const reason = `${tool} is the only tool, and config.yaml must have one`;
    return {
      ok: false,
      reason: `${reason}: keep it from being used with \`keybearer tools disable ${tool}\``,
    };
  }
  const edit = found.tools.flow === true ? fromFlow(found) : fromBlock(found);
  const edited = edit === null ? null : applyEdit(text, edit);
  if (edit === null || edited === null || !isRight(found, edited)) {
    const reason = "config.yaml is written in a way that this edit cannot follow safely";
    return { ok: false, reason: `${reason}: delete ${tool} below tools: by hand` };
  }
  return { ok: true, text: edited, commentAbove: hasCommentAbove(found) };
}

/** The lines of the tool, and the comments right below that are set in deeper than its name. */
function fromBlock({ text, pair }: FoundTool): Edit | null {
  const at = keyStart(pair);
  if (at === null) return null;
  const column = columnOf(text, at);
  let end = lineEnd(text, contentEnd(text, pair));
  const inside = new RegExp(`(?:\\r?\\n[ \\t]*)*\\r?\\n {${column + 1},}#[^\\n]*?(?=\\r?\\n|$)`, "y");
  for (inside.lastIndex = end; inside.test(text); inside.lastIndex = end) end = inside.lastIndex;
  return wholeLines(text, { start: at - column, end });
}

function fromFlow({ text, tools, pair }: FoundTool): Edit | null {
  const [at, end] = [keyStart(pair), contentEnd(text, pair)];
  if (at === null) return null;
  const line = { start: lineStart(text, at), end: lineEnd(text, end) };
  const behind = /^[ \t]*,?[ \t]*(?:#.*)?$/.test(text.slice(end, line.end));
  const alone = behind && /^[ \t]+$/.test(text.slice(line.start, at));
  const comma = /^\s*,[ \t]*/.exec(text.slice(end));
  if (comma !== null)
    return alone ? wholeLines(text, line) : { start: at, end: end + comma[0].length, text: "" };
  // The last one: the comma in front of it goes instead, unless a comment stands between. Then it may stay.
  const previous = contentEnd(text, tools.items[tools.items.indexOf(pair) - 1]);
  const last = { start: previous, end: alone ? line.end : end, text: "" };
  if (/^\s*,\s*$/.test(text.slice(previous, at))) return last;
  return alone ? wholeLines(text, line) : null;
}

/** With the line break behind them, or at the end of the file the one before. */
function wholeLines(text: string, { start, end }: { start: number; end: number }): Edit {
  const behind = /^\r?\n/.exec(text.slice(end, end + 2));
  if (behind !== null) return { start, end: end + behind[0].length, text: "" };
  const before = /\r?\n$/.exec(text.slice(Math.max(0, start - 2), start));
  return { start: start - (before?.[0].length ?? 0), end, text: "" };
}

function keyStart({ key }: Pair<unknown, unknown>): number | null {
  return isNode(key) ? startOf(key) : null;
}

/** One that is set in deeper belongs to what comes before. */
function hasCommentAbove({ text, pair }: FoundTool): boolean {
  const at = keyStart(pair) ?? 0;
  const start = lineStart(text, at);
  const above = start === 0 ? "" : text.slice(lineStart(text, start - 1), start);
  const comment = /^([ \t]*)#/.exec(above);
  return comment !== null && (comment[1] ?? "").length <= columnOf(text, at);
}

/** Reads the outcome again: it must be the old file without that one tool, or it is not given out. */
function isRight({ tool, root }: FoundTool, edited: string): boolean {
  const wanted = changeIn(treeOf(root), ["tools"], (tools): Tree => {
    if (typeof tools === "string" || !("entries" in tools)) return tools;
    return { entries: tools.entries.filter(([name]) => name !== tool) };
  });
  const doc = readForEdit(edited);
  return doc !== null && isDeepStrictEqual(treeOf(doc.contents), wanted);
}
