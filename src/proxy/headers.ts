import { isLoopback } from "../config/fields/address.ts";
import type { Gateway } from "../config/shape.ts";
import { CREDENTIAL_HEADERS, isCredentialName } from "../identity/credential.ts";
import type { Protocol } from "../refusal.ts";
import type { Secret } from "../secret.ts";
import { type Cause, isForTheOwner } from "./cause.ts";
import { HOPS_HEADER } from "./guard.ts";
import { holdsToken } from "./route.ts";

/** RFC 9110 section 7.6.1, and the older names that are treated likewise. */
const HOP_BY_HOP =
  "connection|keep-alive|proxy-authenticate|proxy-authorization|proxy-connection|te|trailer|transfer-encoding|upgrade";

/** Those, and what a gateway has no business to know of this machine, or what is answered here. */
const NOT_FORWARDED = new RegExp(
  `^(?:${HOP_BY_HOP}|host|cookie|origin|referer|forwarded|via|x-real-ip|expect|x-keybearer-hops|x-forwarded-.*|sec-fetch-.*|proxy-.*)$`,
);

const NOT_FOR_CLIENTS = new RegExp(`^(?:${HOP_BY_HOP}|set-cookie|access-control-.*|x-keybearer-.*)$`);

export interface OutgoingRequest {
  readonly method: string;
  readonly rawHeaders: readonly string[];
  /** The host the request goes to, and its port where that is not the scheme's own. */
  readonly host: string;
  readonly key: Secret;
  /** The header this key travels in; see keySlot. */
  readonly slot: KeySlot;
  /** Which compressions of the answer can be read here; null: nobody will read it. */
  readonly readable: ((encoding: string) => boolean) | null;
  /** Bytes of the body, where another one is sent than the client's. */
  readonly length: number | null;
}

/**
 * The headers of the request to the gateway: name, value, name, value. They start empty: copied is what is end to end and
 * harmless, and the key goes in last, so that nothing the client sent, nominated in Connection or spelled cleverly can
 * stand beside it.
 */
export function outgoingHeaders(request: OutgoingRequest): string[] {
  const { method, rawHeaders, host, key, slot, readable, length } = request;
  const dropped = nominated(rawHeaders);
  const headers: string[] = [];
  let accepted: string | null = null;
  let chunked = false;
  let hops = 0;
  let bodyLength: string | null = null;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    // Lower case throughout: whoever reads them should not have to fold them again.
    const name = (rawHeaders[i] ?? "").toLowerCase();
    const value = rawHeaders[i + 1] ?? "";
    if (name === "transfer-encoding") chunked = true;
    else if (name === HOPS_HEADER) hops = Math.max(hops, Number(value));
    else if (name === "content-length") bodyLength ??= value;
    // A token in a header that is no credential slot, by a slip or to be clever, is one credential more that goes along.
    else if (dropped?.includes(name) || !isForwarded(name) || holdsToken(value)) continue;
    else if (name === "accept-encoding" && readable !== null)
      accepted = accepted === null ? value : `${accepted},${value}`;
    else headers.push(name, value);
  }
  if (accepted !== null && readable !== null) headers.push("accept-encoding", narrowed(accepted, readable));
  // Chunked is hop by hop; said here on our own account, or Node sends the body of a chunked GET without framing.
  if (length !== null) headers.push("content-length", String(length));
  else if (chunked) headers.push("transfer-encoding", "chunked");
  else if (bodyLength !== null) headers.push("content-length", bodyLength);
  // Left to itself, Node would frame a body that is not there.
  else if (method !== "GET" && method !== "HEAD") headers.push("content-length", "0");
  headers.push("host", host);
  // Not by URL, which is slow: a host and perhaps a port, and nothing else.
  if (isLoopback(host.replace(/:\d+$/, ""))) headers.push(HOPS_HEADER, String(hops + 1));
  headers.push(slot, slot === "authorization" ? `Bearer ${key.reveal()}` : key.reveal());
  return headers;
}

/** The same by name, for whoever wants them so. */
export function byName(headers: readonly string[]): Record<string, string | string[]> {
  // Without a prototype: a header named `constructor` is one like any other.
  const named: Record<string, string | string[]> = Object.create(null);
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] ?? "";
    const before = named[name];
    named[name] = before === undefined ? (headers[i + 1] ?? "") : [before, headers[i + 1] ?? ""].flat();
  }
  return named;
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
  return !NOT_FORWARDED.test(name) && !isCredentialName(name);
}

/** The names that Connection makes hop by hop; null: none. A client could nominate the very header the key goes into. */
function nominated(rawHeaders: readonly string[]): string[] | null {
  let names: string[] | null = null;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    if (name.length !== "connection".length || name.toLowerCase() !== "connection") continue;
    const value = rawHeaders[i + 1] ?? "";
    // What nearly every connection says, and what nobody would want to nominate.
    if (value === "keep-alive" || value === "close") continue;
    names ??= [];
    for (const one of value.split(",")) names.push(one.trim().toLowerCase());
  }
  return names;
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
  if (protocol !== "messages") return "authorization";
  const shown = CREDENTIAL_HEADERS.filter((name) => headers[name] !== undefined);
  return shown.length === 1 && shown[0] === "x-api-key" ? "x-api-key" : "authorization";
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
    const unwanted = NOT_FOR_CLIENTS.test(name);
    // content-length frames the body that follows; leaving it out would make one answer two.
    const nominatedOne = name !== "content-length" && dropped?.includes(name);
    if (!unwanted && !nominatedOne) headers.push(rawHeaders[i] ?? "", key.blotFrom(rawHeaders[i + 1] ?? ""));
  }
  return headers;
}

const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/g;

/** The words of the status line. Node's parser lets characters through that Node will not write. */
export function reasonPhrase(words: string, key: Secret): string {
  const clean = key.blotFrom(words);
  return clean.search(UNWRITABLE) === -1 ? clean : clean.replace(UNWRITABLE, "");
}

/** Names the cause beside the gateway's own refusal. */
export function withCause(headers: string[], cause: Cause | null): string[] {
  if (cause === null) return headers;
  const named = [...headers, "x-keybearer-cause", cause.name];
  if (!isForTheOwner(cause)) return named;
  drop(named, "x-should-retry");
  return [...named, "x-should-retry", "false"];
}

/** Adds keybearer's own headers, in lower case, to the gateway's; of one that both send, ours counts: its limit is the nearer one. */
export function addOwn(headers: string[], own: readonly string[]): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) if (isAmong(headers[i] ?? "", own)) headers.splice(i, 2);
  for (let i = 0; i < own.length; i += 1) headers.push(own[i] ?? "");
}

/** Whether a list of name, value, name, value has this name, in lower case. */
function isAmong(name: string, headers: readonly string[]): boolean {
  for (let i = 0; i < headers.length; i += 2) {
    const given = headers[i] ?? "";
    if (given.length === name.length && given === name.toLowerCase()) return true;
  }
  return false;
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
