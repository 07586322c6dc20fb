import type { IncomingMessage } from "node:http";
import { HttpError } from "../core/errors.ts";
import { isObject } from "../core/json.ts";
import { readWhole } from "../core/read-whole.ts";
import { withTimeout } from "../core/timeout.ts";
import type { Kind } from "../limits/counters.ts";
import type { ShownAlarm } from "../mirror/mirror.ts";

/* How the names and bodies of requests are read and checked, of the command line and of the dashboard's page. */

const MAX_BODY_BYTES = 64 * 1024;
const BODY_TIMEOUT_MS = 10_000;

/** Throws an HttpError. */
export async function readJson(req: IncomingMessage, limit = MAX_BODY_BYTES): Promise<unknown> {
  const reading = readWhole(req, limit, true).catch(() => {
    throw new HttpError(400, "the request was cut off");
  });
  const text = await withTimeout(reading, BODY_TIMEOUT_MS, undefined);
  if (text === undefined) throw new HttpError(408, "the request did not arrive within 10 s");
  if (text === null) throw new HttpError(413, `the request is larger than ${limit / 1024} KB`);
  try {
    return JSON.parse(text);
  } catch {
    throw new HttpError(400, "the body is not JSON");
  }
}

/** The route of an address, such as GET /models/:name, and that name. Throws an HttpError. */
export function parseRoute(method: string | undefined, path: string): { route: string; name: string } {
  const [, base = "", encoded = ""] = /^((?:\/api)?\/[a-z]+)(?:\/([^/?]+))?$/.exec(path) ?? [];
  try {
    const name = decodeURIComponent(encoded);
    return { route: `${method} ${base}${encoded === "" ? "" : "/:name"}`, name };
  } catch {
    throw new HttpError(400, "the name in the address is not encoded as UTF-8");
  }
}

/** Whether it is an object with exactly these fields: a misspelled field must not count as a missing one. */
export function hasOnly(body: unknown, fields: readonly string[]): body is Record<string, unknown> {
  if (!isObject(body)) return false;
  return Object.keys(body).length === fields.length && fields.every((field) => Object.hasOwn(body, field));
}

export function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

export function isTextOrNull(value: unknown): value is string | null {
  return value === null || isText(value);
}

export function isPositive(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || (typeof value === "number" && Number.isFinite(value));
}

export function isKind(value: unknown): value is Kind {
  return value === "requests" || value === "tokens" || value === "spend";
}

/** As requests can have it: see proxy/loggable.ts and limits/sessions.ts. */
export function isSession(value: unknown): value is string {
  return typeof value === "string" && /^[\w.:@+/-]{1,100}$/.test(value);
}

export function isShownAlarm(body: unknown): body is ShownAlarm & Record<string, unknown> {
  if (!hasOnly(body, ["gateway", "key", "certain", "last_at", "count"])) return false;
  const { gateway, key, certain, last_at, count } = body;
  const isCertainty = certain === null || typeof certain === "boolean";
  return (
    isTextOrNull(gateway) &&
    isTextOrNull(key) &&
    isCertainty &&
    isNumberOrNull(last_at) &&
    isNumberOrNull(count)
  );
}
