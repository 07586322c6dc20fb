import type { ConsoleKind } from "../../config/schema.ts";
import { fieldAt, flagAt, objectAt, parseObject } from "../../core/json.ts";
import { ConsoleError } from "./console.ts";
import { type ConsoleClient, type ConsoleResponse, readJson } from "./http.ts";

/** openrouter is recognized, but cannot be read yet. */
type DetectedKind = ConsoleKind | "openrouter";

/** Finds the kind of console at a url from its public answers. Sends no credential. */
export async function detectKind(client: ConsoleClient, url: string): Promise<DetectedKind> {
  const host = new URL(url).hostname;
  if (host === "openrouter.ai" || host.endsWith(".openrouter.ai")) return "openrouter";
  const status = await client.send({ path: "/api/status" });
  const byStatus = kindByHeaders(status) ?? kindByStatus(status);
  if (byStatus !== null) return byStatus;
  const settings = await client.send({ path: "/api/v1/settings/public" });
  const bySettings = kindByHeaders(settings) ?? kindBySettings(settings);
  if (bySettings !== null) return bySettings;
  const health = await client.send({ path: "/health/liveliness" });
  if (health.status === 200 && health.text.trim() === LITELLM_LIVES) return "litellm";
  for (const response of [status, settings]) {
    // Throws: a console that is busy or failing is not an unknown one.
    if (response.status === 429 || response.status >= 500) readJson(response, "the question for its kind");
  }
  throw new ConsoleError(
    "not-a-console",
    "does not say what kind it is: is the url right? If it is, write kind: below console:",
  );
}

/** LiteLLM's answer, in its own spelling of the path (1.106). Its other paths need a key, or are those of many programs. */
const LITELLM_LIVES = '"I\'m alive!"';

function kindByHeaders({ headers }: ConsoleResponse): DetectedKind | null {
  if (headers["x-new-api-version"] !== undefined) return "new-api";
  return headers["x-litellm-version"] === undefined ? null : "litellm";
}

/** new-api is a fork of one-api: both have this status, but only new-api's has quota_display_type. */
function kindByStatus({ status, headers, text }: ConsoleResponse): ConsoleKind | null {
  const body = status === 200 ? parseObject(text) : null;
  const data = body === null ? null : objectAt(body, "data");
  if (body === null || data === null || flagAt(body, "success") !== true) return null;
  if (fieldAt(data, "quota_display_type") !== undefined) return "new-api";
  const isOneApi =
    headers["x-oneapi-request-id"] !== undefined || fieldAt(data, "quota_per_unit") !== undefined;
  return isOneApi ? "one-api" : null;
}

/** Many programs answer with a code 0, but only sub2api with these fields. */
function kindBySettings({ status, text }: ConsoleResponse): ConsoleKind | null {
  const body = status === 200 ? parseObject(text) : null;
  const data = body === null ? null : objectAt(body, "data");
  if (body === null || data === null || fieldAt(body, "code") !== 0) return null;
  const isSub2api = ["site_name", "api_base_url", "version"].some((name) => Object.hasOwn(data, name));
  return isSub2api ? "sub2api" : null;
}
