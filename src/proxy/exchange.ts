import {
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Refusal } from "../core/refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { closeIdle } from "./agents.ts";
import { askForUsage, UsageFilter } from "./ask-usage.ts";
import type { Call } from "./call.ts";
import type { Cause } from "./cause.ts";
import { Deadline, type Phase } from "./deadline.ts";
import type { ProxyDeps } from "./deps.ts";
import {
  describeFailure,
  describeTimeout,
  frontProxyFailure,
  gatewayFailure,
  gatewayTimeout,
  uploadStopped,
} from "./failure.ts";
import { NOTHING_OBSERVED, type Observed, ResponseObserver } from "./observer.ts";
import type { Outcome } from "./outcome.ts";
import { headOf } from "./records.ts";
import { type ClientSide, ResponseWriter } from "./response.ts";
import type { UpstreamRequest } from "./upstream.ts";
import { discardBody } from "./write-refusal.ts";

/** Sends the call to its gateway and the response to the client. Resolves once, however it ends. */
export function forward(
  call: Call,
  req: IncomingMessage,
  res: ServerResponse,
  deps: ProxyDeps,
): Promise<Outcome> {
  const asking = usageAsked(call);
  const body = asking ?? call.body;
  // The exchange holds the body from here on, until it is sent.
  call.body = null;
  const request = deps.upstream.request(call, req, body, asking !== null);
  const client: ClientSide = {
    stream: res,
    ownHeaders: ownHeaders(call, deps),
    usageFilter: asking === null ? null : new UsageFilter(),
    writeHead(status, reason, headers) {
      // The gateway's Date is sent on, or none: the mirror measures the gateway's clock by it.
      res.sendDate = false;
      res.writeHead(status, reason, headers);
    },
  };
  return new Promise((resolve) => new Exchange(call, req, res, request, client, deps, resolve).start(body));
}

/** The body that also asks for the usage of a stream; null: the client's own is sent. */
function usageAsked({ tool, metering, body }: Call): Buffer | null {
  const isAsked = tool?.askUsage === true && (metering === "chat" || metering === "completions");
  return isAsked && body !== null ? askForUsage(body) : null;
}

/** keybearer's own headers on the response: name, value, name, value. */
export function ownHeaders(call: Call, { isSandbox, limiter }: ProxyDeps): string[] {
  const headers = ["x-keybearer-request-id", call.id];
  if (isSandbox()) headers.push("x-keybearer-sandbox", "1");
  if (call.tool !== null) limiter.rateHeaders(call.tool, headers);
  return headers;
}

/** Starts to read a response whose head arrived, and records the head. */
export function observe(call: Call, response: IncomingMessage, deps: ProxyDeps): ResponseObserver {
  const { clock, journal } = deps;
  const observer = new ResponseObserver(response, call, clock.elapsed());
  call.observer = observer;
  const status = response.statusCode ?? 0;
  journal.head(call.id, headOf(call, status, observer.headIds(), clock.elapsed()), observer.isStream);
  if (status < 400 && call.tool !== null && call.key !== null)
    deps.keyBreaker.accept(call.tool.name, call.key);
  return observer;
}

class Exchange {
  readonly #call: Call;
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #upstream: UpstreamRequest;
  readonly #client: ClientSide;
  readonly #deps: ProxyDeps;
  readonly #resolve: (outcome: Promise<Outcome>) => void;
  readonly #deadline = new Deadline((phase, ms) => this.#onTimeout(phase, ms));
  /** The body that was read, until it is sent; null: it passes unread, or there is none. */
  #body: Buffer | null = null;
  #request: ClientRequest | null = null;
  #response: IncomingMessage | null = null;
  #observer: ResponseObserver | null = null;
  #writer: ResponseWriter | null = null;
  /** Who ended it first, the client or the gateway; null: neither yet. */
  #end: RecordEnd | null = null;
  #failure: string | null = null;
  #isConnected = false;
  #isDeadSocket = false;
  #isRetried = false;
  #isFinished = false;

  constructor(
    call: Call,
    req: IncomingMessage,
    res: ServerResponse,
    upstream: UpstreamRequest,
    client: ClientSide,
    deps: ProxyDeps,
    resolve: (outcome: Promise<Outcome>) => void,
  ) {
    this.#call = call;
    this.#req = req;
    this.#res = res;
    this.#upstream = upstream;
    this.#client = client;
    this.#deps = deps;
    this.#resolve = resolve;
  }

  start(body: Buffer | null): void {
    this.#body = body;
    this.#res.on("close", this.#onClientClosed);
    // The response to a pipelined request does not always emit `close` when its connection ends.
    this.#req.socket.on("close", this.#onClientClosed);
    // Without a listener, a client that leaves in the middle of its upload would end the process.
    this.#req.on("error", ignore);
    if (body === null) {
      this.#req.on("data", (chunk: Buffer) => {
        this.#call.bytesIn += chunk.length;
        this.#deadline.touch("first_byte");
      });
    }
    this.#send();
  }

  #send(): void {
    this.#deadline.start("connect", this.#upstream.gateway.timeouts.connect);
    try {
      if (this.#body !== null) this.#sendBody(this.#body);
      else this.#pass();
    } catch (error) {
      this.#onRequestError(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #sendBody(body: Buffer): void {
    const { address, agent, method, headers } = this.#upstream;
    const { hostname, port, path, secure } = address;
    const send = secure ? httpsRequest : httpRequest;
    // Headers in a list keep their case and order.
    const request = send({ hostname, port, agent, method, path, headers });
    this.#request = request;
    request.once("socket", (socket) => this.#onSocket(request, socket));
    request.once("response", (response) => this.#onResponse(response));
    request.on("error", (error) => this.#onRequestError(error));
    request.once("finish", () => {
      this.#body = null;
      this.#deps.bodies.release(this.#call);
    });
    request.end(body);
  }

  #pass(): void {
    this.#deps.upstream.passthrough.send(this.#req, this.#res, this.#upstream, {
      onSocket: (request, socket) => this.#onSocket(request, socket),
      onResponse: (response) => this.#onResponse(response),
      onError: (error) => this.#onRequestError(error),
    });
  }

  #onSocket(request: ClientRequest, socket: Socket): void {
    this.#request = request;
    // The client left, or was answered, while the connection was made: nothing more may be sent.
    if (this.#isFinished) {
      request.destroy();
      return;
    }
    // Node reports some endings by `close` alone, such as a 101 that was not asked for.
    request.once("close", () => {
      if (this.#request === request && this.#response === null) this.#onRequestError(closedEarly());
    });
    // The agent may hand out a kept socket that was just destroyed.
    this.#isDeadSocket = socket.destroyed;
    if (!socket.destroyed) whenConnected(request, socket, () => this.#onConnected());
  }

  #onConnected(): void {
    this.#isConnected = true;
    if (this.#response === null && !this.#isFinished)
      this.#deadline.start("first_byte", this.#upstream.gateway.timeouts.firstByte);
  }

  #onResponse(response: IncomingMessage): void {
    if (this.#isFinished) {
      this.#request?.destroy();
      return;
    }
    this.#response = response;
    this.#deadline.start("idle", this.#upstream.gateway.timeouts.idle);
    this.#failure = frontProxyFailure(response.statusCode ?? 0, response.headers["content-type"] ?? "");
    response.on("error", (error) => this.#onBroken(error));
    response.on("close", () => {
      if (!response.complete) this.#onBroken(closedEarly());
    });
    this.#guarded(() => {
      const observer = observe(this.#call, response, this.#deps);
      const { key } = this.#upstream;
      const tool = this.#call.tool?.name ?? "";
      const refine = (cause: Cause) => this.#deps.keyHealth.refine(tool, key, cause);
      const writer = new ResponseWriter(response, this.#client, observer, key, refine);
      this.#observer = observer;
      this.#writer = writer;
      writer.start();
      response.on("data", (chunk: Buffer) => {
        this.#deadline.touch("idle");
        if (!this.#isFinished) this.#guarded(() => writer.write(chunk));
      });
      response.on("end", () => {
        // A gateway that responds early may never read the rest of the request.
        if (this.#request?.writableFinished === false) this.#request.destroy();
        if (!this.#isFinished) this.#guarded(() => writer.end());
      });
    });
  }

  /** Node's parser accepts heads that Node does not write, such as status 000. */
  #guarded(write: () => void): void {
    try {
      write();
    } catch (error) {
      this.#request?.destroy();
      const message = error instanceof Error ? error.message : String(error);
      // Named like the errors of Node's parser, so that it is reported like them.
      this.#onBroken(Object.assign(new Error(message), { code: "HPE_UNUSABLE_HEAD" }));
    }
  }

  /** The request could not be sent, or not to its end. */
  #onRequestError(error: NodeJS.ErrnoException): void {
    // A client that left is settled by the `close` of its connection.
    if (this.#req.socket.destroyed || this.#isFinished) return;
    if (this.#response !== null) {
      // The events of the response decide. But a reset ends a response without a length as if it were whole.
      if (error.syscall === "read" && !this.#response.complete) this.#onBroken(error);
      return;
    }
    if (this.#isRetried || !this.#mayRetry(error)) {
      this.#onBroken(error);
      return;
    }
    this.#isRetried = true;
    this.#isConnected = false;
    this.#request = null;
    // If one kept connection is dead, the others may be too.
    closeIdle(this.#upstream.agent);
    this.#send();
  }

  /**
   * The gateway may close a kept connection at the moment it is used again. Only what is safe to do twice is sent again
   * (RFC 9110 section 9.2.2): a chat might be paid twice. If the socket was dead before, nothing of the request was sent.
   */
  #mayRetry(error: NodeJS.ErrnoException): boolean {
    if (this.#isDeadSocket && this.#body !== null) return true;
    const isStale = this.#request?.reusedSocket === true && /^(?:ECONNRESET|EPIPE)$/.test(error.code ?? "");
    const isSafe = /^(?:GET|HEAD|OPTIONS)$/.test(this.#upstream.method);
    return isStale && isSafe && this.#req.complete && this.#call.bytesIn === 0;
  }

  /** There will be no whole response. */
  #onBroken(error: Error): void {
    if (this.#isFinished) return;
    this.#end ??= "gateway-failed";
    this.#failure = describeFailure(error, {
      connected: this.#isConnected,
      answered: this.#response !== null,
    });
    const { gateway, address } = this.#upstream;
    this.#stop(() => gatewayFailure(error, gateway.name, address.origin, this.#isConnected));
  }

  #onTimeout(phase: Phase, ms: number): void {
    const hasWholeResponse = this.#response?.complete === true;
    // A response behind another one on the same connection waits for its turn.
    if (hasWholeResponse && this.#res.socket === null) {
      this.#deadline.start(phase, ms);
      return;
    }
    // The gateway cannot respond to an upload that stopped, nor send to a client that does not read.
    const hasUploadStopped =
      phase === "first_byte" && !this.#req.complete && this.#request?.writableNeedDrain === false;
    const isClientsFault = hasUploadStopped || hasWholeResponse || this.#res.writableNeedDrain;
    this.#end ??= isClientsFault ? "client-left" : "gateway-failed";
    if (!isClientsFault) this.#failure = describeTimeout(phase, ms);
    const { gateway, address } = this.#upstream;
    this.#stop(() =>
      hasUploadStopped ? uploadStopped(ms) : gatewayTimeout(phase, ms, gateway.name, address.origin),
    );
    this.#request?.destroy();
  }

  /** After the first byte the connection is cut: an ending of ours would look like the gateway's. */
  #stop(refusal: () => Refusal): void {
    if (this.#res.headersSent) this.#res.destroy();
    else this.#finish(refusal());
  }

  readonly #onClientClosed = (): void => {
    const hasAll = this.#res.writableFinished && this.#writer?.isTruncated === false;
    if (!hasAll || !this.#req.complete) this.#request?.destroy();
    if (hasAll) discardBody(this.#req);
    this.#finish(null);
  };

  #finish(refusal: Refusal | null): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#deadline.stop();
    this.#res.off("close", this.#onClientClosed);
    this.#req.socket.off("close", this.#onClientClosed);
    this.#resolve(this.#outcome(refusal));
  }

  async #outcome(refusal: Refusal | null): Promise<Outcome> {
    const status = this.#res.headersSent ? this.#res.statusCode : null;
    const hasAll = this.#res.writableFinished;
    const observed = this.#observer === null ? NOTHING_OBSERVED : await this.#observer.finish();
    return {
      end: this.#end ?? endOf(observed, hasAll),
      status,
      refusal,
      failure: this.#failure,
      wasConnected: this.#isConnected,
      observed,
    };
  }
}

function endOf({ reading }: Observed, hasAll: boolean): RecordEnd {
  // A stream that reports an error or lacks its terminator failed, however cleanly it ended.
  if (reading?.failed || (hasAll && reading?.reached === false)) return "gateway-failed";
  // Some clients hang up after the terminator, before the connection ends.
  return hasAll || reading?.reached ? "complete" : "client-left";
}

/** Calls back once the request's socket is connected, which a reused one is already. */
export function whenConnected(request: ClientRequest, socket: Socket, then: () => void): void {
  const isSecure = socket instanceof TLSSocket;
  const isConnected = !socket.connecting && (!isSecure || socket.getProtocol() !== null);
  if (request.reusedSocket || isConnected) then();
  else socket.once(isSecure ? "secureConnect" : "connect", then);
}

function closedEarly(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}

function ignore(): void {}
