import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type Refusal, refuse } from "../core/refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { whenConnected } from "./agents.ts";
import { type Attempt, Attempts } from "./attempts.ts";
import { Call, type Stop } from "./call.ts";
import { takeCapacity } from "./capacity.ts";
import { Deadline, type Phase } from "./deadline.ts";
import type { ProxyDeps } from "./deps.ts";
import { observe, ownHeaders } from "./exchange.ts";
import {
  ConnectTimeout,
  describeProblem,
  describeTimeout,
  frontProxyProblem,
  gatewayFailed,
  gatewayTimeout,
  isOutage,
} from "./failure.ts";
import { addOwn, forEachHeader, responseHeaders } from "./headers.ts";
import { acceptCaller, checkOwner, checkUser, findCaller, lookUpProject } from "./identify.ts";
import type { Cause } from "./key-health/cause.ts";
import { NOTHING_OBSERVED, type ResponseObserver } from "./observer.ts";
import { NOTHING_SENT, type Outcome } from "./outcome.ts";
import { checkRequest, openRecord, stoppedBy } from "./pipeline.ts";
import { wallTime } from "./records.ts";
import { type ClientSide, ResponseWriter } from "./response.ts";
import { settle } from "./settle.ts";
import { startRequest, type UpstreamRequest } from "./upstream.ts";
import { endSoon, writeSocketRefusal } from "./write-refusal.ts";

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
  const call = new Call(deps.heads.make(req, deps.snapshot()), deps.clock);
  // The server no longer listens on this connection.
  socket.on("error", () => socket.destroy());
  let outcome: Outcome = { ...NOTHING_SENT, end: "gateway-failed" };
  try {
    const stop =
      checkRequest(call, deps) ??
      (await checkUser(req, deps)) ??
      (await identifyUpgrade(call, req, deps)) ??
      (await waitForCapacity(call, req, socket, deps)) ??
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
  const found = call.head.route;
  if (found.kind !== "gateway") return off;
  call.setPath(found.path);
  const caller = await findCaller(call, req, deps);
  if (!caller.ok) return off;
  // The record of a 426 names the tool too.
  call.tool = caller.tool;
  call.gateway = call.snapshot.gatewayOf(caller.tool);
  const isWebSocket = req.method === "GET" && req.headers.upgrade?.toLowerCase() === "websocket";
  if (!isWebSocket || !call.gateway.websockets) return off;
  // What passes in a WebSocket is not read, so limits on models, tokens and money cannot be applied to it.
  if (call.limitsNeedBody) {
    const message = `tool ${caller.tool.name} has limits that need plain requests. send one`;
    return refuse("websockets-off", message);
  }
  const others = caller.tool.owner === null ? null : await checkOwner(call, req, caller.tool, deps);
  return others ?? acceptCaller(call, caller, req.headers.origin, deps);
}

async function waitForCapacity(
  call: Call,
  req: IncomingMessage,
  socket: Duplex,
  deps: ProxyDeps,
): Promise<Stop | null> {
  deps.inFlight.add(call, socket);
  lookUpProject(call, req, deps);
  // Nothing else notices when the client ends a connection that waits.
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
  return new Promise((resolve) => new Upgrade(call, req, socket, head, upstream, deps, resolve).start());
}

/** 101 and the request for it need these, which are left out of every other head. */
const SWITCH: readonly string[] = ["connection", "Upgrade", "upgrade", "websocket"];

/**
 * A request that becomes a WebSocket: bytes both ways until one side closes. It is sent with node:http. http-proxy-3 writes the
 * gateway's response to the client itself, with the key in it if the gateway sends that back. It offers no way to change
 * that, other than to remove its listeners and to overwrite the headers of the response.
 */
class Upgrade {
  readonly #call: Call;
  readonly #req: IncomingMessage;
  readonly #socket: Duplex;
  /** The first bytes behind the client's head. */
  readonly #head: Buffer;
  readonly #upstream: UpstreamRequest;
  readonly #deps: ProxyDeps;
  readonly #resolve: (outcome: Promise<Outcome>) => void;
  readonly #attempts: Attempts;
  readonly #deadline = new Deadline((phase, ms) => this.#onTimeout(phase, ms));
  #request: ClientRequest | null = null;
  #observer: ResponseObserver | null = null;
  #status: number | null = null;
  #end: RecordEnd | null = null;
  #problem: string | null = null;
  #isFinished = false;

  constructor(
    call: Call,
    req: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    upstream: UpstreamRequest,
    deps: ProxyDeps,
    resolve: (outcome: Promise<Outcome>) => void,
  ) {
    this.#call = call;
    this.#req = req;
    this.#socket = socket;
    this.#head = head;
    this.#upstream = upstream;
    this.#deps = deps;
    this.#resolve = resolve;
    this.#attempts = new Attempts(call, upstream, deps);
  }

  start(): void {
    this.#socket.once("close", () => this.#onClientClosed());
    // A client that leaves ends only its side. Without a WebSocket there is nothing left to do.
    this.#socket.once("end", () => {
      if (this.#status === null) this.#socket.destroy();
    });
    this.#connect();
  }

  #connect(): void {
    this.#deadline.start("connect", this.#attempts.connectMs);
    const request = startRequest(this.#upstream, [...this.#upstream.headers, ...SWITCH]);
    this.#request = request;
    const attempt: Attempt = { request, isDeadSocket: false };
    request.on("error", (error) => this.#onError(attempt, error));
    request.once("response", (response) => this.#onResponse(response));
    request.once("upgrade", (response, socket, head) => this.#onUpgrade(response, socket, head));
    request.once("socket", (socket) => {
      // The client left, or was answered, while the connection was made: nothing may be sent.
      if (this.#request !== request || this.#isFinished) {
        request.destroy();
        return;
      }
      attempt.isDeadSocket = socket.destroyed;
      if (!socket.destroyed) whenConnected(request, socket, () => this.#onConnected(request));
    });
    request.end();
  }

  #onConnected(request: ClientRequest): void {
    if (this.#request !== request || this.#isFinished) return;
    this.#call.sentAt = wallTime(this.#call, this.#deps.clock.elapsed());
    this.#deadline.start("first_byte", this.#upstream.gateway.timeouts.firstByte);
  }

  #onError(attempt: Attempt, error: Error): void {
    if (this.#status !== null || this.#socket.destroyed || this.#request !== attempt.request) return;
    // It has no body.
    if (this.#attempts.takeRetry(attempt, error, true)) {
      this.#connect();
      return;
    }
    const connected = this.#call.sentAt !== null;
    if (!connected && isOutage(error)) {
      this.#onUnreachable(error);
      return;
    }
    this.#end ??= "gateway-failed";
    this.#problem = describeProblem(error, { connected, answered: false });
    this.#finish(gatewayFailed(error, this.#upstream, connected));
  }

  /** No connection was made, so nothing was sent: the request can wait. */
  #onUnreachable(error: Error): void {
    // A bug in there ends the request like any other.
    this.#waitForGateway(error).catch((bug) => this.#resolve(Promise.reject(bug)));
  }

  async #waitForGateway(error: Error): Promise<void> {
    this.#deadline.stop();
    this.#request?.destroy();
    this.#request = null;
    const failed = await this.#attempts.wait(error);
    // Meanwhile the client may have left.
    if (this.#isFinished) return;
    if (failed === null) {
      this.#connect();
      return;
    }
    this.#end = failed.end;
    this.#problem = failed.problem;
    this.#finish(failed.refusal);
  }

  #onTimeout(phase: Phase, ms: number): void {
    if (phase === "connect") {
      this.#onUnreachable(new ConnectTimeout(ms));
      return;
    }
    const isClientsFault = this.#socket.writableNeedDrain;
    this.#end ??= isClientsFault ? "client-left" : "gateway-failed";
    if (!isClientsFault) this.#problem = describeTimeout(phase, ms);
    if (this.#status === null) this.#finish(gatewayTimeout(phase, ms, this.#upstream));
    else this.#socket.destroy();
    this.#request?.destroy();
  }

  #onUpgrade(response: IncomingMessage, gatewaySocket: Socket, head: Buffer): void {
    const observer = this.#observe(response);
    this.#deadline.stop();
    const headers = responseHeaders(response.rawHeaders, this.#upstream.key);
    addOwn(headers, ownHeaders(this.#call, this.#deps));
    headers.push(...SWITCH);
    writeHead(this.#socket, 101, "Switching Protocols", headers);
    // A WebSocket may be silent for hours, and its other side may be gone without a word.
    for (const socket of [this.#req.socket, gatewaySocket]) {
      socket.setTimeout(0);
      socket.setNoDelay(true);
      socket.setKeepAlive(true);
    }
    if (this.#head.length > 0) this.#socket.unshift(this.#head);
    if (head.length > 0) gatewaySocket.unshift(head);
    this.#socket.on("data", (chunk: Buffer) => {
      this.#call.bytesIn += chunk.length;
    });
    gatewaySocket.on("data", (chunk: Buffer) => observer.count(chunk.length));
    gatewaySocket.pipe(this.#socket).pipe(gatewaySocket);
    // A pipe only half-closes, which a side that never ends would outlive.
    this.#socket.once("end", () => endSoon(this.#socket));
    // `close` follows an error.
    gatewaySocket.on("error", () => {});
    gatewaySocket.once("close", () => endSoon(this.#socket));
    this.#socket.once("close", () => gatewaySocket.destroy());
  }

  /** The gateway answered as to any other request. The end of its response is the end of the connection. */
  #onResponse(response: IncomingMessage): void {
    const gatewaySocket = response.socket;
    const observer = this.#observe(response);
    this.#deadline.start("idle", this.#upstream.gateway.timeouts.idle);
    const { key } = this.#upstream;
    const tool = this.#call.tool?.name ?? "";
    const refine = (cause: Cause) => this.#deps.keyHealth.refine(tool, key, cause);
    const writer = new ResponseWriter(response, this.#client(), observer, key, refine);
    writer.start();
    response.on("data", (chunk: Buffer) => {
      this.#deadline.touch("idle");
      writer.write(chunk);
    });
    response.once("end", () => {
      // After an upgrade that was refused, the state of the connection is uncertain.
      gatewaySocket.destroy();
      this.#deadline.stop();
      writer.end();
      endSoon(this.#socket);
    });
    response.once("error", (error) => {
      this.#end ??= "gateway-failed";
      this.#problem = describeProblem(error, { connected: true, answered: true });
      this.#socket.destroy();
    });
  }

  /** There is no response object, so the head is written to the connection. */
  #client(): ClientSide {
    const socket = this.#socket;
    return {
      stream: socket,
      ownHeaders: ownHeaders(this.#call, this.#deps),
      usageFilter: null,
      writeHead(status, reason, headers) {
        headers.push("connection", "close");
        socket.resume();
        writeHead(socket, status, reason, headers);
      },
    };
  }

  #observe(response: IncomingMessage): ResponseObserver {
    const status = response.statusCode ?? 0;
    this.#status = status;
    this.#problem = frontProxyProblem(status, response.headers["content-type"] ?? "");
    if (this.#problem === null) this.#deps.gatewayHealth.noteHead(this.#upstream.gateway);
    this.#observer = observe(this.#call, response, this.#deps);
    return this.#observer;
  }

  #onClientClosed(): void {
    const isAnswered = this.#status === 101 || (this.#status !== null && this.#socket.writableFinished);
    this.#end ??= isAnswered ? "complete" : "client-left";
    this.#attempts.leave();
    this.#request?.destroy();
    this.#finish(null);
  }

  #finish(refusal: Refusal | null): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#deadline.stop();
    const { protocol, id } = this.#call;
    const status = refusal === null ? this.#status : writeSocketRefusal(this.#socket, refusal, protocol, id);
    this.#resolve(this.#outcome(refusal, status));
  }

  async #outcome(refusal: Refusal | null, status: number | null): Promise<Outcome> {
    return {
      end: this.#end ?? "complete",
      status,
      refusal,
      problem: this.#problem,
      observed: this.#observer === null ? NOTHING_OBSERVED : await this.#observer.finish(),
    };
  }
}

function writeHead(socket: Duplex, status: number, reason: string, headers: readonly string[]): void {
  let head = `HTTP/1.1 ${status} ${reason}\r\n`;
  forEachHeader(headers, (name, value) => {
    head += `${name}: ${value}\r\n`;
  });
  socket.write(Buffer.from(`${head}\r\n`, "latin1"));
}
