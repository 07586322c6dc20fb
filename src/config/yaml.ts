import { Composer, type Document, isAlias, isScalar, isSeq, Lexer, type ParsedNode, Parser } from "yaml";
import { redactCredentials } from "../core/redact.ts";
import type { Report } from "./problems.ts";
import { explainParseError, LEXER_MARKS, type ParseError } from "./syntax-problem.ts";

/** config.yaml's text as plain structure. Scalars stay texts until a field says what they mean. */
export type Tree = Scalar | List | Dict;

interface Scalar {
  readonly kind: "scalar";
  readonly text: string;
  /** Without quotes: `no` and `"no"` are different things to a person. */
  readonly plain: boolean;
  readonly at: number;
}

interface List {
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
  /** Of the name. */
  readonly plain: boolean;
  readonly at: number;
  readonly value: Tree;
}

/** A hundred thousand brackets are a hundred thousand errors, each with a stack trace. */
const MAX_SYNTAX_PROBLEMS = 20;

/** The text as a tree; null if it is none, and the report says why. */
export function readTree(text: string, report: Report): Dict | null {
  const lexed = lexInBounds(text);
  if (!lexed.ok) {
    report.error(-1, "", lexed.problem, "start again from config.example.yaml");
    return null;
  }
  const { document, error } = compose(lexed.lexemes, text.length);
  if (error !== null) {
    const { at, problem, next } = explainParseError(error, text, lexed.lexemes);
    report.error(at, "", problem, next);
  }
  if (document === null) return null;
  if (document.contents === null) {
    report.error(-1, "", "the file is empty", "start from config.example.yaml");
    return null;
  }
  const tree = toTree(document.contents, "", report, text);
  if (tree === null || tree.kind === "dict") return tree;
  report.error(tree.at, "", "the file must be a list of settings such as `gateway: https://…`");
  return null;
}

/** A file with a thousand tools stays far below these. */
export const MAX_BYTES = 1_000_000;
const MAX_TOKENS = 100_000;
const MAX_DEPTH = 32;

type Lexed =
  | { readonly ok: true; readonly lexemes: readonly string[] }
  | { readonly ok: false; readonly problem: string };

/**
 * The text's tokens, or why it must not be parsed. yaml's composer recurses, and near the end of the stack V8 can abort
 * the process while it compiles a regular expression, which no catch block sees (a thousand `[` do it). The lexer does not
 * recurse, so the depth is measured on its tokens first.
 */
export function lexInBounds(text: string): Lexed {
  if (Buffer.byteLength(text) > MAX_BYTES) return { ok: false, problem: "the file is larger than 1 MB" };
  const lexemes: string[] = [];
  const blockColumns: number[] = [];
  let flowDepth = 0;
  let column = 0;
  let isLineStart = true;
  for (const token of new Lexer().lex(text)) {
    lexemes.push(token);
    if (lexemes.length > MAX_TOKENS)
      return { ok: false, problem: "the file has more settings than keybearer accepts" };
    if (LEXER_MARKS.includes(token)) continue;
    if (token === "\n" || token === "\r\n") {
      isLineStart = true;
      column = 0;
      continue;
    }
    if (token === "[" || token === "{") flowDepth += 1;
    else if ((token === "]" || token === "}") && flowDepth > 0) flowDepth -= 1;
    // Every `-` and `?` opens a level at its own column: `- - - x` is three deep.
    const opensLevel = token === "-" || token === "?";
    if (opensLevel || (isLineStart && token.trim() !== "" && !token.startsWith("#"))) {
      while (blockColumns.length > 0 && (blockColumns.at(-1) ?? 0) >= column) blockColumns.pop();
      blockColumns.push(column);
      isLineStart = opensLevel;
    }
    column += token.length;
    if (flowDepth + blockColumns.length > MAX_DEPTH)
      return { ok: false, problem: "the file is nested too deeply" };
  }
  return { ok: true, lexemes };
}

export interface Composed {
  /** null if there is an error. */
  readonly document: Document.Parsed | null;
  /** Only the first one: after it the parser has lost its way, and most others follow from it. */
  readonly error: ParseError | null;
}

/** Like yaml's parseDocument, but it stops after some errors and reports a second document. */
export function compose(lexemes: readonly string[], length: number): Composed {
  const errors: ParseError[] = [];
  // failsafe: every scalar is a text, so that `no`, `1e5` and `~` are what the person typed. uniqueKeys is quadratic.
  const composer = new Composer({ schema: "failsafe", version: "1.2", uniqueKeys: false });
  let document: Document.Parsed | null = null;
  for (const next of composer.compose(boundedTokens(lexemes), true, length)) {
    errors.push(...next.errors.map(({ pos, code, message }) => ({ at: pos[0], code, message })));
    if (document !== null) {
      errors.push({ at: next.range[0], code: "MULTIPLE_DOCS", message: "there is a second document" });
      break;
    }
    document = next;
  }
  const [error = null] = errors.toSorted((one, other) => one.at - other.at);
  return { document: error === null ? document : null, error };
}

/** The parser returns what it cannot place as tokens of type error. */
function* boundedTokens(lexemes: readonly string[]) {
  const parser = new Parser();
  let errors = 0;
  for (const lexeme of lexemes) {
    for (const token of parser.next(lexeme)) {
      if (token.type === "error") errors += 1;
      if (errors > MAX_SYNTAX_PROBLEMS) return;
      yield token;
    }
  }
  yield* parser.end();
}

const RESERVED = /^(?:__proto__|constructor|prototype)$/;

function toTree(node: ParsedNode, path: string, report: Report, text: string): Tree | null {
  const [at] = node.range;
  if (isAlias(node)) {
    const hint = path.endsWith('."<<"')
      ? "write these settings out where they are used"
      : `if you mean the text, quote it: "*${redactCredentials(node.source)}"`;
    report.error(at, path, "keybearer does not support aliases", hint);
    return null;
  }
  // yaml's range begins behind them.
  const before = text.slice(Math.max(0, at - 200), at);
  if (node.anchor !== undefined) {
    const place = at - before.length + Math.max(0, before.lastIndexOf("&"));
    report.error(place, path, "keybearer does not support anchors", "write the value where it is used");
  }
  if (node.tag !== undefined) {
    const tag = /![^\s,[\]{}]*(?=\s[^!]*$)/.exec(before);
    const place = tag === null ? at : at - before.length + tag.index;
    report.error(
      place,
      path,
      "keybearer does not support tags",
      `remove ${redactCredentials(tag?.[0] ?? node.tag)}`,
    );
  }
  if (isScalar(node))
    return { kind: "scalar", text: String(node.value ?? ""), plain: node.type === "PLAIN", at };
  if (isSeq(node)) {
    const items = node.items.map((item, index) => toTree(item, `${path}[${index}]`, report, text));
    return { kind: "list", items: items.filter((item) => item !== null), at };
  }
  const entries = new Map<string, Entry>();
  for (const { key, value } of node.items) {
    const [keyAt] = key.range;
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
      const nothing: Scalar = { kind: "scalar", text: "", plain: true, at: keyAt };
      const tree = value === null ? nothing : toTree(value, inner, report, text);
      if (tree !== null) entries.set(name, { plain: key.type === "PLAIN", at: keyAt, value: tree });
    }
  }
  return { kind: "dict", entries, at };
}

/** A path for messages. Names with other characters are quoted. */
export function joinPath(path: string, name: string): string {
  const shown = /^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name.slice(0, 60));
  return path === "" ? shown : `${path}.${shown}`;
}

/** The last name of a joined path. */
export function lastName(path: string): string {
  return /(?:^|\.)("(?:[^"\\]|\\.)*"|[^."]*)$/.exec(path)?.[1] ?? path;
}
