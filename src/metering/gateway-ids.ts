import { blotKeyShapes } from "../secret.ts";

/**
 * The headers by which a gateway's console, or its operator, knows a request again. cf-ray and its kind are not among
 * them: they name a connection at an edge that no console has heard of.
 */
const HEADERS: readonly string[] = [
  "x-client-request-id",
  "x-oneapi-request-id",
  "x-litellm-call-id",
  "x-generation-id",
  "x-request-id",
  "request-id",
];

/** How new-api and one-api end their error texts. Relayed errors carry one of every gateway on the way, ours last. */
const IN_ERROR = /[(（]\s*(?:request|请求|請求)[\s_-]*id\s*[:：]\s*([\w.:-]+)\s*[)）]/gi;

/** Every id the gateway gave a request: by header, `body` for the answer's own, `error` for an error text's. */
export function gatewayIds(
  rawHeaders: readonly string[],
  bodyId: string | null,
  errorText: string | null,
): Record<string, string> {
  const ids: Record<string, string> = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const header = rawHeaders[i] ?? "";
    if (!mayBeListed(header)) continue;
    const name = header.toLowerCase();
    if (HEADERS.includes(name)) add(ids, name, rawHeaders[i + 1]?.trim());
  }
  if (bodyId !== null) add(ids, "body", bodyId);
  if (errorText !== null) add(ids, "error", [...errorText.matchAll(IN_ERROR)].at(-1)?.[1]);
  return ids;
}

/** Every one of them begins with an X or an R; few others do. */
function mayBeListed(header: string): boolean {
  const first = header.charCodeAt(0) | 0x20;
  return first === 0x78 || first === 0x72;
}

function add(ids: Record<string, string>, name: string, id: string | undefined): void {
  if (id !== undefined && !Object.hasOwn(ids, name) && mayBeKept(id)) ids[name] = id;
}

/** What begins like a key is none of these ids, whatever the header says. */
function mayBeKept(id: string): boolean {
  return /^[\x21-\x7e]{1,128}$/.test(id) && blotKeyShapes(id) === id;
}
