import type { ClientRequest, IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../clock.ts";
import { type Refusal, refuse } from "../refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { Call } from "./call.ts";
import { isModelJudged, takeCapacity } from "./capacity.ts";
import { Deadline } from "./deadline.ts";
import { ErrorBody, readErrorResponse } from "./error-response.ts";
import {
  describeFailure,
  describeTimeout,
  frontProxyFailure,
  gatewayFailure,
  gatewayTimeout,
} from "./failure.ts";
import { addOwn, reasonPhrase, responseHeaders } from "./headers.ts";
import { checkUser, enter, findCaller } from "./identify.ts";
import { KeyMask } from "./key-mask.ts";
import { NOTHING_OBSERVED, type ResponseObserver } from "./observer.ts";
import { NOTHING_SENT, type Outcome } from "./outcome.ts";
import type { Passthrough } from "./passthrough.ts";
import {
  checkRequest,
  observe,
  openRecord,
  ownHeaders,
  type ProxyDeps,
  type Stop,
  stoppedBy,
} from "./pipeline.ts";
import { endpointOf, route } from "./routes.ts";
import { settle } from "./settle.ts";
import type { UpstreamRequest } from "./upstream.ts";
import { writeSocketRefusal } from "./write-refusal.ts";

/** How long one side of a WebSocket may go on after the other has ended. */
const END_TIMEOUT_MS = 1000;

/**
 * Serves a request for a WebSocket. It passes only for a known tool whose gateway has `websockets: true`. Everything else is
 * answered 426, from which clients fall back at once to plain requests.
 */
export async function serveUpgrade(
  req: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  deps: ProxyDeps,
): Promise<void> {
  const { method = "", url = "", headers } = req;
  const call = new Call({ method, target: url, headers }, deps.snapshot(), deps.clock);
  // The server no longer listens on this connection.
  socket.on("error", () => socket.destroy());
  let outcome: Outcome = { ...NOTHING_SENT, end: "gateway-failed" };
  try {
    const stop =
      checkRequest(call, req, deps) ??
      (await checkUser(req, deps)) ??
      (await identifyUpgrade(call, req, deps)) ??
      (await enterQueue(call, req, socket, deps)) ??
      (await openRecord(call, deps)) ??
      (socket.destroyed ? "client-left" : null);
    if (stop === null) outcome = await forward(call, req, socket, head, deps);
    else {
      outcome = stoppedBy(stop);
      const { refusal } = outcome;
      if (refusal !== null)
        outcome = { ...outcome, status: writeSocketRefusal(socket, refusal, call.protocol, call.id) };
    }
  } finally {
    settle(call, outcome, deps);
  }
}

async function identifyUpgrade(call: Call, req: IncomingMessage, deps: ProxyDeps): Promise<Stop | null> {
  const off = refuse("websockets-off", "upgrades are not passed through. send a plain request");
  const found = route(call.method, req.url ?? "", req.headers.host ?? "");
  if (found.kind !== "gateway") return off;
  call.setPath(found.path, endpointOf(found.path), found.token);
  const caller = await findCaller(call, req, deps);
  if (!caller.ok) return off;
  // The record of a 426 names the tool too.
  call.tool = caller.tool;
  call.gateway = call.snapshot.gatewayOf(caller.tool);
  const isWebSocket = req.method === "GET" && req.headers.upgrade?.toLowerCase() === "websocket";
  if (!isWebSocket || !call.gateway.websockets) return off;
  // What passes in a WebSocket is not read, so limits on models, tokens and money cannot be applied to it.
  if (isModelJudged(call)) {
    const message = `tool ${caller.tool.name} has limits that need plain requests. send one`;
    return refuse("websockets-off", message);
  }
  return enter(call, caller, req.headers.origin);
}

async function enterQueue(
  call: Call,
  req: IncomingMessage,
  socket: Duplex,
  deps: ProxyDeps,
): Promise<Stop | null> {
  deps.inFlight.add(call, socket);
  // Nobody else notices when the client ends a connection that waits.
  const onEnd = () => socket.destroy();
  socket.once("end", onEnd).read(0);
  const stop = await takeCapacity(call, req.socket, deps);
  socket.off("end", onEnd);
  return stop ?? (socket.destroyed ? "client-left" : null);
}

function forward(
  call: Call,
  req: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  deps: ProxyDeps,
): Promise<Outcome> {
  const upstream = deps.upstream.request(call, req, null, false);
  return new Promise((resolve) => {
    const upgrade = new Upgrade(socket, upstream, {
      call,
      clock: deps.clock,
      ownHeaders: ownHeaders(call, deps),
      observe: (response) => observe(call, response, upstream.key, deps),
      refuse: (refusal) => writeSocketRefusal(socket, refusal, call.protocol, call.id),
      resolve,
    });
    upgrade.start(req, head, deps.upstream.passthrough);
  });
}

interface UpgradeOptions {
  readonly call: Call;
  readonly clock: Clock;
  readonly ownHeaders: readonly string[];
  readonly observe: (response: IncomingMessage) => ResponseObserver;
  /** Writes a refusal to the client at once: http-proxy-3 closes the connection right after it reports an error. */
  readonly refuse: (refusal: Refusal) => number;
  readonly resolve: (outcome: Promise<Outcome>) => void;
}

/** A request that becomes a WebSocket: bytes both ways until one side closes. */
class Upgrade {
  readonly #socket: Duplex;
  readonly #upstream: UpstreamRequest;
  readonly #options: UpgradeOptions;
  readonly #deadline: Deadline;
  #request: ClientRequest | null = null;
  #observer: ResponseObserver | null = null;
  #status: number | null = null;
  #end: RecordEnd | null = null;
  #failure: string | null = null;
  #isSettled = false;

  constructor(socket: Duplex, upstream: UpstreamRequest, options: UpgradeOptions) {
    this.#socket = socket;
    this.#upstream = upstream;
    this.#options = options;
    this.#deadline = new Deadline(options.clock, (phase, ms) => {
      const { gateway, address } = upstream;
      this.#end ??= "gateway-failed";
      this.#failure = describeTimeout(phase, ms);
      if (this.#status === null) this.#settle(gatewayTimeout(phase, ms, gateway.name, address.origin));
      else this.#socket.destroy();
      this.#request?.destroy();
    });
  }

  start(req: IncomingMessage, head: Buffer, passthrough: Passthrough): void {
    const { connect, firstByte } = this.#upstream.gateway.timeouts;
    this.#deadline.start("first_byte", connect + firstByte);
    this.#socket.once("close", () => this.#onClientClosed());
    // A client that leaves ends only its side. Without a WebSocket there is nothing left to do.
    this.#socket.once("end", () => {
      if (this.#status === null) this.#socket.destroy();
    });
    passthrough.upgrade(req, this.#socket, head, this.#upstream, {
      onRequest: (request) => this.#onRequest(request),
      onError: (error) => this.#onError(error),
    });
  }

  #onRequest(request: ClientRequest): void {
    this.#request = request;
    // Before http-proxy-3's own listener, which writes the head of the response to the client.
    request.prependOnceListener("upgrade", (response, socket) => this.#onUpgrade(response, socket));
    // http-proxy-3 would pass a plain response with the key in it. It adds its listener after this call.
    request.once("socket", () => {
      request.removeAllListeners("response");
      request.once("response", (response) => this.#onResponse(response));
    });
  }

  #onError(error: Error): void {
    if (this.#status !== null || this.#socket.destroyed) return;
    const { gateway, address } = this.#upstream;
    const connected = this.#request?.socket?.connecting === false;
    this.#end ??= "gateway-failed";
    this.#failure = describeFailure(error, { connected, answered: false });
    this.#settle(gatewayFailure(error, gateway.name, address.origin, connected));
  }

  #onUpgrade(response: IncomingMessage, gatewaySocket: Duplex): void {
    const observer = this.#observe(response);
    this.#deadline.stop();
    // http-proxy-3 writes these headers. 101 needs the two hop-by-hop ones that responseHeaders removes.
    const headers = responseHeaders(response.rawHeaders, this.#upstream.key);
    headers.push(...this.#options.ownHeaders);
    response.headers = { connection: "Upgrade", upgrade: "websocket" };
    for (let i = 0; i + 1 < headers.length; i += 2) response.headers[headers[i] ?? ""] = headers[i + 1] ?? "";
    // Only after http-proxy-3 has joined the two: a listener would take the bytes that came along with the 101.
    process.nextTick(() => {
      this.#socket.on("data", (chunk: Buffer) => {
        this.#options.call.bytesIn += chunk.length;
      });
      gatewaySocket.on("data", (chunk: Buffer) => observer.count(chunk.length));
    });
    // http-proxy-3 only half-closes, which a side that never ends would outlive.
    const closeSoon = () => {
      const timer = setTimeout(() => this.#socket.destroy(), END_TIMEOUT_MS);
      this.#socket.once("close", () => clearTimeout(timer));
    };
    this.#socket.once("end", closeSoon);
    gatewaySocket.once("close", closeSoon);
    this.#socket.once("close", () => gatewaySocket.destroy());
  }

  /** The gateway answered as to any other request. The end of its response is the end of the connection. */
  #onResponse(response: IncomingMessage): void {
    const { gateway, key } = this.#upstream;
    const gatewaySocket = response.socket;
    const observer = this.#observe(response);
    this.#deadline.start("idle", gateway.timeouts.idle);
    response.on("data", () => this.#deadline.touch("idle"));
    response.once("error", (error) => {
      this.#end ??= "gateway-failed";
      this.#failure = describeFailure(error, { connected: true, answered: true });
      this.#socket.destroy();
    });
    const mask = new KeyMask(key);
    let error = (response.statusCode ?? 0) >= 400 ? new ErrorBody() : null;
    const writeError = (collected: ErrorBody, isWhole: boolean) => {
      const received = collected.bytes();
      const answer = readErrorResponse(response, received, isWhole, key);
      error = null;
      observer.seeError(answer, received);
      this.#writeHead(response, answer.headers);
      this.#socket.write(isWhole ? answer.body : mask.pass(answer.body));
      if (answer.isCut) this.#socket.end();
    };
    if (error === null) this.#writeHead(response, responseHeaders(response.rawHeaders, key));
    response.on("data", (chunk: Buffer) => {
      if (error !== null) {
        if (error.add(chunk)) writeError(error, false);
        return;
      }
      if (this.#socket.writableEnded) return;
      observer.see(chunk);
      if (this.#socket.write(mask.pass(chunk))) return;
      response.pause();
      this.#socket.once("drain", () => response.resume());
    });
    response.once("end", () => {
      // After an upgrade that was refused, the state of the connection is uncertain.
      gatewaySocket.destroy();
      if (error !== null) writeError(error, true);
      if (!this.#socket.writableEnded) this.#socket.end(mask.end() ?? undefined);
    });
  }

  #writeHead(response: IncomingMessage, headers: string[]): void {
    addOwn(headers, this.#options.ownHeaders);
    headers.push("connection", "close");
    let head = `HTTP/1.1 ${response.statusCode} ${reasonPhrase(response.statusMessage ?? "", this.#upstream.key)}\r\n`;
    for (let i = 0; i + 1 < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
    this.#socket.resume();
    this.#socket.write(Buffer.from(`${head}\r\n`, "latin1"));
  }

  #observe(response: IncomingMessage): ResponseObserver {
    const status = response.statusCode ?? 0;
    this.#status = status;
    this.#failure = frontProxyFailure(status, response.headers["content-type"] ?? "");
    this.#observer = this.#options.observe(response);
    return this.#observer;
  }

  #onClientClosed(): void {
    const isAnswered = this.#status === 101 || (this.#status !== null && this.#socket.writableFinished);
    this.#end ??= isAnswered ? "complete" : "client-left";
    this.#request?.destroy();
    this.#settle(null);
  }

  #settle(refusal: Refusal | null): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#deadline.stop();
    const status = refusal === null ? this.#status : this.#options.refuse(refusal);
    this.#options.resolve(this.#outcome(refusal, status));
  }

  async #outcome(refusal: Refusal | null, status: number | null): Promise<Outcome> {
    return {
      end: this.#end ?? "complete",
      status,
      refusal,
      failure: this.#failure,
      mayHaveArrived: refusal?.code !== "gateway-unreachable",
      observed: this.#observer === null ? NOTHING_OBSERVED : await this.#observer.finish(),
    };
  }
}
