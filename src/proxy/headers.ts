import type { Gateway } from "../config/schema.ts";
import { isLoopback } from "../config/values.ts";
import type { Protocol } from "../core/refusal.ts";
import type { Secret } from "../core/secret.ts";
import { holdsToken } from "../core/token.ts";
import { CALL_ID_HEADER } from "../metering/gateway-ids.ts";
import { CREDENTIAL_HEADERS, isCredentialName } from "./credentials.ts";
import type { Cause } from "./key-health/cause.ts";

/* Lists of headers are flat: name, value, name, value. That is how Node reads and writes them with their case and order. */

/** Counts how often a request went through a keybearer on this machine. */
export const HOPS_HEADER = "x-keybearer-hops";

/** RFC 9110 section 7.6.1, and older names that are treated the same way. */
const HOP_BY_HOP =
  "connection|keep-alive|proxy-authenticate|proxy-authorization|proxy-connection|te|trailer|transfer-encoding|upgrade";

/** Those, headers that describe this machine, and headers that keybearer handles or writes itself. */
const NOT_FORWARDED = new RegExp(
  `^(?:${HOP_BY_HOP}|host|cookie|origin|referer|forwarded|via|x-real-ip|expect|${HOPS_HEADER}|x-forwarded-.*|sec-fetch-.*|proxy-.*)$`,
);

const NOT_FOR_CLIENTS = new RegExp(`^(?:${HOP_BY_HOP}|set-cookie|access-control-.*|x-keybearer-.*)$`);

/** A callback, because a generator takes twice as long: 1.0 against 0.5 µs for 20 headers. */
export function forEachHeader(
  headers: readonly string[],
  visit: (name: string, value: string) => void,
): void {
  for (let i = 0; i + 1 < headers.length; i += 2) visit(headers[i] ?? "", headers[i + 1] ?? "");
}

/** @param name in lower case. */
export function headerValues(headers: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (isName(headers[i] ?? "", name)) values.push(headers[i + 1] ?? "");
  }
  return values;
}

/** The guard asks for 15 names in each request, so the lengths are compared first. */
export function isName(given: string, name: string): boolean {
  return given.length === name.length && given.toLowerCase() === name;
}

interface RequestHeaderOptions {
  readonly method: string;
  /** The client's headers. */
  readonly rawHeaders: readonly string[];
  /** The host the request goes to, with its port unless that is the scheme's own. */
  readonly host: string;
  readonly key: Secret;
  readonly keyHeader: KeyHeader;
  /** Which encodings of the response can be read here; null: the response is not read. */
  readonly readable: ((encoding: string) => boolean) | null;
  /** Bytes of the body; null: it passes as the client frames it, or there is none. */
  readonly bodyLength: number | null;
}

/**
 * The headers of the request to the gateway. The list starts empty: only end-to-end headers are copied, and the key is added
 * last, so that nothing the client sends can replace or duplicate it.
 */
export function requestHeaders(options: RequestHeaderOptions): string[] {
  const { method, rawHeaders, host, key, keyHeader, readable, bodyLength } = options;
  const hopByHop = connectionOptions(rawHeaders);
  const headers = ["Host", host];
  forEachHeader(rawHeaders, (rawName, value) => {
    const name = rawName.toLowerCase();
    // Connection cannot remove it. Node's parser refuses a second one.
    if (name === "content-length") headers.push(rawName, bodyLength === null ? value : String(bodyLength));
    else if (hopByHop.includes(name) || NOT_FORWARDED.test(name) || isCredentialName(name)) return;
    // A token in a header that is not for credentials would be sent to the gateway.
    else if (holdsToken(value)) return;
    else if (name === "accept-encoding" && readable !== null)
      headers.push(rawName, narrowed(value, readable));
    else headers.push(rawName, value);
  });
  if (headerValues(rawHeaders, "content-length").length === 0) {
    if (bodyLength !== null) headers.push("content-length", String(bodyLength));
    // Without this Node sends the body of a chunked GET unframed.
    else if (headerValues(rawHeaders, "transfer-encoding").length > 0)
      headers.push("transfer-encoding", "chunked");
    // Without this Node announces a chunked body where there is none.
    else if (method !== "GET" && method !== "HEAD") headers.push("content-length", "0");
  }
  if (isLoopback(host.replace(/:\d+$/, ""))) {
    const hops = Math.max(0, ...headerValues(rawHeaders, HOPS_HEADER).map(Number));
    headers.push(HOPS_HEADER, String(hops + 1));
  }
  headers.push(keyHeader, keyHeader === "authorization" ? `Bearer ${key.reveal()}` : key.reveal());
  return headers;
}

/** Replaces the client's own: two requests of one client may have the same. */
export function withCallId(headers: readonly string[], id: string): string[] {
  const copy: string[] = [];
  forEachHeader(headers, (name, value) => {
    if (!isName(name, CALL_ID_HEADER)) copy.push(name, value);
  });
  copy.push(CALL_ID_HEADER, id);
  return copy;
}

/** The same by name, for http-proxy-3. Of a name in several spellings the first is sent. */
export function byName(headers: readonly string[]): Record<string, string | string[]> {
  const spellings = new Map<string, string>();
  // Without a prototype, `constructor` is a name like any other.
  const named: Record<string, string | string[]> = Object.create(null);
  forEachHeader(headers, (name, value) => {
    const lower = name.toLowerCase();
    const spelling = spellings.get(lower) ?? name;
    spellings.set(lower, spelling);
    const before = named[spelling];
    named[spelling] = before === undefined ? value : [before, value].flat();
  });
  return named;
}

/** The client's accept-encoding without what cannot be read here. Nothing is added that it did not ask for. */
function narrowed(accepted: string, readable: (encoding: string) => boolean): string {
  const wanted = accepted.split(",").map((item) => item.trim());
  const nameOf = (item: string) => (item.split(";", 1)[0] ?? "").trim().toLowerCase();
  // A star is left out too: it would allow what was just removed.
  const kept = wanted.filter((item) => nameOf(item) === "identity" || readable(nameOf(item)));
  return kept.length === 0 ? "identity" : kept.join(", ");
}

const NO_NAMES: readonly string[] = Object.freeze([]);

/** The names that Connection declares hop-by-hop. A client could name the header of the key. */
function connectionOptions(rawHeaders: readonly string[]): readonly string[] {
  const values = headerValues(rawHeaders, "connection");
  const [only = ""] = values;
  // It names no other header, as nearly always.
  if (values.length === 0 || (values.length === 1 && (isName(only, "keep-alive") || isName(only, "close"))))
    return NO_NAMES;
  return values
    .join()
    .split(",")
    .map((name) => name.trim().toLowerCase());
}

type KeyHeader = "authorization" | "x-api-key" | "x-goog-api-key";

/** Which header the key goes into: the gateway's setting, else what gateways of this protocol expect. */
export function keyHeaderFor(
  protocol: Protocol,
  gateway: Gateway,
  headers: Readonly<Record<string, unknown>>,
): KeyHeader {
  if (gateway.keyHeader === "bearer") return "authorization";
  if (gateway.keyHeader === "x-api-key") return "x-api-key";
  if (protocol === "gemini") return "x-goog-api-key";
  if (protocol !== "messages") return "authorization";
  const given = CREDENTIAL_HEADERS.filter((name) => headers[name] !== undefined);
  return given.length === 1 && given[0] === "x-api-key" ? "x-api-key" : "authorization";
}

/** The gateway's headers for the client, in their order and case, without hop-by-hop ones, cookies, CORS and the key. */
export function responseHeaders(rawHeaders: readonly string[], key: Secret): string[] {
  const hopByHop = connectionOptions(rawHeaders);
  const headers: string[] = [];
  forEachHeader(rawHeaders, (rawName, value) => {
    const name = rawName.toLowerCase();
    if (NOT_FOR_CLIENTS.test(name)) return;
    // Without its content-length, the body could be read as another response.
    if (name !== "content-length" && hopByHop.includes(name)) return;
    // Asterisks are valid in a name, brackets are not.
    headers.push(key.maskIn(rawName), key.redactFrom(value));
  });
  return headers;
}

const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/g;

/** Node's parser accepts characters in a reason phrase that Node does not write. */
export function reasonPhrase(text: string, key: Secret): string {
  return key.redactFrom(text).replace(UNWRITABLE, "");
}

/** Names the cause beside the gateway's refusal. Clients should not retry what only the owner can change. */
export function addCause(headers: string[], cause: Cause | null): void {
  if (cause === null) return;
  headers.push("x-keybearer-cause", cause.name);
  if (cause.detail !== null) headers.push("x-keybearer-cause-detail", cause.detail);
  if (cause.canRetry) return;
  remove(headers, "x-should-retry");
  headers.push("x-should-retry", "false");
}

/** Adds keybearer's own headers. They replace the gateway's of the same name: our limits are the nearer ones. */
export function addOwn(headers: string[], own: readonly string[]): void {
  forEachHeader(own, (name) => remove(headers, name));
  headers.push(...own);
}

/** For a body that was changed and is no longer compressed. null: its length is not known yet. */
export function setLength(headers: string[], length: number | null): void {
  remove(headers, "content-length");
  remove(headers, "content-encoding");
  if (length !== null) headers.push("content-length", String(length));
}

function remove(headers: string[], name: string): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (isName(headers[i] ?? "", name)) headers.splice(i, 2);
  }
}
