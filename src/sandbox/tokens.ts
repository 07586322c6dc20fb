import { isObject } from "./json.ts";

/** About four characters a token, as an English text has with the tokenizers in use. */
export function countTokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN);
}

export const CHARACTERS_PER_TOKEN = 4;

/** Members that hold a picture, a file or a seal: not text, and not billed as text. */
const NOT_TEXT = ["data", "image_url", "file_data", "file_url", "url", "signature", "encrypted_content"];
/** Members that name rather than say. */
const STRUCTURE = [
  "type",
  "role",
  "id",
  "tool_use_id",
  "tool_call_id",
  "call_id",
  "cache_control",
  "mimeType",
  "media_type",
];

/**
 * All the text in the parts of a request, in the order in which the model would read it. It walks with a list of its
 * own instead of calling itself, because the depth of the JSON is the caller's choice.
 */
export function textOf(...parts: readonly unknown[]): string {
  const found: string[] = [];
  const left: unknown[] = [...parts].reverse();
  while (left.length > 0) {
    const part = left.pop();
    if (typeof part === "string") found.push(part);
    else if (Array.isArray(part)) for (let i = part.length - 1; i >= 0; i--) left.push(part[i]);
    else if (isObject(part)) {
      const members = Object.entries(part).filter(
        ([name]) => !NOT_TEXT.includes(name) && !STRUCTURE.includes(name),
      );
      for (const [, value] of members.reverse()) left.push(value);
    }
  }
  return found.join("\n");
}

/**
 * What the person said last: the last piece of text of the last message of theirs. Coding tools put their reminders
 * into earlier pieces of the same message.
 */
export function lastUserText(messages: unknown, contentName: "content" | "parts" = "content"): string {
  if (typeof messages === "string") return messages;
  if (!Array.isArray(messages)) return "";
  const last: unknown = messages.findLast(
    (each: unknown) => typeof each === "string" || (isObject(each) && (each.role ?? "user") === "user"),
  );
  if (typeof last === "string") return last;
  const content = isObject(last) ? last[contentName] : undefined;
  if (typeof content === "string") return content;
  const text: unknown = Array.isArray(content)
    ? content.findLast((part: unknown) => isObject(part) && typeof part.text === "string")
    : undefined;
  return isObject(text) ? String(text.text) : "";
}
