import { credentialSpans } from "../../core/secret.ts";
import { mergeSpans, type Span } from "../../core/spans.ts";
import { secretPlaces } from "./secret-spans.ts";

const WIDEST = 100;
/** How much of a line is looked at on either side of the caret: a file may be one line of a megabyte. */
const REACH = 400;
/** A key has eight characters at least; a shorter word is not looked for where nobody knows what it is. */
const SHORTEST = 8;
/** So much of a key's beginning is hidden even where the rest of it was cut off. */
const TELLING = 12;

/** Shows parts of config.yaml to people and logs, without the secrets in it. */
export interface Excerpts {
  /** One source line with a caret below it; null where there is no such line. */
  excerpt(line: number, column: number): string | null;
  /** Words about the file, with whatever stands in a secret's place taken out of them. */
  clean(words: string): string;
}

/** `lineStarts` is where each line of the text begins. */
export function createExcerpts(text: string, lineStarts: readonly number[]): Excerpts {
  let found: { readonly hidden: readonly Span[]; readonly beginnings: Beginnings } | null = null;
  // Looked for once, and only when there is something to say.
  const secrets = () => {
    if (found === null) {
      const paths = secretPlaces(text);
      found = {
        hidden: mergeSpans([...paths, ...credentialSpans(text)]),
        beginnings: beginningsOf(paths.map(({ from, to }) => text.slice(from, to))),
      };
    }
    return found;
  };
  return {
    excerpt(line, column) {
      const start = lineStarts[line - 1];
      if (start === undefined) return null;
      const next = text.indexOf("\n", start);
      const stop = next === -1 ? text.length : next;
      const end = stop > start && text[stop - 1] === "\r" ? stop - 1 : stop;
      return withCaret(text, { from: start, to: end }, Math.min(start + column - 1, end), secrets().hidden);
    },
    clean: (words) => without(words, secrets().beginnings),
  };
}

/** The line is hidden by place, so that a key the caret points into is not shown by half. */
function withCaret(
  text: string,
  { from: start, to: end }: Span,
  at: number,
  hidden: readonly Span[],
): string {
  const last = Math.min(end, at + REACH);
  let shown = "";
  let from = Math.max(start, at - REACH);
  let caret = -1;
  const pass = (to: number) => {
    if (caret === -1 && at <= to) caret = shown.length + Math.max(0, at - from);
    shown += text.slice(from, to);
  };
  for (const span of hidden) {
    if (span.to <= from) continue;
    if (span.from >= last) break;
    pass(Math.max(from, span.from));
    if (caret === -1 && at < span.to) caret = shown.length;
    shown += "[hidden]";
    from = Math.min(last, span.to);
  }
  pass(last);
  if (caret === -1) caret = shown.length;
  const left = caret > WIDEST - 20 ? caret - (WIDEST - 20) : 0;
  const line = printable(shown.slice(left, left + WIDEST)).trimEnd();
  return `${line}\n${" ".repeat(caret - left)}^`;
}

/** One character for one, so that the caret keeps its place. Direction marks could paint over the line. */
function printable(text: string): string {
  return text.replaceAll("\t", " ").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => "?".repeat(c.length));
}

/** Secrets by their first characters. */
type Beginnings = ReadonlyMap<string, readonly string[]>;

function beginningsOf(values: readonly string[]): Beginnings {
  const beginnings = new Map<string, string[]>();
  for (const word of new Set(values.flatMap((value) => value.split(/[\s"',{}[\]*&!]+/)))) {
    if (word.length < SHORTEST || ORDINARY.test(word)) continue;
    const beginning = word.slice(0, SHORTEST);
    const known = beginnings.get(beginning);
    if (known === undefined) beginnings.set(beginning, [word]);
    else known.push(word);
  }
  return beginnings;
}

/** Settings' own names, where a broken quote drew them into a secret's place. */
const ORDINARY =
  /^(?:command|commands|gateways?|messages_url|base_url|key_header|websockets|timeouts|first_byte|multiplier|enabled|schedule|token_in_url|allow_origins|requests|concurrent|ask_usage|estimate|keys_elsewhere|watch_only|dashboard|cache_read|cache_write|password|access_token|refresh_token):?$/;

function without(words: string, beginnings: Beginnings): string {
  if (beginnings.size === 0) return words;
  let shown = "";
  let at = 0;
  while (at < words.length) {
    const length = secretLength(words, at, beginnings);
    shown += length > 0 ? "[hidden]" : words[at];
    at += Math.max(1, length);
  }
  return shown;
}

/** How much of a secret stands in the words at this place. */
function secretLength(words: string, at: number, beginnings: Beginnings): number {
  let longest = 0;
  for (const secret of beginnings.get(words.slice(at, at + SHORTEST)) ?? []) {
    let length = SHORTEST;
    while (length < secret.length && secret[length] === words[at + length]) length += 1;
    if (length === secret.length || length >= TELLING) longest = Math.max(longest, length);
  }
  return longest;
}
