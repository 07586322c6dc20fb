import type { Tree } from "./yaml-edit.ts";

/** Safe as they are, in a block and inside { } and [ ] alike, and read as text by everybody. */
const PLAIN = /^[A-Za-z$/~][A-Za-z0-9$/._~+-]*(?::[A-Za-z0-9$/._~+-]+)*$|^\d[\d.]*[A-Za-z]*\/[a-z]+$/;
/** What other readers of YAML take for something else than a text. A number or a date is meant as one. */
const WORDS = /^(?:y|n|yes|no|on|off|true|false|null|~)$/i;
const MEANT = /^(?:true|false|\d{1,9}|\d{4}-\d{2}-\d{2})$/;

/** A value on one line of YAML, safe inside { } too. */
export function inFlow(tree: Tree): string {
  if (typeof tree === "string") return MEANT.test(tree) ? tree : quotedName(tree);
  if ("items" in tree) return `[${tree.items.map(inFlow).join(", ")}]`;
  return tree.entries.length === 0 ? "{}" : `{ ${settingLines(tree).join(", ")} }`;
}

/** One `key: value` each. */
export function settingLines(tree: Tree): string[] {
  if (typeof tree === "string" || "items" in tree) return [];
  return tree.entries.map(([key, value]) => `${quotedName(String(key))}: ${inFlow(value)}`);
}

/** Also for names: a tool may be called no, or 1.0. */
export function quotedName(text: string): string {
  // JSON's strings are YAML's, too.
  return PLAIN.test(text) && !WORDS.test(text) ? text : JSON.stringify(text);
}
