import { isDeepStrictEqual } from "node:util";
import { isMap, isScalar, isSeq, type Pair, type YAMLMap } from "yaml";
import { redactCredentials } from "../../core/secret.ts";
import {
  append,
  applyEdit,
  columnOf,
  contentEnd,
  type Edit,
  insertLine,
  isEmpty,
  pairsOf,
  readForEdit,
  setValue,
  sourceOf,
  type Tree,
  treeOf,
} from "./yaml-edit.ts";

export type Spliced =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly reason: string };

/**
 * Writes a tool's token into the text of config.yaml and leaves every other byte alone. "replace" ends all older
 * tokens; "add" lets them stay, and does nothing where the hash is there already.
 */
export function setToken(text: string, tool: string, hash: string, mode: "replace" | "add"): Spliced {
  // The file keeps hashes only; a token itself that came here by mistake must not be written.
  if (!/^sha256:[0-9a-f]{64}$/.test(hash)) throw new TypeError("a token is kept as sha256:<64 hex digits>");
  if (mode === "replace") return setInTool(text, tool, "token", hash);
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const pair = isMap(found.pair.value) ? pairsOf(found.pair.value, "token")[0] : undefined;
  const old = pair?.value;
  if (pair === undefined || isEmpty(old)) return setInTool(text, tool, "token", hash);
  const items = isSeq(old) ? old.items.map(treeOf) : [treeOf(old)];
  if (items.includes(hash)) return { ok: true, text };
  const change = { key: "token", value: { items: [...items, hash] }, valueText: `[…, ${hash}]` };
  if (isSeq(old)) return finish(found, append(text, old, hash), change);
  if (!isScalar(old)) return byHand(tool, change);
  return finish(found, setValue(text, pair, `[${sourceOf(text, old)}, ${hash}]`), change);
}

/** Lets a tool be used, or not. The text stays as it is where that is so already. */
export function setEnabled(text: string, tool: string, enabled: boolean): Spliced {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const [pair] = isMap(found.pair.value) ? pairsOf(found.pair.value, "enabled") : [];
  const now = pair === undefined ? "true" : treeOf(pair.value);
  return now === String(enabled) ? { ok: true, text } : setInTool(text, tool, "enabled", String(enabled));
}

/**
 * Sets one setting of a tool, whatever it was before. valueText is YAML on one line that is safe inside { } too:
 * false, sha256:…, [a, b], "quoted".
 */
export function setInTool(text: string, tool: string, key: string, valueText: string): Spliced {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const value = readForEdit(valueText);
  const change = { key, value: treeOf(value?.contents), valueText };
  const edit = value === null ? null : settingEdit(found, change);
  return edit === null ? byHand(tool, change) : finish(found, edit, change);
}

/** What one setting is to be, as a meaning and as a text. */
interface Change {
  readonly key: string;
  readonly value: Tree;
  readonly valueText: string;
}

export interface FoundTool {
  readonly ok: true;
  readonly text: string;
  readonly tool: string;
  readonly root: YAMLMap<unknown, unknown>;
  readonly tools: YAMLMap<unknown, unknown>;
  readonly pair: Pair<unknown, unknown>;
}

export function findTool(
  text: string,
  tool: string,
): FoundTool | { readonly ok: false; readonly reason: string } {
  const root = readForEdit(text)?.contents;
  if (root === undefined) return refuse("config.yaml cannot be edited as it is: run `keybearer check`");
  const tools = isMap(root) ? pairsOf(root, "tools").map((pair) => pair.value) : [];
  if (!isMap(root) || tools.length === 0) return refuse("config.yaml has no tools: run `keybearer check`");
  const [only] = tools;
  if (tools.length > 1) return refuse("config.yaml has tools: twice: make them one, then run this again");
  if (!isMap(only)) return refuse("tools: in config.yaml is not a map of tools: run `keybearer check`");
  const pairs = pairsOf(only, tool);
  const [pair] = pairs;
  if (pair === undefined) {
    const names = only.items.map((item) => String(treeOf(item.key)));
    return refuse(`there is no tool ${tool} in config.yaml; its tools are ${names.join(", ")}`);
  }
  if (pairs.length > 1)
    return refuse(`config.yaml has the tool ${tool} twice: delete one, then run this again`);
  return { ok: true, text, tool, root, tools: only, pair };
}

function settingEdit({ text, root, tools, pair }: FoundTool, { key, valueText }: Change): Edit | null {
  const item = `${key}: ${valueText}`;
  if (isMap(pair.value)) {
    const [present] = pairsOf(pair.value, key);
    return present ? setValue(text, present, valueText) : append(text, pair.value, item);
  }
  if (!isEmpty(pair.value)) return isNull(pair.value) ? setValue(text, pair, `{ ${item} }`) : null;
  if (tools.flow === true) return setValue(text, pair, `{ ${item} }`);
  const column = columnOf(text, contentStart(tools));
  const width = childIndent(text, tools) ?? Math.max(column - columnOf(text, contentStart(root)), 2);
  return insertLine(text, contentEnd(text, pair), " ".repeat(column + width), item);
}

/** How far the other tools indent their settings, so that a new block looks like them. */
export function childIndent(text: string, tools: YAMLMap<unknown, unknown>): number | null {
  for (const { value } of tools.items) {
    if (isMap(value) && value.flow !== true) {
      return columnOf(text, contentStart(value)) - columnOf(text, contentStart(tools));
    }
  }
  return null;
}

export function contentStart(map: YAMLMap<unknown, unknown>): number {
  return map.range?.[0] ?? 0;
}

/** The failsafe schema reads these as words; everybody else as nothing. */
export function isNull(node: unknown): boolean {
  return isScalar(node) && node.type === "PLAIN" && /^(?:~|null|Null|NULL)$/.test(String(node.value));
}

/** Reads the outcome again: it must be the old file with that one setting changed, or it is not given out. */
function finish({ text, tool, root, pair }: FoundTool, edit: Edit, change: Change): Spliced {
  const edited = applyEdit(text, edit);
  const wanted = changeIn(treeOf(root), ["tools", tool], () => withEntry(treeOf(pair.value), change));
  const doc = readForEdit(edited);
  if (doc === null || !isDeepStrictEqual(treeOf(doc.contents), wanted)) return byHand(tool, change);
  return { ok: true, text: edited };
}

function withEntry(settings: Tree, { key, value }: Change): Tree {
  const entries = typeof settings !== "string" && "entries" in settings ? settings.entries : [];
  return entries.some(([name]) => name === key)
    ? changeIn({ entries }, [key], () => value)
    : { entries: [...entries, [key, value]] };
}

export function changeIn(tree: Tree, path: readonly string[], change: (was: Tree) => Tree): Tree {
  const [name, ...rest] = path;
  if (name === undefined) return change(tree);
  if (typeof tree === "string" || !("entries" in tree)) return tree;
  const entries = tree.entries.map(
    ([key, was]) => [key, key === name ? changeIn(was, rest, change) : was] as const,
  );
  return { entries };
}

/** The value is shown without what may be a secret in it: the person has it already, the terminal's log need not. */
function byHand(tool: string, { key, valueText }: Change): Spliced {
  return refuse(
    `config.yaml is written in a way that this edit cannot follow safely: write it by hand, below tools: ${tool}:\n` +
      `  ${key}: ${redactCredentials(valueText)}`,
  );
}

export function refuse(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
