import type { Gateway } from "../config/shape.ts";
import { type Protocol, type Refusal, refuse } from "../refusal.ts";
import { blotCredentials, blotKeyShapes, looksLikeCredential } from "../secret.ts";

/** What a path on the data port means, whoever calls. */
export type Route =
  /** `path` is the target without a token in front of it, query included, byte for byte. */
  | { readonly kind: "gateway"; readonly path: string; readonly token: string | null }
  | { readonly kind: "health" }
  /** Claude Code asks for these when it starts, and expects a 404. */
  | { readonly kind: "probe" }
  | { readonly kind: "wrong"; readonly refusal: Refusal };

const CREDENTIAL_IN_QUERY = /[?&](key|api_?key|access_token|token)=([^&]+)/i;
const ENDPOINTS = ["chat/completions", "completions", "responses", "messages", "embeddings", "models"];

/** An endpoint behind an endpoint. */
const DOUBLED = new RegExp(`^(?:v1/)?(?:${ENDPOINTS.join("|")})/(?:v1/)?(?:${ENDPOINTS.join("|")})$`);

/** The protocol of the targets of nearly all requests. null: another target. */
function usualProtocol(target: string): Protocol | null {
  if (target === "/v1/chat/completions" || target === "/v1/responses") return "openai";
  return target === "/v1/messages" ? "messages" : null;
}

export function route(method: string, target: string, host: string): Route {
  if (usualProtocol(target) !== null) return { kind: "gateway", path: target, token: null };
  const path = withoutQuery(target);
  if (path === "/healthz") return { kind: "health" };
  if (path === "/" || path === "/api/hello") return { kind: "probe" };
  if (!target.startsWith("/t/")) return within(method, target, host, null);
  const token = /^[^/?]*/.exec(target.slice("/t/".length))?.[0] ?? "";
  const inner = target.slice("/t/".length + token.length) || "/";
  return within(method, inner, `${host}/t/<token>`, token);
}

function within(method: string, target: string, host: string, token: string | null): Route {
  const path = withoutQuery(target);
  // Only /t/<token> is removed. Anywhere else a token would be logged here and sent to the gateway.
  if (holdsToken(target)) {
    return {
      kind: "wrong",
      refusal: refuse("bad-request", "there is a token inside the address. send it in a header"),
    };
  }
  const inQuery = path.length === target.length ? null : CREDENTIAL_IN_QUERY.exec(target.slice(path.length));
  if (inQuery !== null && looksLikeCredential(inQuery[2] ?? "")) {
    const message = `the address carries a real key in its query (${inQuery[1]}=). it was not forwarded. take it out`;
    return { kind: "wrong", refusal: refuse("foreign-key", message) };
  }
  const mistake = baseUrlMistake(path);
  if (mistake !== null) return { kind: "wrong", refusal: wrongBase(mistake, host) };
  if (/^\/v1(?:beta)?\/./.test(path)) return { kind: "gateway", path: target, token };
  // The path may begin with a key.
  const shown = blotCredentials(path);
  const asked = `${method} ${shown.length > 60 ? `${shown.slice(0, 60)}…` : shown}`;
  const message =
    `${asked} is not served here. the base url is http://${host}/v1 in openai-style clients, ` +
    `http://${host} in messages-style and gemini clients`;
  return { kind: "wrong", refusal: refuse("wrong-base-url", message) };
}

/** Real clients with a wrong base URL ask for recognizable paths. */
function baseUrlMistake(path: string): "no version" | "version twice" | "endpoint" | null {
  const bare =
    path.startsWith("/v1/") && !path.endsWith("/") ? path.slice(1) : path.replace(/^\/+|\/+$/g, "");
  if (ENDPOINTS.includes(bare) || /^(?:messages|responses|models)\//.test(bare)) return "no version";
  if (/^v1(?:\/v1|(?:beta)?\/v1beta)(?:\/|$)/.test(bare)) return "version twice";
  return DOUBLED.test(bare) ? "endpoint" : null;
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

/** The protocol the client expects its answer in: by path first, then by headers that only one family sends. */
export function protocolOf(target: string, headers: Readonly<Record<string, unknown>>): Protocol {
  const usual = usualProtocol(target);
  if (usual !== null) return usual;
  const path = withoutQuery(target).replace(/^\/t\/[^/]*/, "");
  if (/^(?:\/v1)*\/messages(?:\/|$)/.test(path)) return "messages";
  if (/^(?:\/v1)?\/v1beta(?:\/|$)/.test(path)) return "gemini";
  const byPath = /\/(?:chat\/completions|responses|embeddings|completions)(?:\/|$)/.test(path);
  if (!byPath && headers["anthropic-version"] !== undefined) return "messages";
  return "openai";
}

/** One of a gateway's addresses, in parts. */
export interface Address {
  /** Scheme, host and port. */
  readonly origin: string;
  /** As a Host header names it. */
  readonly host: string;
  /** As it is connected to: an IPv6 address has no brackets. */
  readonly hostname: string;
  readonly port: number;
  readonly secure: boolean;
  /** What comes before the client's path, and how many characters of that path are left out. */
  readonly prefix: string;
  readonly cut: number;
}

export interface Addresses {
  readonly messages: Address;
  readonly beta: Address;
  readonly base: Address;
}

export function addressesOf(gateway: Gateway): Addresses {
  return {
    messages: addressOf(gateway.messagesUrl, 0),
    beta: addressOf(gateway.baseUrl.replace(/\/v\d+[a-z0-9]*$/, ""), 0),
    base: addressOf(gateway.baseUrl, "/v1".length),
  };
}

function addressOf(address: string, cut: number): Address {
  // The configuration holds addresses as URL writes them, so that the origin is the text up to the path.
  const host = address.indexOf("://") + "://".length;
  const slash = address.indexOf("/", host);
  const origin = slash === -1 ? address : address.slice(0, slash);
  const secure = origin.startsWith("https:");
  const authority = origin.slice(host);
  const name = authority.replace(/:\d+$/, "");
  return {
    origin,
    host: authority,
    hostname: name.replace(/^\[|\]$/g, ""),
    port: Number(authority.slice(name.length + 1)) || (secure ? 443 : 80),
    secure,
    prefix: address.slice(origin.length),
    cut,
  };
}

const MESSAGES = /^\/v1\/messages(?:[/?]|$)/;

/** Where a path goes. */
export function addressFor(path: string, addresses: Addresses): Address {
  if (MESSAGES.test(path)) return addresses.messages;
  return path.startsWith("/v1beta/") ? addresses.beta : addresses.base;
}

/** The path in the request to the gateway. It is appended to the configured one and never resolved as a URL. */
export function upstreamPath({ prefix, cut }: Address, path: string): string {
  return prefix + path.slice(cut);
}

export function withoutQuery(target: string): string {
  const query = target.indexOf("?");
  return query === -1 ? target : target.slice(0, query);
}

/** The path as it may be logged: ids stay, what looks like a key does not. */
export function endpointOf(path: string): string {
  return usualProtocol(path) === null ? blotKeyShapes(withoutQuery(path)) : path;
}

/** Whether a text that would be sent on holds something that looks like a token. */
export function holdsToken(text: string): boolean {
  return /kb_[A-Za-z0-9_-]{16,}/.test(text);
}
