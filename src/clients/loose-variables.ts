import type { Setting } from "./setting.ts";
import { VARIABLES } from "./variables.ts";

/*
 * Finds the known variables in files of formats that keybearer does not edit: property lists, service units, PowerShell, Nushell and
 * fish's universal variables. The text is searched, not parsed.
 */

/** Everything is bounded: a file can be hostile, and an unclosed quote must not be searched to the end each time. */
const VALUE = String.raw`("(?:[^"\\\n]|\\.){0,1000}"|'[^'\n]{0,1000}'|[^\s,;}\]#]{1,1000})`;
const GAP = String.raw`[ \t]{0,20}`;
const NAMES = VARIABLES.map(({ name }) => name).join("|");
const FORMS = [
  // $env:NAME = "value", "NAME=value", SETUVAR --export NAME:value
  String.raw`(?<![\w-])(["']?)(${NAMES})\1${GAP}[:=]${GAP}${VALUE}`,
  String.raw`(<key>)(${NAMES})</key>\s{0,100}<string>([^<\n]{0,1000})</string>`,
];

export function readLooseVariables(text: string): Setting[] {
  const matches = FORMS.flatMap((form) => [...text.matchAll(new RegExp(form, "g"))]).toSorted(
    (a, b) => a.index - b.index,
  );
  const found: Setting[] = [];
  // Matches are in order, so no part of the text is counted twice.
  let line = 1;
  let lineStart = 0;
  for (const match of matches) {
    for (let next = text.indexOf("\n", lineStart); next !== -1 && next < match.index; ) {
      line += 1;
      lineStart = next + 1;
      next = text.indexOf("\n", lineStart);
    }
    const [, , name = "", value = ""] = match;
    const isComment = /^\s*(?:#|;|<!--)/.test(text.slice(lineStart, lineStart + 100));
    if (!isComment) found.push({ path: [name], value: value.replace(/^["']|["']$/g, "").trim(), line });
  }
  return found;
}
