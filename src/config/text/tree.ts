import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node } from "yaml";
import { redactCredentials } from "../../core/secret.ts";
import type { Problem } from "../problem.ts";
import { lexInBounds } from "./bounds.ts";
import { compose, type Fault } from "./compose.ts";
import { createExcerpts } from "./excerpt.ts";

/** config.yaml as plain structure: scalars are text until a field says what they should be. */
export type Tree = Scalar | List | Dict;

export interface Scalar {
  readonly kind: "scalar";
  readonly text: string;
  /** Written without quotes: `no` and `"no"` are different things to a person. */
  readonly plain: boolean;
  readonly at: number;
}

export interface List {
  readonly kind: "list";
  readonly items: readonly Tree[];
  readonly at: number;
}

export interface Dict {
  readonly kind: "dict";
  readonly entries: ReadonlyMap<string, Entry>;
  readonly at: number;
}

export interface Entry {
  readonly plain: boolean;
  readonly at: number;
  readonly value: Tree;
}

/** Gathers problems with their place in the text. */
export interface Report {
  error(at: number, path: string, message: string, hint?: string | null): void;
  warn(at: number, path: string, message: string, hint?: string | null): void;
  readonly problems: readonly Problem[];
}

/** Beyond these nobody reads on, and a hostile file could make millions. */
const MOST_PROBLEMS = 200;
const MOST_SYNTAX_PROBLEMS = 20;

export function createReport(text: string): Report {
  const lines = new LineCounter();
  lines.addNewLine(0);
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) lines.addNewLine(at + 1);
  const { excerpt, clean } = createExcerpts(text, lines.lineStarts);
  const problems: Problem[] = [];
  const counts = { error: 0, warning: 0 };
  const add =
    (severity: Problem["severity"]) => (at: number, path: string, message: string, hint?: string | null) => {
      // Counted apart: a warning too many must not push out the error that keeps a file from being used.
      counts[severity] += 1;
      if (counts[severity] > MOST_PROBLEMS) return;
      const place = at < 0 ? { line: 0, col: 0 } : lines.linePos(at);
      problems.push({
        severity,
        path: clean(redactCredentials(path)),
        line: place.line,
        column: place.col,
        message: clean(message),
        hint: hint ? clean(hint) : null,
        excerpt: place.line > 0 ? excerpt(place.line, place.col) : null,
      });
    };
  return { error: add("error"), warn: add("warning"), problems };
}

/** The text as a tree, or null where it cannot be one; what is wrong goes to the report. */
export function readTree(text: string, report: Report): Dict | null {
  const lexed = lexInBounds(text);
  if (!lexed.ok) {
    report.error(-1, "", lexed.why, "start again from config.example.yaml");
    return null;
  }
  const { document, faults } = compose(lexed.lexemes, text.length, MOST_SYNTAX_PROBLEMS);
  for (const fault of faults) report.error(fault.at, "", ...inWords(fault, text));
  if (document === null) return null;
  if (document.contents === null) {
    report.error(-1, "", "the file is empty", "start from config.example.yaml");
    return null;
  }
  const tree = convert(document.contents as Node, "", report);
  if (tree === null) return null;
  if (tree.kind !== "dict") {
    report.error(tree.at, "", "the file must be a list of settings such as `gateway: https://…`");
    return null;
  }
  return tree;
}

function inWords({ at, code, message }: Fault, text: string): [string, string | null] {
  const word = /^[^\s,\]}#]*/.exec(text.slice(at, at + 60))?.[0] ?? "";
  switch (code) {
    case "BAD_ALIAS":
    case "BAD_SCALAR_START":
      return [
        `yaml gives ${word.slice(0, 1)} a meaning of its own here`,
        `quote it: "${redactCredentials(word)}"`,
      ];
    case "TAB_AS_INDENT":
      return ["a tab is used as indentation", "indent with spaces"];
    case "MULTIPLE_DOCS":
      return ["there is a second document after `---`", "keep one document in the file"];
    case "BLOCK_AS_IMPLICIT_KEY":
      return [
        "two settings stand on one line",
        'put the second on a line of its own, or quote a value with ": " in it',
      ];
    default:
      return [redactCredentials(lowerFirst(message)), null];
  }
}

function lowerFirst(text: string): string {
  return text.slice(0, 1).toLowerCase() + text.slice(1);
}

function convert(node: Node, path: string, report: Report): Tree | null {
  const at = node.range?.[0] ?? 0;
  if (isAlias(node)) {
    report.error(
      at,
      path,
      "aliases are not used here",
      `if you mean the text, quote it: "*${redactCredentials(node.source)}"`,
    );
    return null;
  }
  const anchor = "anchor" in node ? node.anchor : undefined;
  if (anchor !== undefined)
    report.error(at, path, "anchors are not used here", "write the value out where it is used");
  if (node.tag !== undefined)
    report.error(at, path, "tags are not used here", `take out ${redactCredentials(node.tag)}`);
  if (isScalar(node)) {
    return { kind: "scalar", text: String(node.value ?? ""), plain: node.type === "PLAIN", at };
  }
  if (isSeq(node)) {
    const items = node.items.map((item, index) => convert(item as Node, `${path}[${index}]`, report));
    return { kind: "list", items: items.filter((item) => item !== null), at };
  }
  if (!isMap(node)) return null;
  const entries = new Map<string, Entry>();
  for (const pair of node.items) {
    const key = pair.key as Node;
    const keyAt = key.range?.[0] ?? at;
    if (!isScalar(key) || key.anchor !== undefined || key.tag !== undefined) {
      report.error(keyAt, path, "a setting's name must be plain text");
      continue;
    }
    const name = String(key.value);
    const inner = joinPath(path, name);
    if (RESERVED.test(name)) {
      report.error(keyAt, inner, `${name} cannot be a name here`);
    } else if (entries.has(name)) {
      report.error(keyAt, inner, `${redactCredentials(name)} is set twice`, "keep one of the two");
    } else {
      const value =
        pair.value === null
          ? ({ kind: "scalar", text: "", plain: true, at: keyAt } as const)
          : convert(pair.value as Node, inner, report);
      if (value !== null) entries.set(name, { plain: key.type === "PLAIN", at: keyAt, value });
    }
  }
  return { kind: "dict", entries, at };
}

const RESERVED = /^(?:__proto__|constructor|prototype)$/;

/** The last name of a path, as it was joined: a name may have dots in it. */
export function lastName(path: string): string {
  return /(?:^|\.)("(?:[^"\\]|\\.)*"|[^."]*)$/.exec(path)?.[1] ?? path;
}

export function joinPath(path: string, name: string): string {
  const shown = /^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name.slice(0, 60));
  return path === "" ? shown : `${path}.${shown}`;
}
