import { createHash } from "node:crypto";

/** Numbers that look random and are the same again for the same seed. */
export interface Dice {
  /** 0 up to, not including, n. */
  below(n: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  bytes(length: number): Buffer;
}

export function diceOf(seed: string): Dice {
  // mulberry32: small, and good enough to wander through a grammar.
  let state = createHash("sha256").update(seed).digest().readUInt32LE(0);
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n: number) => Math.floor(next() * n);
  return {
    below,
    chance: (probability) => next() < probability,
    pick: (from) => from[below(from.length)] as (typeof from)[number],
    bytes: (length) => Buffer.from(Array.from({ length }, () => below(256))),
  };
}

/** Names one request. The end of it tells a marker that was made from one that mutation made up. */
function markerOf(session: number, n: number): string {
  const name = `m${session}x${n}y`;
  return name + createHash("sha256").update(name).digest("hex").slice(0, 8);
}

export interface Marked {
  readonly marker: string;
  readonly session: number;
}

export function findMarkers(text: string): Marked[] {
  return [...text.matchAll(/m(\d+)x(\d+)y[0-9a-f]{8}/g)]
    .map(([marker, session, n]) => ({ marker, session: Number(session), n: Number(n) }))
    .filter(({ marker, session, n }) => marker === markerOf(session, n));
}

export interface Place {
  readonly port: number;
  /** Valid tokens, one for each tool. */
  readonly tokens: readonly string[];
}

const ENDINGS = ["answer", "answer", "half-close", "reset", "close", "linger"] as const;

export type Ending = (typeof ENDINGS)[number];

/** What goes over one connection. */
export interface Session {
  readonly bytes: Buffer;
  /** How many pieces it is sent in. */
  readonly pieces: number;
  readonly ending: Ending;
  /** The tools whose tokens may be somewhere in it: by number. */
  readonly tools: ReadonlySet<number>;
  /** Plain valid requests, nothing wrong with them: which tool's key each must be sent with, by its marker. */
  readonly plain: ReadonlyMap<string, number>;
  /** Requests whose credentials are none, or are too many, by their markers: they must not arrive. */
  readonly never: ReadonlySet<string>;
}

export function makeSession(dice: Dice, index: number, place: Place): Session {
  const tools = new Set<number>();
  const plain = new Map<string, number>();
  const never = new Set<string>();
  const way = { dice, place, tools, plain, never, marker: (n: number) => markerOf(index, n) };
  const bytes = sessionBytes(way);
  const patient = plain.size > 0 && dice.chance(0.8);
  const ending = patient ? "answer" : dice.pick(ENDINGS);
  return { bytes, pieces: dice.chance(0.3) ? 1 + dice.below(12) : 1, ending, tools, plain, never };
}

interface Way {
  readonly dice: Dice;
  readonly place: Place;
  readonly tools: Set<number>;
  readonly plain: Map<string, number>;
  readonly never: Set<string>;
  readonly marker: (n: number) => string;
}

function sessionBytes(way: Way): Buffer {
  const { dice } = way;
  const count = dice.chance(0.4) ? 1 + dice.below(6) : 1;
  const several = (make: (n: number) => Buffer) =>
    Buffer.concat(Array.from({ length: count }, (_, n) => make(n)));
  const kind = dice.below(10);
  if (kind === 0) return dice.bytes(1 + dice.below(dice.chance(0.1) ? 40_000 : 400));
  if (kind <= 2) return several((n) => plainRequest(way, n));
  if (kind <= 6) return several((n) => oddRequest(way, n));
  // Spoiled bytes are no longer a plain request.
  const spoiled = several((n) => (dice.chance(0.6) ? plainRequest(way, n) : oddRequest(way, n)));
  way.plain.clear();
  way.never.clear();
  return mutate(dice, spoiled);
}

function plainRequest(way: Way, n: number): Buffer {
  const { dice, place } = way;
  const tool = dice.below(place.tokens.length);
  way.tools.add(tool);
  way.plain.set(way.marker(n), tool);
  const token = place.tokens[tool] ?? "";
  const credential = dice.pick([
    `Authorization: Bearer ${token}`,
    `x-api-key: ${token}`,
    `AUTHORIZATION: bearer ${token}\r\nX-Api-Key: ${token}`,
    `api-key: ${token}`,
  ]);
  const body = dice.chance(0.5) ? JSON.stringify({ model: "m", content: smuggled(way) }) : "";
  const chunked = body !== "" && dice.chance(0.5);
  const method =
    body === ""
      ? dice.pick(["GET", "DELETE"])
      : dice.pick(chunked ? ["POST", "PUT", "GET"] : ["POST", "GET", "DELETE"]);
  const lines = [
    `${method} /v1/f/${way.marker(n)} HTTP/1.1`,
    `Host: ${dice.pick(["localhost", "127.0.0.1", "[::1]"])}:${place.port}`,
    credential,
    ...(dice.chance(0.2) ? ["Connection: keep-alive, content-length, transfer-encoding, x-api-key"] : []),
    ...(dice.chance(0.1) ? ["x_api_key: sk-somebody-elses", "Authorization_: x", "X-Goog_Api-Key: y"] : []),
    ...(chunked ? ["Transfer-Encoding: chunked"] : body === "" ? [] : [`Content-Length: ${body.length}`]),
  ];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${chunked ? chunks(dice, body) : body}`, "latin1");
}

/** A request hidden in a body. It shows no token: should it ever arrive by itself, that is seen. */
function smuggled({ dice, place }: Way): string {
  if (dice.chance(0.5)) return "x".repeat(dice.below(200));
  return `0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: localhost:${place.port}\r\nx: y\r\n\r\n`;
}

function chunks(dice: Dice, body: string): string {
  let text = "";
  for (let at = 0; at < body.length; ) {
    const size = 1 + dice.below(body.length - at);
    text += `${size.toString(16)}\r\n${body.slice(at, at + size)}\r\n`;
    at += size;
  }
  return `${text}0\r\n\r\n`;
}

const ODD_METHODS = [
  ...["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND", "M-SEARCH"],
  ...["QUERY", "PRI", "get", "G ET", "", "GET\t", "\0GET", "BREW", "LINK", "SOURCE"],
];

function oddTarget(way: Way, n: number): string {
  const { dice, place } = way;
  const path = `/v1/f/${way.marker(n)}`;
  const token = place.tokens[0] ?? "";
  const odd = [
    `/${path}`,
    `http://localhost:${place.port}${path}`,
    `http://evil.test${path}`,
    `/v1/../..${path}`,
    `/v1/%2e%2e${path}`,
    `/v1/.;/..${path}`,
    "*",
    `${path}#x`,
    `\\${path}`,
    `${path}?${"q".repeat(9000)}`,
    `${path}\0`,
    `${path}%00`,
    `${path} x`,
    `${path}\xff`,
    "/healthz",
    "/",
    "",
    `localhost:${place.port}`,
    `/v1/v1${path}`,
    `/v1beta/models/${way.marker(n)}:generateContent`,
    `/v1/messages/${way.marker(n)}`,
    `${path}?a=b&c[]=%20`,
    `/t/nobody${path}`,
  ];
  if (dice.chance(0.06)) {
    way.tools.add(0);
    way.never.delete(way.marker(n));
    return `/t/${token}${path}`;
  }
  return dice.chance(0.6) ? path : dice.pick(odd);
}

function oddCredential(way: Way, n: number): string[] {
  const { dice, place } = way;
  const tool = dice.below(place.tokens.length);
  const token = place.tokens[tool] ?? "";
  const other = place.tokens[(tool + 1) % place.tokens.length] ?? "";
  const good = [
    [`Authorization: Bearer ${token}`],
    [`Authorization: Bearer ${token}`],
    [`Authorization: Bearer ${token}`, `x_api_key: ${other}`, "X-Api_Key: sk-somebody-elses"],
    [`Authorization:\r\n Bearer ${token}`],
    [`x-goog-api-key: ${token}`, `X-Custom: ${token}`],
    [`x-api-key: ${token}`, `Authorization: Bearer ${token}`],
  ];
  const bad = [
    [],
    [`Authorization: Bearer kb_${"a".repeat(43)}${"b".repeat(6)}`],
    [`Authorization: Bearer ${token.slice(0, -3)}`],
    [`Authorization: Bearer ${token}`, `Authorization: Bearer ${token}`],
    [`authorization: Bearer ${token}`, `Authorization: Bearer ${other}`],
    [`Authorization: Bearer ${token}`, `x-api-key: ${other}`],
    [`Authorization: Bearer ${token}`, "api-key: sk-somebody-elses-real-key-0123456789"],
    [`Authorization : Bearer ${token}`],
    ["x-api-key: sk-somebody-elses-real-key-0123456789"],
    [`Cookie: token=${token}`, `Proxy-Authorization: Bearer ${token}`],
    [`x_api_key: ${token}`, `Authorization_: Bearer ${token}`],
    [`Authorization: Basic ${Buffer.from(`x:${token}`).toString("base64")}`],
  ];
  way.tools.add(tool).add((tool + 1) % place.tokens.length);
  if (dice.chance(0.5)) return dice.pick(good);
  way.never.add(way.marker(n));
  return dice.pick(bad);
}

function oddExtras({ dice }: Way): string[] {
  const all = [
    "Connection: authorization, x-api-key, host",
    "Connection: close",
    "Connection: keep-alive, content-length, transfer-encoding",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "Expect: 200-maybe",
    "TE: trailers, chunked",
    "Trailer: authorization",
    "Origin: http://evil.test",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Mode: cors",
    "Sec-Fetch-Mode: navigate",
    "x-keybearer-hops: 1",
    "x-keybearer-hops: 99",
    "x-keybearer-hops: NaN",
    "Cookie: a=b",
    "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nVia: 1.1 x",
    "__proto__: x\r\nconstructor: y\r\ntoString: z",
    "Content-Encoding: gzip",
    "Range: bytes=0-",
    "no colon here",
    ": no name",
    "Bad Name: x",
    "X-Bare: a\nX-Lf: b",
    "X-Cr: a\rb",
    "X-Nul: a\0b",
    "X-High: \xe4\xff",
    "X-Empty:",
    `X-Long: ${"l".repeat(20_000)}`,
    Array.from({ length: 120 }, (_, n) => `X-Many-${n}: ${n}`).join("\r\n"),
    Array.from({ length: 99 }, (_, n) => `X-Many-${n}: ${n}`).join("\r\n"),
  ];
  return Array.from({ length: dice.below(3) }, () => dice.pick(all));
}

function oddFraming(way: Way): { readonly lines: string[]; readonly body: string } {
  const { dice } = way;
  const body = `${smuggled(way)}${"z".repeat(dice.chance(0.03) ? 200_000 : dice.below(100))}`;
  const right = chunks(dice, body);
  const length = body.length;
  const chunked = "Transfer-Encoding: chunked";
  return dice.pick([
    { lines: [], body: "" },
    { lines: [], body: "" },
    { lines: [], body },
    { lines: [`Content-Length: ${length}`], body },
    { lines: [`Content-Length: ${Math.max(0, length - 7)}`], body },
    { lines: [`Content-Length: ${length + 7}`], body },
    { lines: [`Content-Length: ${length}`, `Content-Length: ${length}`], body },
    { lines: [`Content-Length: ${length}`, "Content-Length: 0"], body },
    { lines: [`Content-Length: ${length}, ${length}`], body },
    { lines: [`Content-Length: +${length}`], body },
    { lines: [`Content-Length: 0x${length.toString(16)}`], body },
    { lines: ["Content-Length: -1"], body },
    { lines: ["Content-Length: 99999999999999999999"], body },
    { lines: [chunked], body: right },
    { lines: [chunked], body: right.replace("\r\n", ";name=value\r\n") },
    {
      lines: [chunked],
      body: right.replace(/0\r\n\r\n$/, "0\r\nAuthorization: Bearer trailer\r\nx: y\r\n\r\n"),
    },
    { lines: [chunked], body: right.replace("\r\n", "\n") },
    { lines: [chunked], body: `fffffffffffffffff\r\n${right}` },
    { lines: [chunked], body: `-1\r\n${right}` },
    { lines: [chunked], body: `${right.slice(0, -5)}` },
    { lines: [chunked], body: `5;${"e".repeat(20_000)}\r\nhello\r\n0\r\n\r\n` },
    { lines: [chunked, `Content-Length: ${length}`], body: right },
    { lines: ["Content-Length: 4", chunked], body: right },
    { lines: ["Transfer-Encoding: gzip, chunked"], body: right },
    { lines: ["Transfer-Encoding: chunked, identity"], body: right },
    { lines: ["Transfer-Encoding: xchunked"], body: right },
    { lines: ["Transfer-Encoding : chunked"], body: right },
    { lines: ["Transfer-Encoding:\x0bchunked"], body: right },
    { lines: [chunked, "Transfer-Encoding: identity"], body: right },
    { lines: ["Transfer_Encoding: chunked", `Content-Length: ${right.length}`], body: right },
  ]);
}

function oddRequest(way: Way, n: number): Buffer {
  const { dice, place } = way;
  const method = dice.chance(0.7) ? dice.pick(["GET", "POST", "DELETE", "OPTIONS"]) : dice.pick(ODD_METHODS);
  const version = dice.chance(0.9)
    ? "HTTP/1.1"
    : dice.pick(["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "http/1.1", "", "HTTP/1.1 x"]);
  const host = `Host: localhost:${place.port}`;
  const hosts = dice.chance(0.85)
    ? [host]
    : dice.pick([
        [],
        [host, host],
        ["Host: evil.test"],
        ["HOST: LOCALHOST"],
        [host, "Host: evil.test"],
        ["Host:"],
      ]);
  const framing = oddFraming(way);
  const headers = [...hosts, ...oddCredential(way, n), ...oddExtras(way), ...framing.lines];
  if (dice.chance(0.2)) headers.reverse();
  const end = dice.chance(0.95) ? "\r\n" : dice.pick(["\n", "\r", "\r\n\r\n"]);
  const text = [`${method} ${oddTarget(way, n)} ${version}`, ...headers].join(end);
  return Buffer.from(`${text}\r\n\r\n${framing.body}`, "latin1");
}

function mutate(dice: Dice, bytes: Buffer): Buffer {
  let result = bytes;
  for (let times = 1 + dice.below(4); times > 0; times -= 1) {
    const at = dice.below(result.length + 1);
    const to = Math.min(result.length, at + 1 + dice.below(20));
    const [before, part, after] = [result.subarray(0, at), result.subarray(at, to), result.subarray(to)];
    const insert = dice.pick([
      "\r\n",
      "\n",
      "\r",
      "\0",
      " ",
      ":",
      "\t",
      "\r\n\r\n",
      "0\r\n\r\n",
      ",",
      "chunked",
      "\xff",
    ]);
    result = dice.pick([
      Buffer.concat([before, after]),
      Buffer.concat([before, part, part, after]),
      Buffer.concat([before, Buffer.from(insert, "latin1"), part, after]),
      Buffer.concat([before, dice.bytes(part.length), after]),
      Buffer.concat([before, part.toReversed(), after]),
      before,
    ]);
  }
  return result;
}
