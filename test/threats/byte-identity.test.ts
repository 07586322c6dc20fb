import { randomInt } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import * as zlib from "node:zlib";
import t from "tap";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { random } from "../doubles/random.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { headersIn, ResponseReader } from "../doubles/response-reader.ts";
import { dechunked } from "../doubles/stimulus.ts";

/**
 * What a tool sends and what a gateway answers pass byte for byte: address, body, and the end-to-end headers with their
 * case, order and doubles. KEYBEARER_IDENTITY_SEED repeats the exchanges of a run that failed.
 */
const EXCHANGES = repeats("KEYBEARER_IDENTITY_EXCHANGES", 150, 3000);
const SEED = Number(process.env.KEYBEARER_IDENTITY_SEED ?? randomInt(2 ** 31));
const CLIENTS = 6;
const LARGEST = 300_000;
/** The bodies of one exchange have this size. */
const HUGE = 2 * 1024 * 1024;
const HUGE_AT = 7;

const METHODS = ["GET", "HEAD", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"];

/** What a gateway has no business to know, what belongs to one connection only, and what is narrowed. */
const NOT_FOR_GATEWAYS =
  /^(?:host|connection|transfer-encoding|content-length|te|cookie|referer|via|forwarded|x-forwarded-.*|authorization|x-api-key|api-key|x-keybearer-.*|x-nominated|accept-encoding)$/i;
/** What keybearer adds to an answer, and what belongs to one connection only. */
const NOT_FOR_CLIENTS = /^(?:connection|keep-alive|transfer-encoding|x-keybearer-.*|x-should-retry)$/i;

type Header = readonly [name: string, value: string];
type Framing = "length" | "chunks" | "close";

interface Message {
  readonly headers: readonly Header[];
  /** null: there is none, and nothing is said about its length. */
  readonly body: Buffer | null;
  readonly framing: Framing;
  /** Where the body is cut: into chunks, and into packets. */
  readonly pieces: readonly Buffer[];
}

interface Exchange {
  readonly index: number;
  readonly method: string;
  readonly target: string;
  readonly isJson: boolean;
  readonly request: Message;
  readonly status: string;
  readonly response: Message;
}

/** Makes exchanges, the same ones for the same seed. */
class Maker {
  readonly #below: (n: number) => number;

  constructor(seed: number) {
    this.#below = random(seed);
  }

  exchange(index: number, token: string, host: string): Exchange {
    const isHuge = index === HUGE_AT;
    const method = isHuge ? "POST" : this.#pick(METHODS);
    const hasBody = method !== "HEAD" && (!["GET", "OPTIONS"].includes(method) || this.#oneIn(8));
    const isJson = hasBody && (isHuge || this.#oneIn(2));
    const size = isHuge ? HUGE : this.#size();
    const headers: Header[] = [
      ["Host", host],
      this.#oneIn(3) ? ["X-Api-Key", token] : ["AUTHORIZATION", `Bearer ${token}`],
      ["X-Exchange", String(index)],
      ...this.#requestHeaders(),
    ];
    if (isJson) headers.push(["Content-Type", "application/json"]);
    else if (hasBody && this.#oneIn(2)) headers.push(["Content-Type", "application/octet-stream"]);
    const body = hasBody ? (isJson ? this.#json(size) : this.#bytes(size)) : null;
    // A chunked DELETE or OPTIONS is refused.
    const isChunked = method !== "DELETE" && method !== "OPTIONS" && this.#oneIn(2);
    return {
      index,
      method,
      target: this.#target(),
      isJson,
      request: this.#message(headers, body, isChunked ? "chunks" : "length"),
      ...this.#answer(method, isHuge ? HUGE : this.#size()),
    };
  }

  #answer(method: string, size: number): Pick<Exchange, "status" | "response"> {
    const status = this.#pick([
      "200 OK",
      "200 OK",
      "200 OK",
      "200 ",
      `201 ${Buffer.from("Créé 额度").toString("latin1")}`,
      "206 Partial  Content",
      "204 No Content",
      "304 Not Modified",
      "307 Elsewhere",
      "400 No",
      "404 Not Found",
      "429 Slow Down",
      "529 Overloaded",
    ]);
    const isBodiless = method === "HEAD" || /^(?:204|304)/.test(status);
    const [type, plain] = this.#pick([
      () => ["application/json; charset=utf-8", this.#json(size)] as const,
      () => ["application/octet-stream", this.#bytes(size)] as const,
      () => ["text/event-stream", this.#events(size)] as const,
      () => ["text/plain", this.#bytes(size)] as const,
    ])();
    const headers: Header[] = [["Content-Type", type], ...this.#headers()];
    // A long error that is compressed is unpacked, because the key may be in it.
    const isLongError = Number(status.slice(0, 3)) >= 400 && plain.length > 30_000;
    const coding = isLongError ? "" : this.#pick(["", "", "gzip", "br", "zstd", "unknown"]);
    if (coding !== "") headers.push(["content-ENCODING", coding]);
    const framing = this.#pick(["length", "chunks", "close"] as const);
    return {
      status,
      response: this.#message(headers, isBodiless ? null : packed(coding, plain), framing),
    };
  }

  #message(headers: readonly Header[], body: Buffer | null, framing: Framing): Message {
    const pieces: Buffer[] = [];
    for (let at = 0; body !== null && at < body.length; ) {
      const length = this.#oneIn(3) ? 1 + this.#below(40) : 1 + this.#below(100_000);
      // Each takes a turn of the event loop.
      const end = pieces.length < 12 ? at + length : body.length;
      pieces.push(body.subarray(at, end));
      at = end;
    }
    return { headers: this.#shuffled(headers), body, framing, pieces };
  }

  #requestHeaders(): Header[] {
    const some: Header[] = [
      ["accept", "*/*"],
      ["Accept-Encoding", this.#pick(["gzip, deflate, br", "gzip,br", "identity", "br;q=1.0, gzip;q=0.8"])],
      ["User-Agent", "odd/1.0 (caf\xe9)"],
      ["anthropic-beta", "one"],
      ["Anthropic-Beta", "two"],
      ["constructor", "1"],
      ["Cookie", "session=1"],
      ["Via", "1.1 somewhere"],
      ["X-Forwarded-For", "10.0.0.1"],
      ["Connection", "keep-alive, X-Nominated"],
      ["X-Nominated", "1"],
    ];
    return [...some.filter(() => this.#oneIn(3)), ...this.#headers()];
  }

  /** With names in any case, of any character that is allowed, some of them there twice. */
  #headers(): Header[] {
    const headers: Header[] = [];
    const count = this.#below(12);
    while (headers.length < count) {
      const name = `x-${this.#text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+.^_`|~-", 1 + this.#below(12))}`;
      const cased = this.#oneIn(2) ? name.toUpperCase() : name;
      headers.push([cased, this.#value()]);
      if (this.#oneIn(4)) headers.push([this.#oneIn(2) ? cased : cased.toLowerCase(), this.#value()]);
    }
    return headers;
  }

  #value(): string {
    const text = Array.from({ length: this.#below(40) }, () => {
      const byte = this.#below(256);
      return byte < 0x20 || byte === 0x7f ? "\t" : String.fromCharCode(byte);
    });
    return text.join("").replace(/^[ \t]+|[ \t]+$/g, "");
  }

  #target(): string {
    const path = this.#pick([
      "/v1/chat/completions",
      "/v1/messages",
      "/v1/responses/resp_1",
      "/v1/files",
      "/v1/a%2fb/%c3%a9",
      "/v1//models/",
      "/v1/[a]{b}|c^d`e<f>\"'",
      "/v1/.hidden/a..b;c=d/@:,!$*+",
    ]);
    const odd = "abcXYZ019%&&==??/../;:@!$'()*+,-._~[]{}|^`<>\"";
    return this.#oneIn(2) ? path : `${path}?${this.#text(odd, this.#below(60))}`;
  }

  #json(size: number): Buffer {
    const content = this.#bytes(Math.ceil(size * 0.7)).toString("latin1");
    return Buffer.from(
      ` {"model" : "m-${this.#below(9)}",\r\n"messages":[${JSON.stringify({ content })}]}\n`,
    );
  }

  #events(size: number): Buffer {
    const ends = ["\n\n", "\r\n\r\n", "\r\r"];
    let text = ": ping\n\n";
    while (text.length < size)
      text += `event: x\ndata: {"t":${JSON.stringify(this.#bytes(300).toString("latin1"))}}${this.#pick(ends)}`;
    return Buffer.from(`${text}data: [DONE]\n\n`, "latin1");
  }

  /** As many small ones as large ones. */
  #size(): number {
    return this.#oneIn(10) ? 0 : Math.floor(LARGEST ** (this.#below(1000) / 1000));
  }

  #bytes(size: number): Buffer {
    const bytes = Buffer.alloc(size);
    const seed = this.#below(2 ** 31);
    // Cheap, and different at each place: a piece that is lost, doubled or moved is seen.
    for (let at = 0; at + 4 <= size; at += 4) bytes.writeUInt32LE((seed + at * 2_654_435_761) >>> 0, at);
    return bytes;
  }

  #text(from: string, length: number): string {
    return Array.from({ length }, () => from[this.#below(from.length)]).join("");
  }

  #shuffled<T>(of: readonly T[]): T[] {
    return of
      .map((each) => ({ each, at: this.#below(1000) }))
      .sort((a, b) => a.at - b.at)
      .map(({ each }) => each);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#below(from.length)] as T;
  }

  #oneIn(n: number): boolean {
    return this.#below(n) === 0;
  }
}

function packed(coding: string, plain: Buffer): Buffer {
  if (coding === "gzip") return zlib.gzipSync(plain, { level: 1 });
  if (coding === "br")
    return zlib.brotliCompressSync(plain, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } });
  // Node 20 has no zstd. Bytes that only claim to be compressed pass as well.
  if (coding === "zstd" && "zstdCompressSync" in zlib)
    return (zlib.zstdCompressSync as (bytes: Buffer) => Buffer)(plain);
  return plain;
}

/** A message as it goes over the wire, packet by packet. */
function packetsOf(line: string, { headers, body, framing, pieces }: Message): Buffer[] {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`);
  if (body !== null && framing === "length") lines.push(`Content-Length: ${body.length}\r\n`);
  if (body !== null && framing === "chunks") lines.push("Transfer-Encoding: chunked\r\n");
  if (body !== null && framing === "close") lines.push("Connection: close\r\n");
  const head = Buffer.from(`${line}\r\n${lines.join("")}\r\n`, "latin1");
  if (framing !== "chunks" || body === null) return [head, ...pieces];
  const chunks = pieces.map((piece) =>
    Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]),
  );
  return [head, ...chunks, Buffer.from("0\r\n\r\n")];
}

async function write(socket: Socket, packets: readonly Buffer[]): Promise<void> {
  for (const packet of packets) {
    if (!socket.writable) return;
    socket.write(packet);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const text = (headers: readonly Header[]) => headers.map(([name, value]) => `${name}: ${value}`).join("\n");

function codingsIn(headers: readonly Header[]): string[] {
  const values = headers
    .filter(([name]) => name.toLowerCase() === "accept-encoding")
    .map(([, value]) => value);
  return values.join().split(/\s*,\s*/);
}

/** Without case and order of the names, but with the order of the values of each. */
function byName(headers: readonly Header[]): string {
  const lower = headers.map(([name, value]): Header => [name.toLowerCase(), value]);
  return text(lower.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}

/** Doubles stand where the first of them stood, as http-proxy-3 sends them. */
function grouped(headers: readonly Header[]): readonly Header[] {
  return headers.flatMap(([name], at) => {
    const same = (other: Header) => other[0].toLowerCase() === name.toLowerCase();
    return headers.findIndex(same) === at
      ? headers.filter(same).map(([, value]): Header => [name, value])
      : [];
  });
}

interface Scene {
  readonly one: OneTool;
  readonly exchanges: readonly Exchange[];
  readonly faults: string[];
}

function checkRequest({ faults }: Scene, exchange: Exchange, call: GatewayCall): void {
  const { index, method, target, request, isJson } = exchange;
  const say = (what: string) => faults.push(`exchange ${index} (${method} ${target}): ${what}`);
  // A body that is read is sent with all of these as they came. What passes unread goes through http-proxy-3, which drops
  // an empty query and puts headers of one name together.
  const isRead = isJson && (request.body?.length ?? 0) > 0 && !target.startsWith("/v1/files");
  const [line] = call.head.split("\r\n", 1);
  const isExact = line === `${method} ${target} HTTP/1.1`;
  if (!isExact && (isRead || line !== `${method} ${target.replace(/\?$/, "")} HTTP/1.1`))
    say(`the gateway got ${JSON.stringify(line)}`);
  const isChunked = call.header("transfer-encoding").length > 0;
  const body = isChunked ? dechunked(call.body()) : call.body();
  if (!body.equals(request.body ?? Buffer.alloc(0)))
    say(`the gateway got ${body.length} bytes of body that are not those ${request.body?.length}`);
  const sent = request.headers.filter(([name]) => !NOT_FOR_GATEWAYS.test(name));
  const got = headersIn(call.head).filter(([name]) => !NOT_FOR_GATEWAYS.test(name));
  if (byName(got) !== byName(sent))
    say(`the gateway got the headers\n${byName(got)}\ninstead of\n${byName(sent)}`);
  const wanted = codingsIn(request.headers);
  const added = codingsIn(headersIn(call.head)).filter((coding) => !wanted.includes(coding));
  if (added.join() !== "" && added.join() !== "identity") say(`${added.join()} was added to accept-encoding`);
  const isSame = text(got) === text(sent) || (!isRead && text(got) === text(grouped(sent)));
  if (!isSame)
    say(`the gateway got the headers in another case or order:\n${text(got)}\ninstead of\n${text(sent)}`);
}

function checkResponse({ faults }: Scene, exchange: Exchange, reader: ResponseReader): void {
  const { index, method, target, status, response } = exchange;
  const say = (what: string) => faults.push(`exchange ${index} (${method} ${target}): ${what}`);
  const [line] = reader.head.split("\r\n", 1);
  if (line !== `HTTP/1.1 ${status}`) say(`the client got ${JSON.stringify(line)}`);
  if (!reader.isWhole) say("the answer was cut off");
  if (reader.extraBytes > 0) say("more came than the answer");
  const body = reader.body();
  if (!body.equals(response.body ?? Buffer.alloc(0)))
    say(`the client got ${body.length} bytes of body that are not those ${response.body?.length}`);
  const sent = response.headers.filter(([name]) => !NOT_FOR_CLIENTS.test(name));
  if (response.body !== null && response.framing === "length")
    sent.push(["Content-Length", String(response.body.length)]);
  const got = reader.headers.filter(([name]) => !NOT_FOR_CLIENTS.test(name));
  if (text(got) !== text(sent)) say(`the client got the headers\n${text(got)}\ninstead of\n${text(sent)}`);
}

/** One exchange after the other, over one connection as long as it lasts. */
async function runClient(scene: Scene, take: () => Exchange | undefined): Promise<void> {
  let socket: Socket | null = null;
  let onData = (_bytes: Buffer): void => {};
  let onClose = (): void => {};
  const open = async (): Promise<Socket> => {
    const opened = connect({ port: scene.one.port, host: "127.0.0.1", noDelay: true });
    opened.on("error", () => {});
    // One listener for all exchanges on the connection: listeners of each exchange would add up.
    opened.on("data", (bytes: Buffer) => onData(bytes));
    opened.on("close", () => {
      if (opened === socket) onClose();
    });
    await once(opened, "connect");
    return opened;
  };
  for (let exchange = take(); exchange !== undefined; exchange = take()) {
    if (socket === null || !socket.writable) socket = await open();
    const reader = new ResponseReader(exchange.method);
    const current: Socket = socket;
    const over = new Promise<void>((resolve) => {
      onData = (bytes) => {
        reader.read(bytes);
        if (reader.isWhole) resolve();
      };
      onClose = () => {
        reader.end();
        resolve();
      };
    });
    await write(current, packetsOf(`${exchange.method} ${exchange.target} HTTP/1.1`, exchange.request));
    await over;
    checkResponse(scene, exchange, reader);
    if (reader.header("connection") === "close") current.destroy();
  }
  socket?.destroy();
}

t.test(
  `addresses, bodies and end-to-end headers pass byte for byte, both ways (seed ${SEED})`,
  { timeout: 120_000 },
  async (t) => {
    const exchanges: Exchange[] = [];
    let asked = 0;
    const gateway = await startRawGateway(t, async (call) => {
      asked += 1;
      await call.whole;
      const exchange = exchanges[Number(call.header("x-exchange")[0])];
      if (exchange === undefined) return void call.socket.destroy();
      checkRequest(scene, exchange, call);
      await write(call.socket, packetsOf(`HTTP/1.1 ${exchange.status}`, exchange.response));
      if (exchange.response.body !== null && exchange.response.framing === "close") call.socket.end();
    });
    const one = await startWithOneTool(t, gateway.origin);
    const scene: Scene = { one, exchanges, faults: [] };
    const maker = new Maker(SEED);
    for (let index = 0; index < EXCHANGES; index += 1)
      exchanges.push(maker.exchange(index, one.token, one.host));
    const began = performance.now();
    let next = 0;
    const take = () => exchanges[next++];
    await Promise.all(Array.from({ length: CLIENTS }, () => runClient(scene, take)));
    t.comment(`${EXCHANGES} exchanges in ${Math.round(performance.now() - began)} ms`);

    t.strictSame(scene.faults.slice(0, 5), [], `${scene.faults.length} faults with seed ${SEED}`);
    t.equal(asked, EXCHANGES, "each was asked for once");
    await stillHealthy(t, one, [one.key, one.token]);
  },
);
