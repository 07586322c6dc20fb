import { chat } from "./protocols/chat.ts";
import { completions } from "./protocols/completions.ts";
import { embeddings } from "./protocols/embeddings.ts";
import { gemini } from "./protocols/gemini.ts";
import { messages } from "./protocols/messages.ts";
import type { Address, Protocol } from "./protocols/protocol.ts";
import { responses } from "./protocols/responses.ts";

/** A question to a model, or only to its counter of tokens. */
export interface AskRoute {
  readonly kind: "ask";
  readonly counts: boolean;
  readonly protocol: Protocol;
  readonly address: Address;
  /** As the usage log names it. */
  readonly endpoint: string;
}

/** What the gateway knows without a model. */
export type ListingRoute =
  | { readonly kind: "models"; readonly style: "openai" | "gemini" }
  | { readonly kind: "files" }
  | { readonly kind: "key-usage" }
  | { readonly kind: "key-billing" };

export type GatewayRoute = AskRoute | ListingRoute | { readonly kind: "model"; readonly id: string };

export type Route =
  | GatewayRoute
  | { readonly kind: "console" }
  /** The framework's plain 404. */
  | { readonly kind: "not-found" }
  /** The console's web page. */
  | { readonly kind: "page" };

const IN_BODY: Address = { model: null, stream: false };
/** Below these the gateway admits that it knows no such path; everything else is the web page, with 200. */
const API_PREFIXES = ["/api/", "/v1/", "/v1beta/", "/backend-api/", "/antigravity/", "/setup/"];
const GEMINI_CALL = /^\/v1beta\/models\/([^/:]+):(generateContent|streamGenerateContent|countTokens)$/;
const ONE_MODEL = /^\/v1\/models\/([^/]+)$/;

/** Which part of the sandbox answers. A wrong method is an unknown path here, as in the framework's router. */
export function routeOf(method: string, path: string): Route {
  const found = method === "POST" ? postRoute(path) : method === "GET" ? getRoute(path) : null;
  if (found !== null) return found;
  if (path.startsWith("/api/v1/")) return { kind: "console" };
  return API_PREFIXES.some((prefix) => path.startsWith(prefix)) ? { kind: "not-found" } : { kind: "page" };
}

function postRoute(path: string): GatewayRoute | null {
  const ask = (protocol: Protocol): AskRoute => ({
    kind: "ask",
    counts: false,
    protocol,
    address: IN_BODY,
    endpoint: path,
  });
  switch (path) {
    case "/v1/chat/completions":
      return ask(chat);
    case "/v1/completions":
      return ask(completions);
    case "/v1/responses":
      return ask(responses);
    case "/v1/embeddings":
      return ask(embeddings);
    case "/v1/messages":
      return ask(messages);
    case "/v1/messages/count_tokens":
      return { ...ask(messages), counts: true };
    case "/v1/files":
      return { kind: "files" };
  }
  const [, model, verb] = GEMINI_CALL.exec(path) ?? [];
  if (model === undefined) return null;
  return {
    kind: "ask",
    counts: verb === "countTokens",
    protocol: gemini,
    address: { model, stream: verb === "streamGenerateContent" },
    endpoint: "/v1beta/models",
  };
}

function getRoute(path: string): GatewayRoute | null {
  switch (path) {
    case "/v1/models":
      return { kind: "models", style: "openai" };
    case "/v1beta/models":
      return { kind: "models", style: "gemini" };
    case "/v1/usage":
      return { kind: "key-usage" };
    case "/v1/sub2api/billing":
      return { kind: "key-billing" };
  }
  const id = ONE_MODEL.exec(path)?.[1];
  return id === undefined ? null : { kind: "model", id };
}
