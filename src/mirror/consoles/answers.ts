import type { ConsoleResponse } from "./console.ts";
import { ConsoleFault } from "./console.ts";
import { asObject, type JsonObject, listAt, objectAt, textAt, wholeAt } from "./json.ts";
import { cleanAt } from "./texts.ts";

/** A console that says who may not: what that means is for its kind to say. */
export interface Denial {
  readonly status: 401 | 403;
  /** The console's own body; null: none that could be read. */
  readonly body: JsonObject | null;
}

/** Looked at before jsonOf, which takes every denial for an ended login. */
export function denialOf(answer: ConsoleResponse): Denial | null {
  const { status } = answer;
  if (status !== 401 && status !== 403) return null;
  // A wall in front of the console, which wants a browser, says nothing of the login.
  return status === 403 && isWebPage(answer) ? null : { status, body: bodyOf(answer) };
}

/**
 * The object a console answered with; a ConsoleFault for everything else.
 * @param about what was asked for, for words: `the usage log`
 */
export function jsonOf(answer: ConsoleResponse, about: string): JsonObject {
  const { status, text } = answer;
  const retryAfter = retryAfterOf(answer);
  if (status === 429)
    throw new ConsoleFault("rate-limited", "answered that it is asked too often", retryAfter);
  if (status >= 500) throw new ConsoleFault("failing", `answered ${status}${saying(answer)}`, retryAfter);
  if (status >= 300 && status < 400) {
    throw new ConsoleFault("not-a-console", `answered ${about} with a redirect: is the url right?`);
  }
  if (isWebPage(answer)) throw webPage(status, about);
  if (status === 401 || status === 403) {
    throw new ConsoleFault("login-needed", `answered ${status}${saying(answer)}`);
  }
  if (text.trim() === "") throw new ConsoleFault("not-a-console", `answered ${about} with nothing`);
  const value = parsed(text);
  if (value === undefined) {
    throw new ConsoleFault("not-a-console", `answered ${about} with something that is no JSON`);
  }
  if (status === 404) throw new ConsoleFault("other-shape", `does not know ${about} (404)`);
  if (status >= 400) throw new ConsoleFault("failing", `answered ${status}${saying(answer)}`);
  const object = asObject(value);
  if (object === null) throw new ConsoleFault("other-shape", `answered ${about} with no object`);
  return object;
}

/** The object in an answer of whatever status; null where there is none. */
export function bodyOf({ text }: ConsoleResponse): JsonObject | null {
  return asObject(parsed(text));
}

/** What the console says of an error, cleaned and short, to be put behind our own words; or nothing. */
export function saying(answer: ConsoleResponse): string {
  const body = bodyOf(answer);
  if (body === null) return "";
  const error = objectAt(body, "error");
  const said =
    cleanAt(body, "message") ?? (error === null ? cleanAt(body, "error") : cleanAt(error, "message"));
  return said === null ? "" : `: ${said}`;
}

/** Seconds; null where the console names no time. */
export function retryAfterOf({ headers }: ConsoleResponse): number | null {
  const wanted = headers["retry-after"];
  if (typeof wanted !== "string") return null;
  if (/^\s*\d{1,9}\s*$/.test(wanted)) return Math.min(Number(wanted), MOST_WAIT_S);
  // RFC 9110 10.2.3 also allows a date, which is one of the console's clock: only its own Date says how far off it is.
  const until = Date.parse(wanted) - Date.parse(typeof headers.date === "string" ? headers.date : "");
  return Number.isNaN(until) ? null : Math.min(Math.max(0, Math.ceil(until / 1000)), MOST_WAIT_S);
}

/** A console that asks for more is asked again after a day anyway. */
const MOST_WAIT_S = 24 * 3600;

/** The console's envelope is there, but a field in it is not, or is of another type. */
export function otherShape(about: string, name: string): ConsoleFault {
  return new ConsoleFault("other-shape", `answered ${about} without a usable "${name}"`);
}

export function needObject(object: JsonObject, name: string, about: string): JsonObject {
  return needed(objectAt(object, name), name, about);
}

export function needList(object: JsonObject, name: string, about: string): readonly unknown[] {
  return needed(listAt(object, name), name, about);
}

export function needText(object: JsonObject, name: string, about: string): string {
  return needed(textAt(object, name), name, about);
}

export function needWhole(object: JsonObject, name: string, about: string): number {
  return needed(wholeAt(object, name), name, about);
}

function needed<T>(value: T | null, name: string, about: string): T {
  if (value === null) throw otherShape(about, name);
  return value;
}

/** By its beginning too: wrong addresses are answered by a console's own web pages, some without a type. */
function isWebPage({ headers, text }: ConsoleResponse): boolean {
  const type = headers["content-type"];
  return (
    (typeof type === "string" && /^\s*text\/html\b/i.test(type)) || /^\s*<(?:!|\w)/.test(text.slice(0, 200))
  );
}

function webPage(status: number, about: string): ConsoleFault {
  return status === 403
    ? new ConsoleFault(
        "not-a-console",
        "answered 403 with a web page: something in front of it wants a browser",
      )
    : new ConsoleFault("not-a-console", `answered ${about} with a web page: is the url right?`);
}

/** undefined: no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
