import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Refusal } from "../core/refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { whenConnected } from "./agents.ts";
import { askForUsage, UsageFilter } from "./ask-usage.ts";
import { type Attempt, Attempts } from "./attempts.ts";
import type { Call } from "./call.ts";
import { Deadline, type Phase } from "./deadline.ts";
import type { ProxyDeps } from "./deps.ts";
import {
  ConnectTimeout,
  describeProblem,
  describeTimeout,
  frontProxyProblem,
  gatewayFailed,
  gatewayTimeout,
  isOutage,
  uploadStopped,
} from "./failure.ts";
import type { Cause } from "./key-health/cause.ts";
import { NOTHING_OBSERVED, type Observed, ResponseObserver } from "./observer.ts";
import type { Outcome } from "./outcome.ts";
import { buildResponseHead, wallTime } from "./records.ts";
import { type ClientSide, ResponseWriter } from "./response.ts";
import { startRequest, type UpstreamRequest } from "./upstream.ts";
import { discardBody } from "./write-refusal.ts";

/** Sends the call to its gateway and the response to the client. Resolves once, however it ends. */
export function forward(
  call: Call,
  req: IncomingMessage,
  res: ServerResponse,
  deps: ProxyDeps,
): Promise<Outcome> {
  const asking = usageAsked(call);
  const body = asking === null ? (call.body?.all ?? null) : [asking];
  const bodyLength = asking?.length ?? call.body?.length ?? null;
  // The exchange holds the body from here on, until it is sent.
  call.body = null;
  const request = deps.upstream.request(call, req, bodyLength, asking !== null);
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
  return new Promise((resolve) => new Exchange(call, req, res, body, request, client, deps, resolve).start());
}

/** The body that also asks for the usage of a stream; null: the client's own is sent. */
function usageAsked({ tool, metering, body }: Call): Buffer | null {
  const isAsked = tool?.askUsage === true && (metering === "chat" || metering === "completions");
  return isAsked && body !== null ? askForUsage(body.joined()) : null;
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
  const elapsed = clock.elapsed();
  const observer = new ResponseObserver(response, call, elapsed);
  call.observer = observer;
  const { status } = observer;
  journal.head(call.id, buildResponseHead(call, status, observer.headIds, elapsed), observer.isStream);
  if (status < 400 && call.tool !== null && call.key !== null)
    deps.keyHealth.endPause(call.tool.name, call.key);
  return observer;
}

/** There is no connection yet, so nothing was sent. */
interface Connecting {
  readonly name: "connecting";
  readonly attempt: Attempt;
}

/** No connection could be made. */
interface Waiting {
  readonly name: "waiting";
}

/** There is a connection, and no response yet. */
interface Sent {
  readonly name: "sent";
  readonly attempt: Attempt;
  readonly request: ClientRequest;
}

interface Streaming {
  readonly name: "streaming";
  readonly request: ClientRequest;
  readonly response: IncomingMessage;
  readonly writer: ResponseWriter;
}

/** How it ended is decided, and what still happens changes nothing. */
interface Done {
  readonly name: "done";
}

type ExchangePhase = Connecting | Waiting | Sent | Streaming | Done;

const WAITING: Waiting = { name: "waiting" };
const DONE: Done = { name: "done" };

/** What a client sends and does not see read fits into the system's buffers, which are smaller than this. */
const MAX_AHEAD = 8 * 1024 * 1024;
/** Each time, as much is read as comes at once: 64 KB. */
const READ_AHEAD_MS = 20;

/** A request on its way to the gateway and its response on the way back, phase by phase. */
class Exchange {
  readonly #call: Call;
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #upstream: UpstreamRequest;
  readonly #client: ClientSide;
  readonly #deps: ProxyDeps;
  readonly #resolve: (outcome: Promise<Outcome>) => void;
  readonly #attempts: Attempts;
  readonly #deadline = new Deadline((phase, ms) => this.#onTimeout(phase, ms));
  /** The chunks of the body that was read, until it is sent; null: it passes unread, or there is none. */
  #body: readonly Buffer[] | null;
  #phase: ExchangePhase = DONE;
  /** How it ended, where that was decided before the last byte; null: see decideEnd(). */
  #end: RecordEnd | null = null;
  #problem: string | null = null;

  constructor(
    call: Call,
    req: IncomingMessage,
    res: ServerResponse,
    body: readonly Buffer[] | null,
    upstream: UpstreamRequest,
    client: ClientSide,
    deps: ProxyDeps,
    resolve: (outcome: Promise<Outcome>) => void,
  ) {
    this.#call = call;
    this.#req = req;
    this.#res = res;
    this.#body = body;
    this.#upstream = upstream;
    this.#client = client;
    this.#deps = deps;
    this.#resolve = resolve;
    this.#attempts = new Attempts(call, upstream, deps);
  }

  start(): void {
    this.#res.on("close", this.#onClientClosed);
    // The response to a pipelined request does not always emit `close` when its connection ends.
    this.#req.socket.on("close", this.#onClientClosed);
    // Without a listener, a client that leaves in the middle of its upload would end the process.
    this.#req.on("error", ignore);
    this.#connect();
  }

  #connect(): void {
    const attempt: Attempt = { request: null, isDeadSocket: false };
    this.#phase = { name: "connecting", attempt };
    this.#deadline.start("connect", this.#attempts.connectMs);
    try {
      if (this.#body !== null) this.#sendBody(attempt, this.#body);
      else this.#pass(attempt);
    } catch (error) {
      this.#onRequestError(attempt, error instanceof Error ? error : new Error(String(error)));
    }
  }

  #sendBody(attempt: Attempt, body: readonly Buffer[]): void {
    const request = startRequest(this.#upstream, this.#upstream.headers);
    attempt.request = request;
    request.once("socket", (socket) => this.#onSocket(attempt, request, socket));
    request.on("error", (error) => this.#onRequestError(attempt, error));
    request.once("finish", () => {
      // A request that is destroyed before it is connected emits this too, and may be sent again.
      if (this.#call.sentAt === null) return;
      this.#body = null;
      this.#deps.bodies.release(this.#call);
    });
    // Node writes them together.
    for (const chunk of body.slice(0, -1)) request.write(chunk);
    request.end(body.at(-1));
  }

  #pass(attempt: Attempt): void {
    const { passesUnread } = this.#call;
    this.#deps.upstream.passthrough.send(this.#req, this.#res, passesUnread, this.#upstream, {
      onSocket: (request, socket) => this.#onSocket(attempt, request, socket),
      onError: (error) => this.#onRequestError(attempt, error),
    });
  }

  #onSocket(attempt: Attempt, request: ClientRequest, socket: Socket): void {
    attempt.request = request;
    // The client left, or was answered, while the connection was made: nothing more may be sent.
    if (!this.#isCurrent(attempt)) {
      request.destroy();
      return;
    }
    request.once("response", (response) => this.#onResponse(attempt, request, response));
    // Node reports some endings by `close` alone, such as a 101 that was not asked for.
    request.once("close", () => {
      if (this.#isCurrent(attempt)) this.#onRequestError(attempt, closedEarly());
    });
    attempt.isDeadSocket = socket.destroyed;
    if (!socket.destroyed) whenConnected(request, socket, () => this.#onConnected(attempt, request));
  }

  #onConnected(attempt: Attempt, request: ClientRequest): void {
    if (!this.#isCurrent(attempt)) return;
    this.#call.sentAt = wallTime(this.#call, this.#deps.clock.elapsed());
    this.#phase = { name: "sent", attempt, request };
    this.#deadline.start("first_byte", this.#upstream.gateway.timeouts.firstByte);
    if (this.#call.passesUnread) this.#passBody(request);
  }

  /** Only now: what is read before there is a connection could not be sent again. */
  #passBody(request: ClientRequest): void {
    this.#req.on("data", (chunk: Buffer) => {
      this.#call.bytesIn += chunk.length;
      this.#deadline.touch("first_byte");
    });
    this.#req.pipe(request);
  }

  #onResponse(attempt: Attempt, request: ClientRequest, response: IncomingMessage): void {
    if (!this.#isCurrent(attempt)) {
      request.destroy();
      return;
    }
    this.#deadline.start("idle", this.#upstream.gateway.timeouts.idle);
    this.#problem = frontProxyProblem(response.statusCode ?? 0, response.headers["content-type"] ?? "");
    if (this.#problem === null) this.#deps.gatewayHealth.noteHead(this.#upstream.gateway);
    response.on("error", (error) => this.#onBroken(error));
    response.on("close", () => {
      if (!response.complete) this.#onBroken(closedEarly());
    });
    try {
      this.#startStreaming(request, response);
    } catch (error) {
      this.#onUnwritable(request, error);
    }
  }

  #startStreaming(request: ClientRequest, response: IncomingMessage): void {
    const { key } = this.#upstream;
    const tool = this.#call.tool?.name ?? "";
    const refine = (cause: Cause) => this.#deps.keyHealth.refine(tool, key, cause);
    const observer = observe(this.#call, response, this.#deps);
    const writer = new ResponseWriter(response, this.#client, observer, key, refine);
    const streaming: Streaming = { name: "streaming", request, response, writer };
    this.#phase = streaming;
    writer.start();
    response.on("data", (chunk: Buffer) => {
      this.#deadline.touch("idle");
      if (this.#phase !== streaming) return;
      try {
        writer.write(chunk);
      } catch (error) {
        this.#onUnwritable(request, error);
      }
    });
    response.on("end", () => {
      // A gateway that responds early may never read the rest of the request.
      if (!request.writableFinished) request.destroy();
      if (this.#phase !== streaming) return;
      try {
        writer.end();
      } catch (error) {
        this.#onUnwritable(request, error);
      }
    });
  }

  /** Node's parser accepts heads that Node does not write, such as status 000. */
  #onUnwritable(request: ClientRequest, error: unknown): void {
    request.destroy();
    const message = error instanceof Error ? error.message : String(error);
    // Named like the errors of Node's parser, so that it is reported like them.
    this.#onBroken(Object.assign(new Error(message), { code: "HPE_UNUSABLE_HEAD" }));
  }

  /** The request could not be sent, or not to its end. */
  #onRequestError(attempt: Attempt, error: NodeJS.ErrnoException): void {
    // A client that left is settled by the `close` of its connection.
    if (this.#req.socket.destroyed) return;
    const phase = this.#phase;
    if (phase.name === "streaming") {
      // The events of the response decide. But a reset ends a response without a length as if it were whole.
      const isReset = error.syscall === "read" && !phase.response.complete;
      if (isReset && phase.request === attempt.request) this.#onBroken(error);
      return;
    }
    if (!this.#isCurrent(attempt)) return;
    const isWhole = this.#req.complete && this.#call.bytesIn === 0;
    if (this.#attempts.takeRetry(attempt, error, isWhole)) this.#connect();
    else if (phase.name === "connecting" && isOutage(error)) this.#onUnreachable(error);
    else this.#onBroken(error);
  }

  /** No connection was made, so nothing was sent: the request can wait. */
  #onUnreachable(error: Error): void {
    // A bug in there ends the exchange like any other.
    this.#waitForGateway(error).catch((bug) => this.#resolve(Promise.reject(bug)));
  }

  async #waitForGateway(error: Error): Promise<void> {
    this.#phase = WAITING;
    this.#deadline.stop();
    // http-proxy-3 adds listeners with each attempt.
    this.#req.setMaxListeners(0);
    this.#res.setMaxListeners(0);
    const stopReading = this.#call.passesUnread ? this.#readAhead() : null;
    const failed = await this.#attempts.wait(error);
    stopReading?.();
    // Meanwhile the client may have left.
    if (this.#phase !== WAITING) return;
    if (failed === null) {
      this.#connect();
      return;
    }
    this.#end = failed.end;
    this.#problem = failed.problem;
    this.#finish(failed.refusal);
  }

  /**
   * A connection that is not read does not report that its client left. So a part of the body is read while it waits, into the
   * buffer of the request: a client that sent no more than this is noticed. Returns what ends it.
   */
  #readAhead(): () => void {
    const { bodies } = this.#deps;
    const reading = setInterval(() => {
      const { readableLength, socket } = this.#req;
      const isNew = readableLength - this.#call.bufferedBytes;
      if (readableLength < MAX_AHEAD && bodies.take(this.#call, Math.max(0, isNew))) socket.resume();
    }, READ_AHEAD_MS);
    return () => clearInterval(reading);
  }

  /** False: it is over, or another one was made since. */
  #isCurrent(attempt: Attempt): boolean {
    const phase = this.#phase;
    return (phase.name === "connecting" || phase.name === "sent") && phase.attempt === attempt;
  }

  /** There will be no whole response. */
  #onBroken(error: Error): void {
    if (this.#phase.name === "done") return;
    const connected = this.#call.sentAt !== null;
    this.#end ??= "gateway-failed";
    this.#problem = describeProblem(error, { connected, answered: this.#phase.name === "streaming" });
    this.#stop(() => gatewayFailed(error, this.#upstream, connected));
  }

  #onTimeout(timeout: Phase, ms: number): void {
    const phase = this.#phase;
    if (timeout === "connect") {
      this.#onUnreachable(new ConnectTimeout(ms));
      findRequest(phase)?.destroy();
      return;
    }
    const hasWholeResponse = phase.name === "streaming" && phase.response.complete;
    // A response behind another one on the same connection waits for its turn.
    if (hasWholeResponse && this.#res.socket === null) {
      this.#deadline.start(timeout, ms);
      return;
    }
    // The gateway cannot respond to an upload that stopped, nor send to a client that does not read.
    const hasUploadStopped = phase.name === "sent" && !this.#req.complete && !phase.request.writableNeedDrain;
    const isClientsFault = hasUploadStopped || hasWholeResponse || this.#res.writableNeedDrain;
    this.#end ??= isClientsFault ? "client-left" : "gateway-failed";
    if (!isClientsFault) this.#problem = describeTimeout(timeout, ms);
    this.#stop(() => (hasUploadStopped ? uploadStopped(ms) : gatewayTimeout(timeout, ms, this.#upstream)));
    findRequest(phase)?.destroy();
  }

  /** After the first byte the connection is cut: an ending of ours would look like the gateway's. */
  #stop(refusal: () => Refusal): void {
    if (this.#res.headersSent) this.#res.destroy();
    else this.#finish(refusal());
  }

  readonly #onClientClosed = (): void => {
    const phase = this.#phase;
    const hasAll = this.#res.writableFinished && phase.name === "streaming" && !phase.writer.isTruncated;
    if (phase.name === "waiting") this.#attempts.leave();
    if (!hasAll || !this.#req.complete) findRequest(phase)?.destroy();
    if (hasAll) discardBody(this.#req);
    this.#finish(null);
  };

  #finish(refusal: Refusal | null): void {
    if (this.#phase.name === "done") return;
    this.#phase = DONE;
    this.#deadline.stop();
    this.#res.off("close", this.#onClientClosed);
    this.#req.socket.off("close", this.#onClientClosed);
    this.#resolve(this.#outcome(refusal));
  }

  async #outcome(refusal: Refusal | null): Promise<Outcome> {
    const { observer } = this.#call;
    const status = this.#res.headersSent ? this.#res.statusCode : null;
    const hasAll = this.#res.writableFinished;
    const observed = observer === null ? NOTHING_OBSERVED : await observer.finish();
    return {
      end: this.#end ?? decideEnd(observed, hasAll),
      status,
      refusal,
      problem: this.#problem,
      observed,
    };
  }
}

/** null: there is none, or http-proxy-3 has not shown it yet. */
function findRequest(phase: ExchangePhase): ClientRequest | null {
  switch (phase.name) {
    case "connecting":
      return phase.attempt.request;
    case "sent":
    case "streaming":
      return phase.request;
    case "waiting":
    case "done":
      return null;
  }
}

function decideEnd({ reading }: Observed, hasAll: boolean): RecordEnd {
  // A stream that reports an error or lacks its terminator failed, however cleanly it ended.
  if (reading?.failed || (hasAll && reading?.reached === false)) return "gateway-failed";
  // Some clients hang up after the terminator, before the connection ends.
  return hasAll || reading?.reached ? "complete" : "client-left";
}

function closedEarly(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}

function ignore(): void {}
