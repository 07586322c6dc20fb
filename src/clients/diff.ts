import { formatPatch, OMIT_HEADERS, structuredPatch } from "diff";
import { applyEdits, format } from "jsonc-parser";
import { redactCredentials } from "../core/redact.ts";

/** The diff's work grows with the square of this number. */
const MAX_CHANGED_LINES = 10_000;

/**
 * A unified diff without secrets; empty: nothing differs. Tokens keep their first characters. null stands for a file that
 * does not exist. Lines may contain tabs.
 */
export function redactedDiff(file: string, before: string | null, after: string | null): string[] {
  const header = [
    `--- ${before === null ? "/dev/null" : file}`,
    `+++ ${after === null ? "/dev/null" : file}`,
  ];
  const changes = changedLines(file, before ?? "", after ?? "");
  if (changes === null) return [...header, `(more than ${MAX_CHANGED_LINES} lines differ)`];
  if (changes.length === 0) return [];
  if (!/\.jsonc?$/.test(file) || !changes.some(hasSeveralKeys))
    return [...header, ...changes.map(redactLine)];
  const expanded = changedLines(file, expand(before ?? ""), expand(after ?? "")) ?? changes;
  const note = "(several settings share a line there; shown one per line)";
  return [...header, note, ...expanded.map(redactLine)];
}

/** null: too many to compare. */
function changedLines(file: string, before: string, after: string): readonly string[] | null {
  const patch = structuredPatch(file, file, before, after, undefined, undefined, {
    context: 3,
    maxEditLength: MAX_CHANGED_LINES,
  });
  if (patch === undefined) return null;
  if (patch.hunks.length === 0) return [];
  const lines = formatPatch(patch, OMIT_HEADERS).replace(/\n$/, "").split("\n");
  return lines.map((line) => line.replace(/\r$/, ""));
}

function hasSeveralKeys(line: string): boolean {
  return /^[+-]/.test(line) && (line.match(/"(?:[^"\\]|\\.)*"\s*:/g) ?? []).length > 1;
}

function expand(json: string): string {
  return applyEdits(json, format(json, undefined, { insertSpaces: true, tabSize: 2, eol: "\n" }));
}

const TOKEN = /\bkb_([A-Za-z0-9_-]{3})[A-Za-z0-9_-]{4,}/g;
/** A name that suggests a secret, and the string after it. */
const NAMED_SECRET =
  /(["']?[\w.-]*(?:key|token|secret|passw|auth|credential|headers?)[\w.-]*["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"?|'[^']*'?)/gi;

function redactLine(line: string): string {
  const shortTokens = line.replace(TOKEN, "kb_$1…");
  const redacted = shortTokens.replace(NAMED_SECRET, (whole, name: string, value: string) => {
    const isShortened = /^["']kb_.{3}…["']$/.test(value);
    const isEmpty = value.length <= 2;
    // env_key holds the name of a variable.
    if (isShortened || isEmpty || /^["']?env_key\b/.test(name)) return whole;
    const quote = value.charAt(0);
    return `${name}${quote}[hidden]${quote}`;
  });
  // A shortened token shows its beginning. With what stands before it, it could look like one long credential.
  return redacted
    .split(SHORT_TOKEN)
    .map((part) => (SHORT_TOKEN.test(part) ? part : redactAssignments(part)))
    .join("");
}

const SHORT_TOKEN = /(kb_[A-Za-z0-9_-]{3}…)/;
/** OPENAI_API_KEY=value, as shells and .env files have it. */
const ASSIGNMENT = /(?<=^[ +-]?|\s)([A-Z][A-Z_]*=)(\S*)/g;

/** The name of a variable stays, also where it and the value look like one long credential. */
function redactAssignments(text: string): string {
  const shown = text.replace(ASSIGNMENT, (whole, name: string) =>
    redactCredentials(whole) === whole ? whole : `${name}${HIDDEN}`,
  );
  return shown
    .split(SHOWN)
    .map((part) => (SHOWN.test(part) ? part : redactCredentials(part)))
    .join("");
}

const HIDDEN = "[hidden]";
const SHOWN = /((?<=^[ +-]?|\s)[A-Z][A-Z_]*=\[hidden\])/;
