import { looksLikeCredential, redactCredentials, redactKeyShapes } from "../core/redact.ts";
import { type Protocol, type Refusal, refuse } from "../core/refusal.ts";
import { holdsToken } from "../core/token.ts";

/** What a path on the data port means, before the caller is known. */
export type Route =
  /** `path` is the target without /t/<token>, with its query, byte for byte. */
  | { readonly kind: "gateway"; readonly path: string; readonly token: string | null }
  | { readonly kind: "health" }
  /** Claude Code asks for these when it starts, and expects a 404. */
  | { readonly kind: "probe" }
  /** A person opened the address in a browser. */
  | { readonly kind: "page" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

export function route(method: string, target: string, host: string): Route {
  const path = withoutQuery(target);
  if (path === "/healthz") return { kind: "health" };
  if (method === "GET" && target === "/") return { kind: "page" };
  if (path === "/" || path === "/api/hello") return { kind: "probe" };
  if (!target.startsWith("/t/")) return routeBelow(host, method, target, null);
  const token = /^[^/?]*/.exec(target.slice("/t/".length))?.[0] ?? "";
  const rest = target.slice("/t/".length + token.length) || "/";
  return routeBelow(`${host}/t/<token>`, method, rest, token);
}

/** @param base what comes before the target in the address that the client should use. */
function routeBelow(base: string, method: string, target: string, token: string | null): Route {
  const path = withoutQuery(target);
  const refusal = checkSecrets(target) ?? checkBaseUrl(base, path);
  if (refusal !== null) return { kind: "refused", refusal };
  if (/^\/v1(?:beta)?\/./.test(path)) return { kind: "gateway", path: target, token };
  // The path may begin with a key.
  const shown = redactCredentials(path);
  const short = shown.length > 60 ? `${shown.slice(0, 60)}…` : shown;
  const message =
    `${method} ${short} is not served here. the base url is http://${base}/v1 in openai-style clients, ` +
    `http://${base} in messages-style and gemini clients`;
  return { kind: "refused", refusal: refuse("wrong-base-url", message) };
}

const QUERY_CREDENTIALS = /[?&](key|api_?key|access_token|token)=([^&]+)/gi;

function checkSecrets(target: string): Refusal | null {
  // Only /t/<token> is removed. A token anywhere else would be logged and sent to the gateway.
  if (holdsToken(target)) {
    return refuse("bad-request", "there is a token inside the address. send it in a header");
  }
  const query = target.slice(withoutQuery(target).length);
  if (query === "") return null;
  for (const [, name, value = ""] of query.matchAll(QUERY_CREDENTIALS)) {
    if (!looksLikeCredential(value)) continue;
    const message = `the address carries a real key in its query (${name}=). it was not forwarded. take it out`;
    return refuse("foreign-key", message);
  }
  return null;
}

const ENDPOINTS = ["chat/completions", "completions", "responses", "messages", "embeddings", "models"];
const ENDPOINT_TWICE = new RegExp(`^(?:v1/)?(?:${ENDPOINTS.join("|")})/(?:v1/)?(?:${ENDPOINTS.join("|")})$`);

/** Clients with a wrong base URL ask for paths that show the mistake. */
function checkBaseUrl(base: string, path: string): Refusal | null {
  const bare = path.replace(/^\/+/, "").replace(/\/$/, "");
  if (ENDPOINTS.includes(bare) || /^(?:messages|responses|models)\//.test(bare)) {
    return refuse("wrong-base-url", `the base url lacks its /v1. set it to http://${base}/v1`);
  }
  if (/^v1(?:\/v1|(?:beta)?\/v1beta)(?:\/|$)/.test(bare)) {
    const message = `this client adds the version itself. set the base url to http://${base}`;
    return refuse("wrong-base-url", message);
  }
  if (ENDPOINT_TWICE.test(bare)) {
    const message =
      `the base url ends in an endpoint path. cut it off: http://${base}/v1 in openai-style clients, ` +
      `http://${base} in messages-style ones`;
    return refuse("wrong-base-url", message);
  }
  return null;
}

/** The protocol in which the client expects its answer. The path decides, then a header that only one family sends. */
export function detectProtocol(target: string, headers: Readonly<Record<string, unknown>>): Protocol {
  const path = withoutQuery(target).replace(/^\/t\/[^/]*/, "");
  if (/^(?:\/v1)*\/messages(?:\/|$)/.test(path)) return "messages";
  if (/^(?:\/v1)?\/v1beta(?:\/|$)/.test(path)) return "gemini";
  if (/\/(?:chat\/completions|responses|embeddings|completions)(?:\/|$)/.test(path)) return "openai";
  return headers["anthropic-version"] === undefined ? "openai" : "messages";
}

/** The path as it may be logged: ids stay, what looks like a key does not. */
export function readEndpoint(path: string): string {
  return redactKeyShapes(withoutQuery(path));
}

export function withoutQuery(target: string): string {
  const query = target.indexOf("?");
  return query === -1 ? target : target.slice(0, query);
}
