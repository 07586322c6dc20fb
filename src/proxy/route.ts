import type { Gateway } from "../config/shape.ts";
import { type Protocol, type Refusal, refuse } from "../refusal.ts";
import { blotCredentials, blotKeyShapes, looksLikeCredential } from "../secret.ts";

/** What a path on the data port means, before anybody knows who is calling. */
export type Route =
  /** To the gateway. `path` is the target without a token in front of it, query included, byte for byte. */
  | { readonly kind: "gateway"; readonly path: string; readonly token: string | null }
  | { readonly kind: "health" }
  /** Claude Code asks for these at its start and takes a 404 for an answer. */
  | { readonly kind: "probe" }
  | { readonly kind: "wrong"; readonly refusal: Refusal };

const ENDPOINTS = ["chat/completions", "completions", "responses", "messages", "embeddings", "models"];

export function route(method: string, target: string, host: string): Route {
  const path = withoutQuery(target);
  if (path === "/healthz") return { kind: "health" };
  if (path === "/" || path === "/api/hello") return { kind: "probe" };
  const inAddress = /^\/t\/([^/?]*)(\/[^?]*)?/.exec(target);
  if (inAddress) {
    const inner = target.slice("/t/".length + (inAddress[1] ?? "").length) || "/";
    return within(method, inner, `${host}/t/<token>`, inAddress[1] ?? "");
  }
  return within(method, target, host, null);
}

function within(method: string, target: string, host: string, token: string | null): Route {
  const path = withoutQuery(target);
  // Only /t/<token> is cut off; anywhere else it would be logged here and sent on to the gateway.
  if (holdsToken(target)) {
    return {
      kind: "wrong",
      refusal: refuse("bad-request", "there is a token inside the address. send it in a header"),
    };
  }
  const inQuery = /[?&](key|api_?key|access_token|token)=([^&]+)/i.exec(target.slice(path.length));
  if (inQuery !== null && looksLikeCredential(inQuery[2] ?? "")) {
    const message = `the address carries a real key in its query (${inQuery[1]}=). it was not forwarded. take it out`;
    return { kind: "wrong", refusal: refuse("foreign-key", message) };
  }
  const mistake = baseUrlMistake(path);
  if (mistake !== null) return { kind: "wrong", refusal: wrongBase(mistake, host) };
  if (/^\/v1(?:beta)?\/./.test(path)) return { kind: "gateway", path: target, token };
  // Somebody may have put a key where the path begins.
  const shown = blotCredentials(path);
  const asked = `${method} ${shown.length > 60 ? `${shown.slice(0, 60)}…` : shown}`;
  const message =
    `${asked} is not served here. the base url is http://${host}/v1 in openai-style clients, ` +
    `http://${host} in messages-style and gemini clients`;
  return { kind: "wrong", refusal: refuse("wrong-base-url", message) };
}

/** The paths that real clients ask for when their base URL is wrong are recognisable; each names its mistake. */
function baseUrlMistake(path: string): "no version" | "version twice" | "endpoint" | null {
  const bare = path.replace(/^\/+|\/+$/g, "");
  if (ENDPOINTS.includes(bare) || /^(?:messages|responses|models)\//.test(bare)) return "no version";
  if (/^v1\/v1(?:\/|$)/.test(bare) || /^v1(?:beta)?\/v1beta(?:\/|$)/.test(bare)) return "version twice";
  const rest = bare.replace(/^v1\//, "");
  const doubled = ENDPOINTS.some((endpoint) =>
    ENDPOINTS.some((again) => rest === `${endpoint}/${again}` || rest === `${endpoint}/v1/${again}`),
  );
  return doubled ? "endpoint" : null;
}

function wrongBase(mistake: "no version" | "version twice" | "endpoint", host: string): Refusal {
  switch (mistake) {
    case "no version":
      return refuse("wrong-base-url", `the base url lacks its /v1. set it to http://${host}/v1`);
    case "version twice":
      return refuse(
        "wrong-base-url",
        `this client adds the version itself. set the base url to http://${host}`,
      );
    case "endpoint":
      return refuse(
        "wrong-base-url",
        `the base url ends in an endpoint path. cut it off: http://${host}/v1 in openai-style clients, ` +
          `http://${host} in messages-style ones`,
      );
  }
}

/** In which protocol the caller must be answered: by path first, then by the headers only one family sends. */
export function protocolOf(target: string, headers: Readonly<Record<string, unknown>>): Protocol {
  const path = withoutQuery(target).replace(/^\/t\/[^/]*/, "");
  if (/^(?:\/v1)*\/messages(?:\/|$)/.test(path)) return "messages";
  if (/^(?:\/v1)?\/v1beta(?:\/|$)/.test(path)) return "gemini";
  const byPath = /\/(?:chat\/completions|responses|embeddings|completions)(?:\/|$)/.test(path);
  if (!byPath && headers["anthropic-version"] !== undefined) return "messages";
  return "openai";
}

export interface Destination {
  /** Scheme, host and port, from the configuration alone. */
  readonly origin: string;
  /** What stands in the request line: nothing of it can change the origin. */
  readonly path: string;
}

/** Where a path goes. Text is put behind the configured address, never resolved against it. */
export function destination(path: string, gateway: Gateway): Destination {
  if (/^\/v1\/messages(?:[/?]|$)/.test(path)) return behind(gateway.messagesUrl, path);
  if (path.startsWith("/v1beta/")) return behind(gateway.baseUrl.replace(/\/v\d+[a-z0-9]*$/, ""), path);
  return behind(gateway.baseUrl, path.slice("/v1".length));
}

function behind(address: string, path: string): Destination {
  // The configuration holds addresses as URL writes them, so that the origin is the text up to the path.
  const slash = address.indexOf("/", address.indexOf("://") + "://".length);
  const origin = slash === -1 ? address : address.slice(0, slash);
  return { origin, path: address.slice(origin.length) + path };
}

export function withoutQuery(target: string): string {
  return target.split("?", 1)[0] ?? "";
}

/** The path as it may be written down: ids stay, what has the shape of a key does not. */
export function endpointOf(path: string): string {
  return withoutQuery(path).split("/").map(blotKeyShapes).join("/");
}

/** Whether something that looks like a token is in a text that would be sent on. */
export function holdsToken(text: string): boolean {
  return /kb_[A-Za-z0-9_-]{16,}/.test(text);
}
