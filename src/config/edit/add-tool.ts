import { isDeepStrictEqual } from "node:util";
import { isMap, isNode, type Pair, type YAMLMap } from "yaml";
import { changeIn, childIndent, contentStart, isNull, refuse, type Spliced } from "./splice.ts";
import {
  append,
  applyEdit,
  columnOf,
  contentEnd,
  type Edit,
  insertLine,
  isEmpty,
  lineBreak,
  pairsOf,
  readForEdit,
  setValue,
  startOf,
  type Tree,
  treeOf,
} from "./yaml-edit.ts";
import { inFlow, quotedName, settingLines } from "./yaml-text.ts";

type YamlMap = YAMLMap<unknown, unknown>;

/** Writes a new tool behind the last one, in the way the others are written, and leaves every other byte alone. */
export function addTool(text: string, name: string, settings: Tree): Spliced {
  const root = readForEdit(text)?.contents;
  if (!isMap(root)) return refuse("config.yaml cannot be edited as it is: run `keybearer check`");
  const pairs = pairsOf(root, "tools");
  if (pairs.length > 1) return refuse("config.yaml has tools: twice: make them one, then run this again");
  const [pair] = pairs;
  const tools = pair?.value;
  if (isMap(tools) && pairsOf(tools, name).length > 0)
    return refuse(
      `there is a tool ${name} in config.yaml already. a new key for it: keybearer tools rotate ${name}`,
    );
  const edit =
    pair === undefined ? toolsEdit(text, root, name, settings) : toolEdit(text, root, pair, name, settings);
  const edited = edit === null ? null : applyEdit(text, edit);
  if (edited === null || !isRight(root, edited, name, settings)) {
    const reason = "config.yaml is written in a way that this edit cannot follow safely";
    return refuse(`${reason}: write it by hand, below tools:\n  ${quotedName(name)}: ${inFlow(settings)}`);
  }
  return { ok: true, text: edited };
}

function toolEdit(
  text: string,
  root: YamlMap,
  pair: Pair<unknown, unknown>,
  name: string,
  settings: Tree,
): Edit | null {
  const { value: tools } = pair;
  const flow = `${quotedName(name)}: ${inFlow(settings)}`;
  if (isMap(tools) && tools.flow === true) return append(text, tools, flow);
  if (isMap(tools)) {
    const column = columnOf(text, contentStart(tools));
    const width = childIndent(text, tools) ?? Math.max(column - columnOf(text, contentStart(root)), 2);
    const edit = append(text, tools, blockLines(text, column, width, name, settings));
    return areApart(text, tools) ? { ...edit, text: lineBreak(text, edit.start) + edit.text } : edit;
  }
  if (isNull(tools) || root.flow === true) return setValue(text, pair, `{ ${flow} }`);
  if (!isEmpty(tools)) return null;
  return insertLine(text, contentEnd(text, pair), "  ", blockLines(text, 2, 2, name, settings));
}

/** There is no tools: yet. */
function toolsEdit(text: string, root: YamlMap, name: string, settings: Tree): Edit {
  if (root.flow === true) return append(text, root, `tools: { ${quotedName(name)}: ${inFlow(settings)} }`);
  const column = columnOf(text, contentStart(root));
  const eol = lineBreak(text, 0);
  const inner = blockLines(text, column + 2, 2, name, settings);
  return append(text, root, `tools:${eol}${" ".repeat(column + 2)}${inner}`);
}

function blockLines(text: string, column: number, width: number, name: string, settings: Tree): string {
  const lines = settingLines(settings);
  if (lines.length === 0) return `${quotedName(name)}: {}`;
  const indent = lineBreak(text, 0) + " ".repeat(column + width);
  return `${quotedName(name)}:${lines.map((line) => indent + line).join("")}`;
}

/** Whether the tools stand apart by blank lines, as far as can be seen. */
function areApart(text: string, tools: YamlMap): boolean {
  const [before, last] = tools.items.slice(-2);
  if (last === undefined || !isNode(last.key)) return false;
  return /\n[ \t]*\r?\n/.test(text.slice(contentEnd(text, before), startOf(last.key)));
}

/** Reads the outcome again: it must be the old file with that one tool more, or it is not given out. */
function isRight(root: YamlMap, edited: string, name: string, settings: Tree): boolean {
  const before = treeOf(root);
  const withTool = (tools: Tree): Tree => ({
    entries: [...(typeof tools !== "string" && "entries" in tools ? tools.entries : []), [name, settings]],
  });
  const wanted =
    pairsOf(root, "tools").length > 0 || typeof before === "string" || !("entries" in before)
      ? changeIn(before, ["tools"], withTool)
      : { entries: [...before.entries, ["tools", withTool("")]] };
  const doc = readForEdit(edited);
  return doc !== null && isDeepStrictEqual(treeOf(doc.contents), wanted);
}
