import { type Refusal, refuse } from "../core/refusal.ts";
import { CREDENTIAL_HEADERS } from "./credentials.ts";
import { HOPS_HEADER, headerValues } from "./headers.ts";
import { withoutQuery } from "./routes.ts";

/** The parts of a head that are checked. */
export interface CheckedHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Name, value, name, value: before Node joins or drops duplicates. */
  readonly rawHeaders: readonly string[];
}

const MAX_HEADERS = 100;
const MAX_TARGET = 8192;
/** One keybearer may call another one, once. */
const MAX_HOPS = 2;

/**
 * Checks a request before the caller is known. A loopback address does not keep web pages out: any page can send requests to
 * it, and a name that resolves to 127.0.0.1 makes them same-origin. So Host and browser headers come first.
 *
 * @param hosts every `host:port` that is accepted in Host.
 * @param origins every origin that some tool allows. identify.ts checks whether the calling tool does.
 */
export function guard(
  head: CheckedHead,
  hosts: readonly string[],
  origins: readonly string[],
): Refusal | null {
  const { rawHeaders } = head;
  return (
    checkHost(rawHeaders, hosts) ??
    (isBrowserVisit(head) ? null : checkBrowser(rawHeaders, origins)) ??
    checkShape(head) ??
    checkHops(rawHeaders)
  );
}

/**
 * The same for the dashboard's port, which admits one page: the dashboard itself. Pages of other origins, other ports of
 * this machine included, are refused whatever token they have. So are other names for this address (DNS rebinding).
 */
export function guardDashboard(head: CheckedHead, hosts: readonly string[]): Refusal | null {
  return checkHost(head.rawHeaders, hosts) ?? checkPage(head) ?? checkShape(head);
}

/** Checks of both ports. */
function checkShape(head: CheckedHead): Refusal | null {
  return (
    checkSize(head) ??
    checkTarget(head) ??
    checkFraming(head) ??
    checkExpectation(head.rawHeaders) ??
    checkCredentials(head.rawHeaders)
  );
}

function checkHost(rawHeaders: readonly string[], hosts: readonly string[]): Refusal | null {
  const given = headerValues(rawHeaders, "host");
  const [host] = given;
  // Node silently takes the first of two Hosts. HTTP/1.0 requires none.
  if (given.length !== 1 || !host) return refuse("bad-request", "the request must name exactly one host");
  if (hosts.includes(host.toLowerCase())) return null;
  return refuse("host-not-allowed", `this is keybearer's port, and it answers only as ${hosts.join(", ")}`);
}

/** A person typed the address into a browser. Everyone gets the same page. A page cannot send such a request. */
function isBrowserVisit({ method, target, rawHeaders }: CheckedHead): boolean {
  const sites = headerValues(rawHeaders, "sec-fetch-site");
  const isTyped = sites.length === 0 || (sites.length === 1 && sites[0] === "none");
  return method === "GET" && target === "/" && isTyped && !hasHeader(rawHeaders, "origin");
}

function checkBrowser(rawHeaders: readonly string[], origins: readonly string[]): Refusal | null {
  const refusal = refuse("browser-request", "requests from web pages are not served");
  const given = headerValues(rawHeaders, "origin");
  const [origin = ""] = given;
  const isAllowed = given.length === 1 && origins.includes(origin);
  if (given.length > 0 && !isAllowed) return refusal;
  // Node's fetch, and so the official SDKs, send sec-fetch-mode: cors and no other header of these.
  const modes = headerValues(rawHeaders, "sec-fetch-mode");
  if (modes.length > 1 || (modes.length === 1 && modes[0] !== "cors")) return refusal;
  if (isAllowed) return null;
  const isFromBrowser =
    hasHeader(rawHeaders, "sec-fetch-site") ||
    hasHeader(rawHeaders, "sec-fetch-dest") ||
    hasHeader(rawHeaders, "sec-fetch-user") ||
    hasHeader(rawHeaders, "access-control-request-method");
  return isFromBrowser ? refusal : null;
}

function checkPage(head: CheckedHead): Refusal | null {
  const { rawHeaders } = head;
  const otherPage = refuse("browser-request", "requests from other pages are not served");
  const [host = ""] = headerValues(rawHeaders, "host");
  const origins = headerValues(rawHeaders, "origin");
  if (origins.length > 1) return otherPage;
  if (origins.length === 1 && origins[0] !== `http://${host.toLowerCase()}`) return otherPage;
  const sites = headerValues(rawHeaders, "sec-fetch-site");
  if (sites.length === 0 || isNavigation(head)) return null;
  const isOwnPage = sites.length === 1 && (sites[0] === "same-origin" || sites[0] === "none");
  return isOwnPage ? null : otherPage;
}

/** A link to the page, from anywhere: the page is the same for everyone, contains no data and cannot be framed. */
function isNavigation({ method, target, rawHeaders }: CheckedHead): boolean {
  const header = (name: string) => headerValues(rawHeaders, name).join();
  return (
    method === "GET" &&
    target === "/" &&
    header("sec-fetch-mode") === "navigate" &&
    header("sec-fetch-dest") === "document" &&
    headerValues(rawHeaders, "origin").length === 0
  );
}

function checkSize({ rawHeaders, target }: CheckedHead): Refusal | null {
  if (rawHeaders.length / 2 > MAX_HEADERS) {
    return refuse("headers-too-large", `the request has more than ${MAX_HEADERS} headers`);
  }
  if (target.length > MAX_TARGET) {
    return refuse("headers-too-large", `the address is longer than ${MAX_TARGET} characters`);
  }
  return null;
}

/**
 * The target must be a plain path. `new URL("//evil.com/x", base)` is evil.com, and so are `/\evil.com` and the absolute
 * form. A path that would need resolving is refused. No path is resolved.
 */
function checkTarget({ method, target }: CheckedHead): Refusal | null {
  if (method === "CONNECT" || method === "TRACE") return refuse("bad-request", `${method} is not served`);
  const path = withoutQuery(target);
  const isPath = path.startsWith("/") && !path.startsWith("//");
  const hasUnsafeCharacter = /[\\#]|[^\x21-\x7e]/.test(target) || /%0[09ad]/i.test(path);
  if (isPath && !hasUnsafeCharacter && !hasDotSegment(path)) return null;
  return refuse("bad-request", "the address is not a plain path");
}

function hasDotSegment(path: string): boolean {
  const decoded = path.replace(/%2e/gi, ".").replace(/%2f|%5c/gi, "/");
  return /\/\.{1,2}(?:[/;]|$)/.test(decoded);
}

/** One request here must be one request at the gateway (CVE-2026-29057 and others like it). */
function checkFraming({ method, rawHeaders }: CheckedHead): Refusal | null {
  const codings = headerValues(rawHeaders, "transfer-encoding");
  // A request for a WebSocket has no body. With a length, the gateway would take the next request for the body.
  const isWebSocket = headerValues(rawHeaders, "upgrade").some((value) => /websocket/i.test(value));
  if (isWebSocket && (codings.length > 0 || hasHeader(rawHeaders, "content-length"))) {
    return refuse("bad-request", "a request for a websocket has no body");
  }
  if (codings.length === 0) return null;
  if (codings.length > 1 || codings[0]?.trim().toLowerCase() !== "chunked") {
    return refuse("bad-request", "only transfer-encoding: chunked is accepted");
  }
  // http-proxy-3 sends a chunked DELETE or OPTIONS with content-length 0 and the body behind it.
  if (method === "DELETE" || method === "OPTIONS") {
    return refuse("bad-request", `send ${method} with content-length, not chunked`);
  }
  return null;
}

function checkExpectation(rawHeaders: readonly string[]): Refusal | null {
  const expected = headerValues(rawHeaders, "expect");
  if (expected.length === 0 || expected.join().trim().toLowerCase() === "100-continue") return null;
  return refuse("bad-request", "only expect: 100-continue is accepted");
}

function checkCredentials(rawHeaders: readonly string[]): Refusal | null {
  for (const name of CREDENTIAL_HEADERS) {
    if (headerValues(rawHeaders, name).length > 1) {
      // Claude Code hides every message in which it reads the name of such a header.
      return refuse("bad-request", "a header with a token or key is sent twice");
    }
  }
  return null;
}

function checkHops(rawHeaders: readonly string[]): Refusal | null {
  const hops = headerValues(rawHeaders, HOPS_HEADER);
  // A count that keybearer did not write, such as -1000, would let a loop run that long.
  if (hops.every((hop) => /^\d$/.test(hop) && Number(hop) < MAX_HOPS)) return null;
  return refuse(
    "loop",
    "this request went through keybearer before. a gateway's base_url points back at keybearer",
  );
}

function hasHeader(rawHeaders: readonly string[], name: string): boolean {
  return headerValues(rawHeaders, name).length > 0;
}
