import { CREDENTIAL_HEADERS } from "../identity/credential.ts";
import { type Refusal, refuse } from "../refusal.ts";

/** The head of a request as it arrived. */
export interface RequestHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Name, value, name, value: before Node joins or drops duplicates. */
  readonly rawHeaders: readonly string[];
}

export interface Allowed {
  /** Every `host:port` that may stand in Host. */
  readonly hosts: readonly string[];
  /** Every origin that some tool allows. identify.ts checks whether the calling tool does. */
  readonly origins: readonly string[];
}

const MAX_HEADERS = 100;
const MAX_TARGET = 8192;
/** One keybearer may call another one, once. */
const MAX_HOPS = 2;
export const HOPS_HEADER = "x-keybearer-hops";

/**
 * Checks a request before anything else, whoever sends it. A loopback address does not keep web pages out: any page can send
 * requests to it, and a name that resolves to 127.0.0.1 makes them same-origin. So Host and browser headers come first.
 */
export function guard(head: RequestHead, allowed: Allowed): Refusal | null {
  const headers = new Headers(head.rawHeaders);
  return (
    checkHost(headers, allowed.hosts) ??
    checkBrowser(headers, allowed.origins) ??
    checkShape(head, headers) ??
    checkHops(headers)
  );
}

/** Checks that hold for the dashboard as well. */
export function checkShape(head: RequestHead, headers: Headers): Refusal | null {
  return (
    checkSize(head) ??
    checkTarget(head) ??
    checkFraming(head, headers) ??
    checkExpectation(headers) ??
    checkCredentials(headers)
  );
}

/** The values of a header by its lower-case name. */
export class Headers {
  readonly #raw: readonly string[];

  constructor(rawHeaders: readonly string[]) {
    this.#raw = rawHeaders;
  }

  get(name: string): readonly string[] | undefined {
    let values: string[] | undefined;
    for (let i = this.#next(name, 0); i !== -1; i = this.#next(name, i + 2)) {
      values ??= [];
      values.push(this.#raw[i + 1] ?? "");
    }
    return values;
  }

  has(name: string): boolean {
    return this.#next(name, 0) !== -1;
  }

  #next(name: string, from: number): number {
    for (let i = from; i + 1 < this.#raw.length; i += 2) {
      const given = this.#raw[i] ?? "";
      if (given.length === name.length && given.toLowerCase() === name) return i;
    }
    return -1;
  }
}

export function checkHost(headers: Headers, hosts: readonly string[]): Refusal | null {
  const given = headers.get("host") ?? [];
  const [host] = given;
  // Node silently takes the first of two Hosts, and none from HTTP/1.0.
  if (given.length !== 1 || !host) return refuse("bad-request", "the request must name exactly one host");
  if (hosts.includes(host.toLowerCase())) return null;
  return refuse("host-not-allowed", `this is keybearer's port, and it answers only as ${hosts.join(", ")}`);
}

function checkBrowser(headers: Headers, origins: readonly string[]): Refusal | null {
  const refused = () => refuse("browser-request", "requests from web pages are not served");
  const origin = headers.get("origin");
  if (origin && (origin.length !== 1 || !origins.includes(origin[0] ?? ""))) return refused();
  if (headers.has("sec-fetch-site") && !origin) return refused();
  // Node's fetch, and so the official SDKs, send sec-fetch-mode: cors and no other sec-fetch header.
  const modes = headers.get("sec-fetch-mode");
  if (modes && (modes.length !== 1 || modes[0] !== "cors")) return refused();
  const others =
    headers.has("sec-fetch-dest") ||
    headers.has("sec-fetch-user") ||
    headers.has("access-control-request-method");
  return others && !origin ? refused() : null;
}

function checkSize(head: RequestHead): Refusal | null {
  if (head.rawHeaders.length / 2 > MAX_HEADERS) {
    return refuse("headers-too-large", `the request has more than ${MAX_HEADERS} headers`);
  }
  if (head.target.length > MAX_TARGET) {
    return refuse("headers-too-large", `the address is longer than ${MAX_TARGET} characters`);
  }
  return null;
}

/**
 * The target must be a plain path. `new URL("//evil.com/x", base)` is evil.com, and so are `/\evil.com` and the absolute
 * form. A path that would need resolving is refused, and none is ever resolved.
 */
function checkTarget(head: RequestHead): Refusal | null {
  if (head.method === "CONNECT" || head.method === "TRACE") {
    return refuse("bad-request", `${head.method} is not served`);
  }
  const { target } = head;
  const query = target.indexOf("?");
  const path = query === -1 ? target : target.slice(0, query);
  const plain = path.startsWith("/") && !path.startsWith("//");
  if (!plain || /[\\#]|[^\x21-\x7e]/.test(target) || hasDotSegment(path)) {
    return refuse("bad-request", "the address is not a plain path");
  }
  return null;
}

function hasDotSegment(path: string): boolean {
  if (!path.includes(".") && !path.includes("%")) return false;
  const decoded = path.replace(/%2e/gi, ".").replace(/%2f|%5c/gi, "/");
  return decoded.split("/").some((segment) => /^\.{1,2}(?:;|$)/.test(segment)) || /%00|%0[9ad]/i.test(path);
}

/** One request here must be one request at the gateway (CVE-2026-29057 and others like it). */
function checkFraming(head: RequestHead, headers: Headers): Refusal | null {
  // A request for a WebSocket has no body. With a length, the gateway would take the next request for the body.
  const websocket = headers.get("upgrade")?.some((value) => /websocket/i.test(value)) ?? false;
  if (websocket && (headers.has("content-length") || headers.has("transfer-encoding"))) {
    return refuse("bad-request", "a request for a websocket has no body");
  }
  const coding = headers.get("transfer-encoding");
  if (coding === undefined) return null;
  if (coding.length !== 1 || coding[0]?.trim().toLowerCase() !== "chunked") {
    return refuse("bad-request", "no transfer coding but chunked is taken");
  }
  // http-proxy-3 sends a chunked DELETE or OPTIONS with content-length 0 and the body behind it.
  if (head.method === "DELETE" || head.method === "OPTIONS") {
    return refuse("bad-request", `a chunked ${head.method} is not taken; send its content-length`);
  }
  return null;
}

function checkExpectation(headers: Headers): Refusal | null {
  const expected = headers.get("expect");
  if (expected === undefined || expected.join().trim().toLowerCase() === "100-continue") return null;
  return refuse("bad-request", "no expectation but 100-continue is met");
}

function checkCredentials(headers: Headers): Refusal | null {
  for (const name of CREDENTIAL_HEADERS) {
    const values = headers.get(name);
    if (values !== undefined && values.length > 1)
      return refuse("bad-request", `the header ${name} is there twice`);
  }
  return null;
}

function checkHops(headers: Headers): Refusal | null {
  const hops = headers.get(HOPS_HEADER);
  // A count that keybearer did not write, such as -1000, would let a loop run that long.
  if (hops === undefined || hops.every((hop) => /^\d$/.test(hop) && Number(hop) < MAX_HOPS)) return null;
  return refuse(
    "loop",
    "this request went through keybearer before. a gateway's base_url points back at keybearer",
  );
}
