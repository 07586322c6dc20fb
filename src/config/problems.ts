import { withNext } from "../core/display.ts";
import { lineEnd, lineStart, nextLine } from "../core/lines.ts";
import { credentialSpans, redactCredentials } from "../core/redact.ts";
import { mergeSpans, type Span } from "../core/spans.ts";

/** Something wrong in config.yaml, described so that a person can correct it without a manual. */
export interface ConfigProblem {
  /** With an error the file is not used. */
  readonly severity: "error" | "warning";
  /** Such as tools.codex.key; empty for the file as a whole. */
  readonly path: string;
  /** From 1; 0 for a problem without a place in the text. */
  readonly line: number;
  readonly column: number;
  readonly message: string;
  /** What to write instead. */
  readonly hint: string | null;
  /** The source line and a caret below it. Whatever looks like a secret is hidden. */
  readonly excerpt: string | null;
}

/** A warning without a place in the text. */
export function warning(path: string, message: string, hint: string | null = null): ConfigProblem {
  return { severity: "warning", path, line: 0, column: 0, message, hint, excerpt: null };
}

/** One problem in one line, for the log. */
export function problemInLine({ message, hint }: ConfigProblem): string {
  return withNext({ problem: message, next: hint });
}

/** Without lines and columns, which would be those of a text that was never saved. */
export function describeProblems(problems: readonly ConfigProblem[]): string {
  return problems
    .map(({ path, message, hint }) => withNext({ problem: `${path}: ${message}`, next: hint }))
    .join("\n");
}

/** Problems for a terminal: where, what, the source line, and what to write instead. */
export function formatProblems(file: string, problems: readonly ConfigProblem[]): string {
  const lines: string[] = [];
  for (const { severity, path, line, column, message, hint, excerpt } of problems) {
    const kind = severity === "warning" ? "warning: " : "";
    const setting = path === "" ? "" : `${path}: `;
    const place = line > 0 ? `${file}:${line}:${column}: ` : `${file}: `;
    // A warning without a setting and a place is about keybearer's own files.
    const isAboutFile = line > 0 || setting !== "" || kind === "";
    lines.push(`${isAboutFile ? place : ""}${kind}${setting}${message}`);
    if (excerpt !== null) lines.push(...excerpt.split("\n").map((part) => `    ${part}`));
    if (hint !== null) lines.push(`    → ${hint}`);
  }
  return lines.join("\n");
}

/** A person reads no more than these, and a hostile file could cause millions. */
const MAX_PROBLEMS = 200;

/** A problem as it was found. It may repeat a secret of the text. */
interface Finding extends Pick<ConfigProblem, "severity" | "path" | "message" | "hint"> {
  /** An offset in the text; -1: the problem has no place. */
  readonly at: number;
}

/** Collects the problems of one text, with their places in it. */
export class Report {
  readonly #text: string;
  readonly #findings: Finding[] = [];
  /** Warnings and errors apart: too many warnings must not hide an error. */
  readonly #counts = { error: 0, warning: 0 };
  readonly #settings = new Set<string>();

  constructor(text: string) {
    this.#text = text;
  }

  /** `at` is an offset in the text; -1: the problem has no place. */
  error(at: number, path: string, message: string, hint: string | null = null): void {
    this.#add({ severity: "error", at, path, message, hint });
  }

  warn(at: number, path: string, message: string, hint: string | null = null): void {
    this.#add({ severity: "warning", at, path, message, hint });
  }

  #add(finding: Finding): void {
    this.#counts[finding.severity] += 1;
    if (this.#counts[finding.severity] <= MAX_PROBLEMS) this.#findings.push(finding);
  }

  /** There is a setting of this name, so a problem may name it: a broken quote can draw it into a secret's place. */
  noteSetting(name: string): void {
    this.#settings.add(name);
  }

  hasErrors(): boolean {
    return this.#counts.error > 0;
  }

  /** Whether there is an error at a path, or at one that begins like it. */
  hasErrorAt(path: string): boolean {
    return this.#findings.some((finding) => finding.severity === "error" && finding.path.startsWith(path));
  }

  /** What was found by now, without the secrets of the text. To be called when the whole text was read. */
  problems(): ConfigProblem[] {
    if (this.#findings.length === 0) return [];
    const secrets = new FileSecrets(this.#text, this.#settings);
    return this.#findings.map(({ severity, at, path, message, hint }) => {
      const before = this.#text.slice(0, Math.max(0, at));
      const start = lineStart(before, before.length);
      return {
        severity,
        path: secrets.removeFrom(redactCredentials(path)),
        line: at < 0 ? 0 : before.split("\n").length,
        column: at < 0 ? 0 : at - start + 1,
        message: secrets.removeFrom(message),
        hint: hint === null ? null : secrets.removeFrom(hint),
        excerpt: at < 0 ? null : this.#excerpt(secrets, start, at),
      };
    });
  }

  #excerpt({ hidden }: FileSecrets, start: number, at: number): string {
    const end = lineEnd(this.#text, start);
    return excerptAt(this.#text, { from: start, to: end }, Math.min(at, end), hidden);
  }
}

const MAX_EXCERPT_WIDTH = 100;
/** How much of a line is read on either side of the caret: a file may be one line of a megabyte. */
const EXCERPT_REACH = 400;

/** One line with its secrets hidden, and a caret below it. */
function excerptAt(text: string, line: Span, at: number, hidden: readonly Span[]): string {
  const end = Math.min(line.to, at + EXCERPT_REACH);
  let shown = "";
  let from = Math.max(line.from, at - EXCERPT_REACH);
  let caret = -1;
  const showUntil = (to: number) => {
    if (caret === -1 && at <= to) caret = shown.length + Math.max(0, at - from);
    shown += text.slice(from, to);
  };
  for (const span of hidden) {
    if (span.to <= from) continue;
    if (span.from >= end) break;
    showUntil(Math.max(from, span.from));
    if (caret === -1 && at < span.to) caret = shown.length;
    shown += "[hidden]";
    from = Math.min(end, span.to);
  }
  showUntil(end);
  if (caret === -1) caret = shown.length;
  const left = Math.max(0, caret - (MAX_EXCERPT_WIDTH - 20));
  const visible = printable(shown.slice(left, left + MAX_EXCERPT_WIDTH)).trimEnd();
  return `${visible}\n${" ".repeat(caret - left)}^`;
}

/** Replaces each character by one, so that the caret stays in place. Direction marks could overwrite the line. */
function printable(text: string): string {
  return text.replaceAll("\t", " ").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => "?".repeat(c.length));
}

/** A key has at least this many characters; shorter words in a secret's place are not searched for. */
const MIN_SECRET = 8;
/** This much of a key's beginning is hidden even where the rest was cut off. */
const MIN_BEGINNING = 12;

/** The secrets of one config.yaml. */
class FileSecrets {
  /** Where excerpts must not show the text. */
  readonly hidden: readonly Span[];
  /** By their first characters. */
  readonly #words = new Map<string, string[]>();

  /** @param settings names, which are not hidden in messages */
  constructor(text: string, settings: ReadonlySet<string>) {
    const spans = secretSpans(text);
    this.hidden = hiddenSpans(text, spans);
    const words = spans.flatMap(({ from, to }) => text.slice(from, to).split(/[\s"',{}[\]*&!]+/));
    for (const word of new Set(words)) {
      if (word.length < MIN_SECRET || settings.has(word.replace(/:$/, ""))) continue;
      const beginning = word.slice(0, MIN_SECRET);
      this.#words.set(beginning, [...(this.#words.get(beginning) ?? []), word]);
    }
  }

  /** Removes them from a message about the file. */
  removeFrom(message: string): string {
    if (this.#words.size === 0) return message;
    let shown = "";
    for (let at = 0; at < message.length; ) {
      const length = this.#lengthAt(message, at);
      shown += length > 0 ? "[hidden]" : message[at];
      at += Math.max(1, length);
    }
    return shown;
  }

  #lengthAt(message: string, at: number): number {
    let longest = 0;
    for (const word of this.#words.get(message.slice(at, at + MIN_SECRET)) ?? []) {
      let length = MIN_SECRET;
      while (length < word.length && word[length] === message[at + length]) length += 1;
      if (length === word.length || length >= MIN_BEGINNING) longest = Math.max(longest, length);
    }
    return longest;
  }
}

function hiddenSpans(text: string, secrets: readonly Span[] = secretSpans(text)): Span[] {
  return mergeSpans([...secrets, ...credentialSpans(text)]);
}

/** The text of a config.yaml with its secrets hidden, line for line. */
export function redactConfig(text: string): string {
  return hideSpans(text, hiddenSpans(text));
}

/** The same for a text of which it is known where its secrets are. Whatever else looks like one is hidden, too. */
export function redactSecrets(text: string, secrets: readonly Span[]): string {
  return hideSpans(text, hiddenSpans(text, [...secrets, ...addressSpans(text)]));
}

function hideSpans(text: string, spans: readonly Span[]): string {
  let shown = "";
  let end = 0;
  for (const { from, to } of spans) {
    shown += `${text.slice(end, from)}[hidden]`;
    end = to;
  }
  return shown + text.slice(end);
}

/** Settings whose value is a secret, and what people call them by mistake. */
export const SECRET_NAME =
  /(?<![\w-])["']?(?:(?:api[-_]?)?key|token|access[-_]?token|refresh[-_]?token|secret|pass?(?:w(?:or)?d)?)["']?[^\S\n]*(?:\r?\n[^\S\n]*)?:/gi;

/** Values of those settings that are no secret: a source, a variable, a token's hash, a command. */
const HASH = /["']?sha256:[0-9a-f]*["']?/.source;
const TOKEN_FIELD = `(?:name *: *["']?[\\w.-]{1,40}["']?|hash *: *${HASH}|created *: *["']?[\\d-]{1,10}["']?)[ ,]*`;
const TOKENS = `\\[(?:(?:${HASH}|\\{ *(?:${TOKEN_FIELD})+\\})[ ,]*)*\\]`;
const REFERENCE = new RegExp(
  `^(?:env:[A-Za-z_]\\w*|\\$\\{?[A-Za-z_]\\w*\\}?|file:\\S*|keychain:\\S*|sha256:[0-9a-f]*|${TOKENS})` +
    "(?<end>,?[^\\S\\n]*(?:[#\\n]|$)|[^\\S\\n]*[,}\\]])",
  "i",
);
const COMMAND = /^(?:\{\s*)?["']?command["']?\s*:/i;
const REFERENCE_REACH = 2000;

const SETTING = /^\s*["']?[\w.-]+["']?\s*:(?:\s|$)/;
const COMMENTED_SETTING = /^\s*#["']?[\w.-]+["']?\s*:(?:\s|$)/;

/**
 * Where the secrets of a config.yaml are, line by line. Searched in the text, because the line with a mistake is often the
 * one with the key, and then it is unknown where the value ends. So a value reaches to the end of its line, and over every
 * line below up to the next setting that is not indented deeper.
 */
function secretSpans(text: string): Span[] {
  const spans: Span[] = [];
  let covered = 0;
  for (const match of text.matchAll(SECRET_NAME)) {
    const from = match.index + match[0].length;
    // One inside another is indented deeper, so it ends no later.
    if (from < covered) continue;
    const column = match.index - lineStart(text, match.index);
    const end = referenceEnd(text, match.index, from);
    if (end === null) covered = addValue(text, from, column, spans);
    // A stray character or line break may have cut the secret off from the reference.
    else if (!isInBrackets(text, match.index)) addValue(text, end, column, spans);
  }
  return mergeSpans([...spans, ...addressSpans(text)]);
}

/** From `notify:` to the next setting at the margin. A misspelled `webhooks:` is below it, too. */
const NOTIFY = /(?<![\w-])(?:notify|webhooks)["']?[^\S\n]*:[\s\S]*?(?=\n["']?[\w.-]+["']?[^\S\n]*:|$)/g;
/** What follows the host of an address there is a secret, such as /services/… */
const ADDRESS_REST = /(?<=https?:\/\/[^\s/?#"']{1,255}[/?#])[^\s"']+/gi;

function addressSpans(text: string): Span[] {
  return [...text.matchAll(NOTIFY)].flatMap((notify) =>
    [...notify[0].matchAll(ADDRESS_REST)].map((rest) => {
      const from = notify.index + rest.index;
      return { from, to: from + rest[0].length };
    }),
  );
}

/** Where a value that is no secret ends; null where it may be one. */
function referenceEnd(text: string, name: number, from: number): number | null {
  const value = text.slice(from, from + REFERENCE_REACH);
  const trimmed = value.trimStart();
  if (COMMAND.test(trimmed)) return text.length;
  const match = REFERENCE.exec(trimmed);
  const end = match?.groups?.end ?? "";
  // A comma or a bracket ends a value only inside brackets; elsewhere it belongs to the value.
  if (match === null || (/[,}\]]$/.test(end) && !isInBrackets(text, name))) return null;
  return from + value.length - trimmed.length + match[0].length - end.length;
}

function isInBrackets(text: string, at: number): boolean {
  return /[{[,]/.test(text.slice(lineStart(text, at), at));
}

/** Adds the spans of one value and returns its end. */
function addValue(text: string, from: number, column: number, spans: Span[]): number {
  let end = lineEnd(text, from);
  addTrimmed(text, from, end, spans);
  for (let start = nextLine(text, end); start < text.length; start = nextLine(text, end)) {
    const stop = lineEnd(text, start);
    const line = text.slice(start, stop);
    const indent = line.length - line.trimStart().length;
    if (indent <= column && SETTING.test(line)) break;
    if (indent > column || !isCommentedSetting(line)) addTrimmed(text, start, stop, spans);
    end = stop;
  }
  return end;
}

/**
 * A setting behind a # is no part of the value above it, and does not end it. Taken for a secret, the examples in a new
 * config.yaml would be hidden from every hint that names the same.
 */
function isCommentedSetting(line: string): boolean {
  return COMMENTED_SETTING.test(line) && line.search(SECRET_NAME) === -1;
}

function addTrimmed(text: string, from: number, to: number, spans: Span[]): void {
  const value = text.slice(from, to);
  const start = from + value.length - value.trimStart().length;
  const end = from + value.trimEnd().length;
  if (start < end) spans.push({ from: start, to: end });
}
