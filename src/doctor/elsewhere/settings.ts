import { keyFault } from "../../core/secret.ts";
import { tokenShape } from "../../core/token.ts";
import type { Meaning } from "./names.ts";

/** What a value is, which is all that is ever kept of it. */
export type Kind = "ours" | "token" | "cut-token" | "elsewhere" | "nothing";

export interface Setting {
  readonly meaning: Meaning;
  readonly kind: Kind;
  /** Counted from 1; null: not in a file. */
  readonly line: number | null;
}

/** Bounded everywhere: the file is anybody's, and an unclosed quote must not be looked for to its end each time. */
const VALUE = String.raw`("(?:[^"\\\n]|\\.){0,1000}"|'[^'\n]{0,1000}'|[^\s,;}\]#]{1,1000})`;
const GAP = String.raw`[ \t]{0,20}`;

/**
 * Finds settings by name in a text of any of the formats that people keep them in: shell, fish, PowerShell, JSON with
 * comments, TOML, YAML, property lists. Read line by line, not parsed: a file that its own program could not parse must
 * be looked at as well, and the line is what the person needs.
 */
export function settingsIn(
  text: string,
  meanings: readonly Meaning[],
  ports: readonly number[],
  shell: boolean,
): Setting[] {
  const byName = new Map(meanings.map((meaning) => [meaning.name, meaning]));
  const names = meanings.map(({ name }) => name.replaceAll("-", "\\-")).join("|");
  const assigned = new RegExp(String.raw`(?<![\w-])(["']?)(${names})\1${GAP}[:=]${GAP}${VALUE}`, "g");
  const fish = new RegExp(String.raw`(\bset) ${GAP}(?:-\S{1,30} ${GAP}){0,5}(${names}) ${GAP}${VALUE}`, "g");
  const plist = new RegExp(
    String.raw`(<key>)(${names})</key>\s{0,100}<string>([^<\n]{0,1000})</string>`,
    "g",
  );
  const lineAt = lineCounter(text);
  return [assigned, fish, plist]
    .flatMap((pattern) => [...text.matchAll(pattern)])
    .toSorted((a, b) => a.index - b.index)
    .flatMap((match) => {
      const meaning = byName.get(match[2] ?? "");
      const { line, from } = lineAt(match.index);
      if (meaning === undefined || isComment(text, from)) return [];
      const kind = kindOf(unquoted(match[3] ?? ""), meaning, ports, shell);
      return kind === "nothing" ? [] : [{ meaning, kind, line }];
    });
}

export function kindOf(value: string, { role }: Meaning, ports: readonly number[], shell: boolean): Kind {
  if (role === "detour") return /^(?:0|false|no|)$/i.test(value) ? "nothing" : "elsewhere";
  if (role === "helper") return value === "" ? "nothing" : "elsewhere";
  if (role === "base") return baseKind(value, ports);
  const shape = tokenShape(value);
  if (shape === "complete") return "token";
  if (shape === "incomplete") return keyFault(value) === null ? "cut-token" : "nothing";
  // `export X=$(pass show x)` sets it, whatever it is; in a client's file it only says where to look.
  if (/^\$\(|^`/.test(value)) return shell ? "elsewhere" : "nothing";
  if (/^\$|^\{|^op:\/\/|^env:/i.test(value)) return "nothing";
  return keyFault(value) === null ? "elsewhere" : "nothing";
}

/** Another server of this machine, such as a local model, has no account that could be the wrong one. */
function baseKind(value: string, ports: readonly number[]): Kind {
  const url = URL.canParse(value) ? new URL(value) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return "nothing";
  if (!/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(url.hostname)) return "elsewhere";
  const port = url.port === "" ? (url.protocol === "http:" ? 80 : 443) : Number(url.port);
  return ports.includes(port) ? "ours" : "nothing";
}

function unquoted(text: string): string {
  return text.replace(/^["']|["']$/g, "").trim();
}

function isComment(text: string, from: number): boolean {
  return /^\s*(?:#|\/\/|;|<!--)/.test(text.slice(from, from + 100));
}

interface Line {
  readonly line: number;
  /** Where it begins. */
  readonly from: number;
}

/** The places come in order, so that no part of the text is counted twice. */
function lineCounter(text: string): (at: number) => Line {
  let line = 1;
  let from = 0;
  let next = text.indexOf("\n");
  return (at) => {
    while (next !== -1 && next < at) {
      line += 1;
      from = next + 1;
      next = text.indexOf("\n", from);
    }
    return { line, from };
  };
}
