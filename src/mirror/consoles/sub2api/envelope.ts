import { bodyOf, jsonOf, otherShape, saying } from "../answers.ts";
import type { ConsoleResponse } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { asObject, fieldAt, type JsonObject } from "../json.ts";
import { cleanAt } from "../texts.ts";

/** The `data` of `{"code":0,"message":"success","data":…}`. */
export function dataOf(answer: ConsoleResponse, about: string): JsonObject {
  const envelope = jsonOf(answer, about);
  const code = fieldAt(envelope, "code");
  if (typeof code !== "number" && typeof code !== "string") throw otherShape(about, "code");
  if (code !== 0) throw new ConsoleFault("failing", `refused ${about}${saying(answer)}`);
  const data = asObject(fieldAt(envelope, "data"));
  if (data === null) throw otherShape(about, "data");
  return data;
}

/** A page of rows is longer than this, and is not read through twice. */
const LONG = 50_000;

/** By the envelope's own word: the last one, should there be several. */
export function isSuccess(answer: ConsoleResponse): boolean {
  if (answer.status >= 400) return false;
  if (answer.text.length > LONG && /^\s*\{\s*"code"\s*:\s*0\s*[,}]/.test(answer.text)) return true;
  const body = bodyOf(answer);
  return body !== null && fieldAt(body, "code") === 0;
}

/**
 * The word for an error: what stands before an action says it as `code`, an action itself as `reason` beside a code that
 * is the status as a number.
 */
export function errorWord(answer: ConsoleResponse): string | null {
  const body = bodyOf(answer);
  return body === null ? null : (cleanAt(body, "reason") ?? cleanAt(body, "code"));
}
