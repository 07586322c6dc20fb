import { isFreeOfKeyShapes } from "../core/redact.ts";

/** A request may bring its own id in this header: LiteLLM takes it, sends it back and lists it. */
export const CALL_ID_HEADER = "x-litellm-call-id";

/**
 * Headers with an id by which a gateway's console, or its operator, can find a request. cf-ray and the like are not here: no
 * console knows them.
 */
const ID_HEADERS: readonly string[] = [
  "x-client-request-id",
  "x-oneapi-request-id",
  CALL_ID_HEADER,
  "x-generation-id",
  "x-request-id",
  "request-id",
];

/** new-api and one-api end their error texts like this. A relayed error has an id of each gateway on the way, ours last. */
const ID_IN_ERROR = /[(（]\s*(?:request|请求|請求)[\s_-]*id\s*[:：]\s*([\w.:-]+)\s*[)）]/gi;

/** The ids that the gateway gave a request, by name. */
export type GatewayIds = Readonly<Record<string, string>>;

/** Of a request that brings none. */
export const NO_IDS: GatewayIds = Object.freeze({});

/** Those in the head of a response, by the name of their header. */
export function idsInHead(rawHeaders: readonly string[]): GatewayIds {
  const ids: Record<string, string> = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]?.toLowerCase() ?? "";
    if (ID_HEADERS.includes(name)) add(ids, name, rawHeaders[i + 1]?.trim());
  }
  return ids;
}

/** Those in its body: `body` is the response's own id, `error` the one in an error text. */
export function idsInBody(bodyId: string | null, errorText: string | null): GatewayIds {
  const ids: Record<string, string> = {};
  if (bodyId !== null) add(ids, "body", bodyId);
  if (errorText !== null) add(ids, "error", [...errorText.matchAll(ID_IN_ERROR)].at(-1)?.[1]);
  return ids;
}

function add(ids: Record<string, string>, name: string, id: string | undefined): void {
  if (id !== undefined && !Object.hasOwn(ids, name) && isGatewayId(id)) ids[name] = id;
}

/** Whether a text of a gateway or its console is kept as an id. One that looks like a key is not. */
export function isGatewayId(id: string): boolean {
  return /^[\x21-\x7e]{1,128}$/.test(id) && isFreeOfKeyShapes(id);
}
