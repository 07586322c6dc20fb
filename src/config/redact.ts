import { isPair, isScalar, isSeq, type Node, parseDocument, type Scalar, visit } from "yaml";
import { lineEnd } from "../core/lines.ts";
import type { Span } from "../core/spans.ts";
import { redactSecrets, SECRET_NAME } from "./problems.ts";

/**
 * The text of a valid config.yaml with its secrets hidden. What each value means is known there, however it is written, so
 * nothing else is hidden: a person decides by this text.
 */
export function redactValidConfig(text: string): string {
  const scalars: Span[] = [];
  const secrets: Span[] = [];
  // As readForEdit() parses it.
  const document = parseDocument(text, {
    schema: "failsafe",
    version: "1.2",
    uniqueKeys: false,
    logLevel: "error",
  });
  visit(document, (_key, node, path) => {
    if (isScalar(node)) scalars.push(spanOf(node));
    if (isPair(node) && isScalar(node.key))
      secrets.push(...secretsOf(text, String(node.key.value), node.value, path.some(isWebhooks)));
  });
  return redactSecrets(text, [...secrets, ...commentedSecrets(text, scalars)]);
}

const SECRET = /^(?:key|token|access_token|refresh_token|secret|password)$/;
/** As sources.ts reads them: in other letters they are the secret itself. A token in the file is only a hash. */
const REFERENCE = /^(?:env:|file:|keychain:|credential:)/;
const HASH = /^sha256:[0-9a-f]{64}$/i;

function secretsOf(text: string, name: string, value: unknown, isOfWebhook: boolean): Span[] {
  if (isSeq(value) && name === "command") return findArguments(value.items);
  if (!isScalar(value) || REFERENCE.test(String(value.value))) return [];
  if (SECRET.test(name) && !HASH.test(String(value.value))) return hideValue(text, value);
  return name === "url" && isOfWebhook ? [hideAddress(text, value)] : [];
}

/** Settings with a secret that are commented out, with the comments below that go on. */
function commentedSecrets(text: string, scalars: readonly Span[]): Span[] {
  const inValues = scalars.toSorted((one, other) => one.from - other.from);
  const secrets: Span[] = [];
  let next = 0;
  for (const { index, 0: name } of text.matchAll(SECRET_NAME)) {
    while ((inValues[next]?.to ?? text.length) <= index) next += 1;
    if ((inValues[next]?.from ?? text.length) <= index) continue;
    for (let from = index + name.length; from !== -1; ) {
      const to = lineEnd(text, from);
      secrets.push(trimmed(text, { from, to }));
      const below = COMMENT_BELOW.exec(text.slice(to));
      from = below === null ? -1 : to + below[0].length;
    }
  }
  return secrets.filter(({ from, to }) => from < to);
}

/** A line of a comment, up to its text, that is no other setting. */
const COMMENT_BELOW = /^\r?\n[^\S\n]*#(?![^\S\n]*["']?[\w.-]+["']?[^\S\n]*:(?:\s|$))/;

/** They may hold a secret; the program itself does not. */
function findArguments(items: readonly unknown[]): Span[] {
  return items.slice(1).flatMap((item) => (isScalar(item) ? [spanOf(item)] : []));
}

function isWebhooks(node: unknown): boolean {
  return isPair(node) && isScalar(node.key) && node.key.value === "webhooks";
}

/** The value, and the comment behind it, which may hold the one before. */
function hideValue(text: string, value: Scalar): Span[] {
  const hidden = trimmed(text, spanOf(value));
  const rest = text.slice(hidden.to, lineEnd(text, hidden.to));
  const comment = /^[^\S\n]+#/.exec(rest)?.[0];
  if (comment === undefined) return [hidden];
  return [hidden, trimmed(text, { from: hidden.to + comment.length, to: hidden.to + rest.length })];
}

/** What follows the host is a secret. An address that is written in another way is hidden whole. */
function hideAddress(text: string, value: Scalar): Span {
  const { from, to } = trimmed(text, spanOf(value));
  const host = /^(?<quote>["']?)https?:\/\/[^\s/?#"'\\]+(?:[/?#]|(?=["']?$))/i.exec(text.slice(from, to));
  const quote = host?.groups?.quote ?? "";
  return { from: from + (host?.[0].length ?? 0), to: to - quote.length };
}

/** Without spaces and line breaks around it. A block's last line break is no part of it. */
function trimmed(text: string, { from, to }: Span): Span {
  const part = text.slice(from, to);
  const start = from + part.length - part.trimStart().length;
  return { from: start, to: Math.max(start, from + part.trimEnd().length) };
}

function spanOf({ range }: Node): Span {
  const [from = 0, to = 0] = range ?? [];
  return { from, to };
}
