import type { ConsoleKind } from "../../config/shape.ts";
import { bodyOf, jsonOf } from "./answers.ts";
import type { ConsoleClient, ConsoleResponse } from "./console.ts";
import { ConsoleFault } from "./console.ts";
import { fieldAt, flagAt, type JsonObject, objectAt } from "./json.ts";

export interface Detected {
  readonly kind: ConsoleKind;
  /** By what it was known, for words. */
  readonly why: string;
}

/** What kind of console answers at a url, by what each of them tells to everybody. Nobody logs in for this. */
export async function detectKind(client: ConsoleClient, url: string): Promise<Detected> {
  const host = new URL(url).hostname;
  if (host === "openrouter.ai" || host.endsWith(".openrouter.ai"))
    return { kind: "openrouter", why: `its host is ${host}` };
  const answers: ConsoleResponse[] = [];
  for (const path of ["/api/status", "/api/v1/settings/public"]) {
    const answer = await client.send({ method: "GET", path, bearer: null });
    const found = byHeaders(answer) ?? byBody(answer, path);
    if (found !== null) return found;
    answers.push(answer);
  }
  for (const answer of answers) {
    // A console that is only busy or failing now is not to be called an unknown one.
    if (answer.status === 429 || answer.status >= 500) jsonOf(answer, "the question for its kind");
  }
  throw new ConsoleFault(
    "not-a-console",
    "says not what kind it is: is the url right? else write kind: below console:",
  );
}

function byHeaders({ headers }: ConsoleResponse): Detected | null {
  if (headers["x-new-api-version"] !== undefined)
    return { kind: "new-api", why: "it sends X-New-Api-Version" };
  if (headers["x-litellm-version"] !== undefined)
    return { kind: "litellm", why: "it sends x-litellm-version" };
  return null;
}

/** A redirect's body, or an error's, says nothing. */
function byBody(answer: ConsoleResponse, path: string): Detected | null {
  const body = answer.status === 200 ? bodyOf(answer) : null;
  const data = body === null ? null : objectAt(body, "data");
  if (body === null || data === null) return null;
  return path === "/api/status" ? byStatus(body, data, answer) : bySettings(body, data);
}

/** new-api is a fork of one-api: both have the status and the id, and only new-api has the way to show a quota. */
function byStatus(body: JsonObject, data: JsonObject, { headers }: ConsoleResponse): Detected | null {
  if (flagAt(body, "success") !== true) return null;
  if (fieldAt(data, "quota_display_type") !== undefined) {
    return { kind: "new-api", why: "its status has quota_display_type" };
  }
  if (headers["x-oneapi-request-id"] !== undefined) {
    return { kind: "one-api", why: "it sends X-Oneapi-Request-Id and no X-New-Api-Version" };
  }
  return fieldAt(data, "quota_per_unit") === undefined
    ? null
    : { kind: "one-api", why: "its status has quota_per_unit and no quota_display_type" };
}

/** Many a program answers with a code 0; only sub2api with these beside it. */
function bySettings(body: JsonObject, data: JsonObject): Detected | null {
  const isKnown = ["site_name", "api_base_url", "version"].some((name) => Object.hasOwn(data, name));
  if (fieldAt(body, "code") !== 0 || !isKnown) return null;
  return { kind: "sub2api", why: "it answers /api/v1/settings/public as sub2api does" };
}
