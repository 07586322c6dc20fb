import { isLoopback } from "../config/fields/address.ts";
import type { Gateway } from "../config/shape.ts";
import { CREDENTIAL_HEADERS, isCredentialName } from "../identity/credential.ts";
import type { Protocol } from "../refusal.ts";
import type { Secret } from "../secret.ts";
import { type Cause, isForTheOwner } from "./cause.ts";
import { HOPS_HEADER } from "./guard.ts";
import { holdsToken } from "./route.ts";

/** RFC 9110 section 7.6.1, and the older names that are treated likewise. */
const HOP_BY_HOP = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** What a gateway has no business to know of this machine, or what is answered here. */
const NOT_FORWARDED = [
  "host",
  "cookie",
  "origin",
  "referer",
  "forwarded",
  "via",
  "x-real-ip",
  "expect",
  HOPS_HEADER,
];

export type OutgoingHeaders = Record<string, string | string[]>;

export interface OutgoingRequest {
  readonly rawHeaders: readonly string[];
  /** Scheme, host and port the request goes to. */
  readonly origin: string;
  readonly key: Secret;
  /** The header this key travels in; see keySlot. */
  readonly slot: KeySlot;
  /** Which compressions of the answer can be read here; null: nobody will read it. */
  readonly readable: ((encoding: string) => boolean) | null;
}

/**
 * The headers of the request to the gateway. They start empty: copied is what is end to end and harmless, and the key
 * goes in last, so that nothing the client sent, nominated in Connection or spelled cleverly can stand beside it.
 */
export function outgoingHeaders(request: OutgoingRequest): OutgoingHeaders {
  const { rawHeaders } = request;
  const dropped = nominated(rawHeaders);
  // Without a prototype: a header named `constructor` is one like any other.
  const headers: OutgoingHeaders = Object.create(null);
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    // Lower case throughout: two spellings of one name would both be sent.
    const name = (rawHeaders[i] ?? "").toLowerCase();
    const value = rawHeaders[i + 1] ?? "";
    // A token in a header that is no credential slot, by a slip or to be clever, is one credential more that goes along.
    if (dropped.includes(name) || !isForwarded(name) || holdsToken(value)) continue;
    const before = headers[name];
    headers[name] = before === undefined ? value : [before, value].flat();
  }
  // Chunked is hop by hop; said here on our own account, or Node sends the body of a chunked GET without framing.
  if (rawHeaders.some((name, i) => i % 2 === 0 && name.toLowerCase() === "transfer-encoding")) {
    headers["transfer-encoding"] = "chunked";
    delete headers["content-length"];
  }
  if (request.readable !== null && headers["accept-encoding"] !== undefined) {
    headers["accept-encoding"] = narrowed([headers["accept-encoding"]].flat().join(","), request.readable);
  }
  // Not by URL, which is slow: an origin is a scheme and a host, and nothing else.
  const host = request.origin.slice(request.origin.indexOf("://") + "://".length);
  headers.host = host;
  if (isLoopback(host.replace(/:\d+$/, ""))) headers[HOPS_HEADER] = String(hopsOf(rawHeaders) + 1);
  headers[request.slot] =
    request.slot === "authorization" ? `Bearer ${request.key.reveal()}` : request.key.reveal();
  return headers;
}

/** The client's accept-encoding without what the meter could not read. What it never asked for is not added. */
function narrowed(accepted: string, readable: (encoding: string) => boolean): string {
  const wanted = accepted.split(",").map((item) => item.trim());
  const nameOf = (item: string) => (item.split(";", 1)[0] ?? "").trim().toLowerCase();
  const kept = wanted.filter((item) => nameOf(item) === "identity" || readable(nameOf(item)));
  // A star would let in what was just taken out.
  return kept.length === 0 ? "identity" : kept.join(", ");
}

function isForwarded(name: string): boolean {
  return (
    !HOP_BY_HOP.includes(name) &&
    !NOT_FORWARDED.includes(name) &&
    !isCredentialName(name) &&
    !name.startsWith("x-forwarded-") &&
    !name.startsWith("sec-fetch-") &&
    !name.startsWith("proxy-")
  );
}

/** The names that Connection makes hop by hop. A client could nominate the very header the key goes into. */
function nominated(rawHeaders: readonly string[]): string[] {
  const names: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if ((rawHeaders[i] ?? "").toLowerCase() !== "connection") continue;
    for (const name of (rawHeaders[i + 1] ?? "").split(",")) names.push(name.trim().toLowerCase());
  }
  // content-length frames the body that follows; leaving it out would make one request two.
  return names.filter((name) => name !== "content-length");
}

function hopsOf(rawHeaders: readonly string[]): number {
  const at = rawHeaders.findIndex((name, i) => i % 2 === 0 && name.toLowerCase() === HOPS_HEADER);
  return at === -1 ? 0 : Number(rawHeaders[at + 1]);
}

export type KeySlot = "authorization" | "x-api-key" | "x-goog-api-key";

/** Which header the key goes into: the gateway's setting, else what this protocol's gateways understand. */
export function keySlot(
  protocol: Protocol,
  gateway: Gateway,
  headers: Readonly<Record<string, unknown>>,
): KeySlot {
  if (gateway.keyHeader === "bearer") return "authorization";
  if (gateway.keyHeader === "x-api-key") return "x-api-key";
  if (protocol === "gemini") return "x-goog-api-key";
  const shown = CREDENTIAL_HEADERS.filter((name) => headers[name] !== undefined);
  return protocol === "messages" && shown.length === 1 && shown[0] === "x-api-key"
    ? "x-api-key"
    : "authorization";
}

/**
 * The gateway's headers as the client gets them: flat name, value pairs in their order and case. Hop-by-hop ones and
 * cookies stay out, CORS never leaves this port, and nobody else speaks in keybearer's name.
 */
export function incomingHeaders(rawHeaders: readonly string[], key: Secret): string[] {
  const dropped = nominated(rawHeaders);
  const headers: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] ?? "").toLowerCase();
    const unwanted =
      HOP_BY_HOP.includes(name) ||
      dropped.includes(name) ||
      name === "set-cookie" ||
      name.startsWith("access-control-") ||
      name.startsWith("x-keybearer-");
    if (!unwanted) headers.push(rawHeaders[i] ?? "", key.blotFrom(rawHeaders[i + 1] ?? ""));
  }
  return headers;
}

/** The words of the status line. Node's parser lets characters through that Node will not write. */
export function reasonPhrase(words: string, key: Secret): string {
  return key.blotFrom(words).replace(/[^\t\x20-\x7e\x80-\xff]/g, "");
}

/** Names the cause beside the gateway's own refusal. */
export function withCause(headers: string[], cause: Cause | null): string[] {
  if (cause === null) return headers;
  const named = [...headers, "x-keybearer-cause", cause.name];
  if (!isForTheOwner(cause)) return named;
  drop(named, "x-should-retry");
  return [...named, "x-should-retry", "false"];
}

/** keybearer's own headers behind the gateway's; of one that both send, ours counts: its limit is the nearer one. */
export function withOwn(headers: readonly string[], own: readonly string[]): string[] {
  const all = [...headers];
  for (let i = 0; i < own.length; i += 2) drop(all, own[i]?.toLowerCase() ?? "");
  return [...all, ...own];
}

/** A body whose key was blotted out has another length, and is no longer compressed. */
export function reframe(headers: string[], length: number | null): void {
  drop(headers, "content-length");
  drop(headers, "content-encoding");
  if (length !== null) headers.push("content-length", String(length));
}

function drop(headers: string[], name: string): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (headers[i]?.toLowerCase() === name) headers.splice(i, 2);
  }
}
