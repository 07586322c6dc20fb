import { createHash } from "node:crypto";
import { fieldAt, type JsonObject } from "../json.ts";

/** The row's own `id` is missing on purpose: for whoever is no admin it is overwritten with the position in the list. */
const TELLING = [
  "request_id",
  "type",
  "quota",
  "created_at",
  "token_id",
  "token_name",
  "model_name",
  "prompt_tokens",
  "completion_tokens",
] as const;

/** The same for the same row, wherever on whichever page it stands. */
export function printOf(raw: JsonObject): string {
  const told = TELLING.map((name) => fieldAt(raw, name) ?? null);
  return createHash("sha256").update(JSON.stringify(told)).digest("hex").slice(0, 24);
}

/**
 * Names the rows of one stretch of time. Without a request id two requests can look alike: they are told apart by their
 * number, which is the same in every walk, because rows that look alike are of one second and a stretch has whole seconds.
 */
export function createNaming(): (raw: JsonObject, print: string) => string {
  const alike = new Map<string, number>();
  return (raw, print) => {
    if (hasRequestId(raw)) return print;
    const number = (alike.get(print) ?? 0) + 1;
    alike.set(print, number);
    return `${print}#${number}`;
  };
}

function hasRequestId(raw: JsonObject): boolean {
  const id = fieldAt(raw, "request_id");
  return typeof id === "string" && id !== "";
}

/**
 * How many rows at the head of a page were at the end of the one before: a row that is written while pages are read
 * pushes all others on by one. Counted by their prints, because a row that is read twice would look like a second one.
 * @param most so many were written meanwhile: where that is known, rows that look alike on both sides of a border stay two
 */
export function repeatsOf(before: readonly string[], page: readonly string[], most: number): number {
  for (let count = Math.min(before.length, page.length, most); count > 0; count -= 1) {
    const start = before.length - count;
    if (page.slice(0, count).every((print, at) => print === before[start + at])) return count;
  }
  return 0;
}
