import { CREDENTIAL_HEADERS } from "../identity/credential.ts";
import { type Refusal, refuse } from "../refusal.ts";

/** The head of a request, as it came over the wire. */
export interface RequestHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Name, value, name, value: before Node joined, dropped or kept the first of doubles. */
  readonly rawHeaders: readonly string[];
}

export interface Doors {
  /** Every `host:port` under which this port may be called. */
  readonly hosts: readonly string[];
  /** Every origin that some tool allows; whether this tool does is asked again once it is known. */
  readonly origins: readonly string[];
}

const MOST_HEADERS = 100;
const LONGEST_TARGET = 8192;
/** A daemon may stand behind another one, once. */
const MOST_HOPS = 2;
export const HOPS_HEADER = "x-keybearer-hops";

/**
 * The first thing every request meets, before routing, body or log: nothing here depends on who is calling.
 * A loopback address alone keeps nobody out: any web page can send requests to it, and a name of the attacker's that
 * resolves to 127.0.0.1 even makes them same-origin. Host and browser headers decide that, so they come first.
 */
export function guard(head: RequestHead, doors: Doors): Refusal | null {
  const headers = new Headers(head.rawHeaders);
  return (
    checkHost(headers, doors.hosts) ??
    checkBrowser(headers, doors.origins) ??
    checkShape(head, headers) ??
    checkHops(headers)
  );
}

/** What a request must be like whoever sends it. */
export function checkShape(head: RequestHead, headers: Headers): Refusal | null {
  return (
    checkSize(head) ??
    checkTarget(head) ??
    checkFraming(head, headers) ??
    checkExpectation(headers) ??
    checkCredentials(headers)
  );
}

/** Every value of a header, by its lower-case name. Looked for when it is asked for: most are never asked for. */
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
  // Node hands the first of two Hosts to the handler without a word, and none at all for HTTP/1.0.
  if (given.length !== 1 || !host) return refuse("bad-request", "the request must name exactly one host");
  if (hosts.includes(host.toLowerCase())) return null;
  return refuse("host-not-allowed", `this is keybearer's port, and it answers only as ${hosts.join(", ")}`);
}

function checkBrowser(headers: Headers, origins: readonly string[]): Refusal | null {
  const no = () => refuse("browser-request", "requests from web pages are not served");
  const origin = headers.get("origin");
  if (origin && (origin.length !== 1 || !origins.includes(origin[0] ?? ""))) return no();
  if (headers.has("sec-fetch-site") && !origin) return no();
  // Node's own fetch, and with it the official SDKs, sends sec-fetch-mode: cors and nothing else of that family.
  const modes = headers.get("sec-fetch-mode");
  if (modes && (modes.length !== 1 || modes[0] !== "cors")) return no();
  const others =
    headers.has("sec-fetch-dest") ||
    headers.has("sec-fetch-user") ||
    headers.has("access-control-request-method");
  return others && !origin ? no() : null;
}

function checkSize(head: RequestHead): Refusal | null {
  if (head.rawHeaders.length / 2 > MOST_HEADERS) {
    return refuse("headers-too-large", `the request has more than ${MOST_HEADERS} headers`);
  }
  if (head.target.length > LONGEST_TARGET) {
    return refuse("headers-too-large", `the address is longer than ${LONGEST_TARGET} characters`);
  }
  return null;
}

/**
 * The target must be a plain path. `new URL("//evil.com/x", base)` is evil.com, and so are `/\evil.com` and the
 * absolute form: a path that needs resolving is refused, so that none is ever resolved.
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
  // Nearly no path has either, and then there is nothing to decode or to take apart.
  if (!path.includes(".") && !path.includes("%")) return false;
  const decoded = path.replace(/%2e/gi, ".").replace(/%2f|%5c/gi, "/");
  return decoded.split("/").some((segment) => /^\.{1,2}(?:;|$)/.test(segment)) || /%00|%0[9ad]/i.test(path);
}

/** One request here must be one request there, whatever its framing (CVE-2026-29057 and its family). */
function checkFraming(head: RequestHead, headers: Headers): Refusal | null {
  // A WebSocket's request has no body. Its length would be sent on, and the gateway would take the next request on
  // that connection, another tool's perhaps, for it.
  const websocket = headers.get("upgrade")?.some((value) => /websocket/i.test(value)) ?? false;
  if (websocket && (headers.has("content-length") || headers.has("transfer-encoding"))) {
    return refuse("bad-request", "a request for a websocket has no body");
  }
  const coding = headers.get("transfer-encoding");
  if (coding === undefined) return null;
  if (coding.length !== 1 || coding[0]?.trim().toLowerCase() !== "chunked") {
    return refuse("bad-request", "no transfer coding but chunked is taken");
  }
  // http-proxy-3 turns a chunked DELETE or OPTIONS into content-length 0 and pipes the body behind it.
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
  // Only our own spelling counts: what a client makes up, such as -1000, would let a loop run that long.
  if (hops === undefined || hops.every((hop) => /^\d$/.test(hop) && Number(hop) < MOST_HOPS)) return null;
  return refuse(
    "loop",
    "this request went through keybearer before. a gateway's base_url points back at keybearer",
  );
}
