import {
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Clock } from "../clock.ts";
import type { Refusal } from "../refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { closeIdle } from "./agents.ts";
import type { Call } from "./call.ts";
import { Deadline, type Phase } from "./deadline.ts";
import {
  describeFailure,
  describeTimeout,
  frontProxyFailure,
  gatewayFailure,
  gatewayTimeout,
  uploadStopped,
} from "./failure.ts";
import { NOTHING_OBSERVED, type Observed, type ResponseObserver } from "./observer.ts";
import type { Outcome } from "./outcome.ts";
import type { Passthrough } from "./passthrough.ts";
import { ResponseWriter, type ResponseWriterOptions } from "./response.ts";
import type { UpstreamRequest } from "./upstream.ts";
import { discardBody } from "./write-refusal.ts";

export interface ExchangeOptions extends ResponseWriterOptions {
  readonly call: Call;
  readonly clock: Clock;
  readonly passthrough: Passthrough;
  /** The body that was read; null: it passes unread, or there is none. */
  readonly body: Buffer | null;
  /** The gateway has the whole body, so it need not stay in memory. */
  readonly onBodySent: () => void;
  /** The head of the gateway's response arrived. */
  readonly observe: (response: IncomingMessage) => ResponseObserver;
}

/** Sends a request to the gateway and the response to the client. Resolves once, however it ends. */
export function exchange(
  req: IncomingMessage,
  res: ServerResponse,
  request: UpstreamRequest,
  options: ExchangeOptions,
): Promise<Outcome> {
  return new Promise((resolve) => new Exchange(req, res, request, options, resolve).start());
}

class Exchange {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #upstream: UpstreamRequest;
  readonly #options: ExchangeOptions;
  readonly #resolve: (outcome: Promise<Outcome>) => void;
  readonly #deadline: Deadline;
  #request: ClientRequest | null = null;
  #response: IncomingMessage | null = null;
  #observer: ResponseObserver | null = null;
  #writer: ResponseWriter | null = null;
  /** Who ended it first, the client or the gateway; null: nobody did yet. */
  #end: RecordEnd | null = null;
  #failure: string | null = null;
  #isConnected = false;
  #isRetried = false;
  #isSettled = false;

  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    upstream: UpstreamRequest,
    options: ExchangeOptions,
    resolve: (outcome: Promise<Outcome>) => void,
  ) {
    this.#req = req;
    this.#res = res;
    this.#upstream = upstream;
    this.#options = options;
    this.#resolve = resolve;
    this.#deadline = new Deadline(options.clock, (phase, ms) => this.#onTimeout(phase, ms));
  }

  start(): void {
    this.#res.on("close", this.#onClientClosed);
    // The response to a pipelined request does not always emit `close` when its connection ends.
    this.#req.socket.on("close", this.#onClientClosed);
    // Without a listener, a client that leaves in the middle of its upload would end the process.
    this.#req.on("error", ignore);
    this.#send();
  }

  #send(): void {
    const { body, passthrough } = this.#options;
    this.#deadline.start("connect", this.#upstream.gateway.timeouts.connect);
    try {
      if (body !== null) this.#sendBody(body);
      else this.#pass(passthrough);
    } catch (error) {
      this.#onRequestError(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #sendBody(body: Buffer): void {
    const { address, agent, method, path, headers } = this.#upstream;
    const { hostname, port, secure } = address;
    const send = secure ? httpsRequest : httpRequest;
    // Headers in a list keep their case and order.
    const request = send({ hostname, port, agent, method, path, headers });
    this.#request = request;
    request.once("socket", (socket) => this.#onSocket(request, socket));
    request.once("response", (response) => this.#onResponse(response));
    request.once("finish", this.#options.onBodySent);
    request.on("error", (error) => this.#onRequestError(error));
    request.end(body);
  }

  #pass(passthrough: Passthrough): void {
    const { call } = this.#options;
    if (!this.#isRetried) {
      this.#req.on("data", (chunk: Buffer) => {
        call.bytesIn += chunk.length;
        this.#deadline.touch("first_byte");
      });
    }
    passthrough.send(this.#req, this.#res, this.#upstream, {
      onSocket: (request, socket) => this.#onSocket(request, socket),
      onResponse: (response) => this.#onResponse(response),
      onError: (error) => this.#onRequestError(error),
    });
  }

  #onSocket(request: ClientRequest, socket: Socket): void {
    this.#request = request;
    // The client left, or was answered, while the connection was made: nothing may be sent any more.
    if (this.#isSettled) {
      request.destroy();
      return;
    }
    // Node reports some endings by `close` alone, such as a 101 that was not asked for.
    request.once("close", () => {
      if (this.#request === request && this.#response === null) this.#onRequestError(closedEarly());
    });
    if (isConnected(request, socket)) this.#onConnected();
    else socket.once(socket instanceof TLSSocket ? "secureConnect" : "connect", () => this.#onConnected());
  }

  #onConnected(): void {
    this.#isConnected = true;
    if (this.#response === null && !this.#isSettled)
      this.#deadline.start("first_byte", this.#upstream.gateway.timeouts.firstByte);
  }

  #onResponse(response: IncomingMessage): void {
    if (this.#isSettled) {
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
    try {
      const observer = this.#options.observe(response);
      const writer = new ResponseWriter(response, this.#res, observer, this.#options);
      this.#observer = observer;
      this.#writer = writer;
      writer.start();
      response.on("data", (chunk: Buffer) => {
        this.#deadline.touch("idle");
        if (!this.#isSettled) this.#write(writer, chunk);
      });
      response.on("end", () => this.#onResponseEnd(writer));
    } catch (error) {
      this.#onUnwritable(error);
    }
  }

  #write(writer: ResponseWriter, chunk: Buffer): void {
    try {
      writer.write(chunk);
    } catch (error) {
      this.#onUnwritable(error);
    }
  }

  #onResponseEnd(writer: ResponseWriter): void {
    // A gateway that responds early may never read the rest of the request.
    if (this.#request?.writableFinished === false) this.#request.destroy();
    if (this.#isSettled) return;
    try {
      writer.end();
    } catch (error) {
      this.#onUnwritable(error);
    }
  }

  /** Node's parser accepts heads that Node does not write, such as status 000. */
  #onUnwritable(error: unknown): void {
    this.#request?.destroy();
    const message = error instanceof Error ? error.message : String(error);
    this.#onBroken(Object.assign(new Error(message), { code: "HPE_UNUSABLE_HEAD" }));
  }

  /** The request could not be sent, or not to its end. */
  #onRequestError(error: Error): void {
    // With a response, its own events decide. And a client that left is settled by the `close` of its connection.
    if (this.#response !== null || this.#req.socket.destroyed || this.#isSettled) return;
    if (!this.#mayRetry(error)) {
      this.#onBroken(error);
      return;
    }
    this.#isRetried = true;
    this.#request = null;
    // If one kept connection is dead, the others may be too.
    closeIdle(this.#upstream.agent);
    this.#send();
  }

  /**
   * The gateway may close a kept connection at the moment it is used again. Only what is safe to do twice is sent again
   * (RFC 9110 section 9.2.2). A chat might be paid twice.
   */
  #mayRetry(error: NodeJS.ErrnoException): boolean {
    const isStale = this.#request?.reusedSocket === true && /^(?:ECONNRESET|EPIPE)$/.test(error.code ?? "");
    const isSafe = /^(?:GET|HEAD|OPTIONS)$/.test(this.#upstream.method);
    return isStale && isSafe && this.#req.complete && this.#options.call.bytesIn === 0 && !this.#isRetried;
  }

  /** There will be no whole response. */
  #onBroken(error: Error): void {
    if (this.#isSettled) return;
    this.#end ??= "gateway-failed";
    this.#failure = describeFailure(error, {
      connected: this.#isConnected,
      answered: this.#response !== null,
    });
    this.#stop(() => {
      const { gateway, address } = this.#upstream;
      return gatewayFailure(error, gateway.name, address.origin, this.#isConnected);
    });
  }

  #onTimeout(phase: Phase, ms: number): void {
    const { gateway, address } = this.#upstream;
    // The gateway cannot respond to an upload that stopped, nor send to a client that does not read.
    const hasUploadStopped =
      phase === "first_byte" && !this.#req.complete && this.#request?.writableNeedDrain === false;
    const isClientsFault = hasUploadStopped || this.#res.writableNeedDrain;
    this.#end ??= isClientsFault ? "client-left" : "gateway-failed";
    if (!isClientsFault) this.#failure = describeTimeout(phase, ms);
    this.#stop(() =>
      hasUploadStopped ? uploadStopped(ms) : gatewayTimeout(phase, ms, gateway.name, address.origin),
    );
    this.#request?.destroy();
  }

  /** After the first byte the connection is cut: an ending of ours would look like the gateway's. */
  #stop(refusal: () => Refusal): void {
    if (this.#res.headersSent) this.#res.destroy();
    else this.#settle(refusal());
  }

  readonly #onClientClosed = (): void => {
    const hasAll = this.#res.writableFinished && this.#writer?.isCut === false;
    if (!hasAll || !this.#req.complete) this.#request?.destroy();
    if (hasAll) discardBody(this.#req);
    this.#settle(null);
  };

  #settle(refusal: Refusal | null): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#deadline.stop();
    this.#res.off("close", this.#onClientClosed);
    this.#req.socket.off("close", this.#onClientClosed);
    this.#resolve(this.#outcome(refusal));
  }

  async #outcome(refusal: Refusal | null): Promise<Outcome> {
    const status = this.#res.headersSent ? this.#res.statusCode : null;
    const hasAll = this.#res.writableFinished;
    const observed = this.#observer === null ? NOTHING_OBSERVED : await this.#observer.finish();
    const end = this.#end ?? (refusal === null ? endOf(observed, hasAll) : "gateway-failed");
    return {
      end,
      status,
      refusal,
      failure: this.#failure,
      mayHaveArrived: this.#isConnected,
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

export function isConnected(request: ClientRequest, socket: Socket): boolean {
  if (request.reusedSocket) return true;
  return !socket.connecting && !(socket instanceof TLSSocket && socket.getProtocol() === null);
}

function closedEarly(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}

function ignore(): void {}
