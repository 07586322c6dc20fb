import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { pipeline, type Transform } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Clock } from "../clock.ts";
import { reason } from "../reason.ts";
import type { Refusal } from "../refusal.ts";
import { closeIdle } from "./agents.ts";
import { discard } from "./answer.ts";
import { filterFor } from "./ask-usage.ts";
import { Deadline, type Phase } from "./deadline.ts";
import { gather, readError } from "./error-body.ts";
import { type End, type Exchange, type Outcome, outcomeOf } from "./exchange.ts";
import { gatewayFailure, gatewayTimeout, uploadStopped } from "./failure.ts";
import { addOwn, incomingHeaders, reasonPhrase, reframe, withCause } from "./headers.ts";
import { type Heard, Hearing, NOTHING_HEARD } from "./hearing.ts";
import { closedEarly, isConnected, letGoUnlessSent, mayTryAgain } from "./kept-connection.ts";
import { passOn } from "./pass-on.ts";

/**
 * One call while it runs: the request goes out, the answer comes back, and one Outcome is told. Whoever ends it first, the
 * client or the gateway, gives the ending its name.
 */
export class Call {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  readonly #resolve: (outcome: Outcome) => void;
  /** Sends the request, once more where it is called once more. */
  readonly #send: (exchange: Exchange, call: Call) => void;
  readonly #deadline: Deadline;
  #outgoing: ClientRequest | null = null;
  #answer: IncomingMessage | null = null;
  #hearing: Hearing | null = null;
  #end: End | null = null;
  #bytesIn = 0;
  #triedAgain = false;
  #connected = false;
  #settled = false;

  constructor(
    exchange: Exchange,
    clock: Clock,
    resolve: (outcome: Outcome) => void,
    send: (exchange: Exchange, call: Call) => void,
  ) {
    this.#exchange = exchange;
    this.#clock = clock;
    this.#resolve = resolve;
    this.#send = send;
    this.#deadline = new Deadline(clock, (phase, ms) => this.#onSilence(phase, ms));
  }

  start(): void {
    const { req, res } = this.#exchange;
    res.on("close", this.#onClosed);
    // An answer that waits behind another pipelined one never hears of its connection's end.
    req.socket.on("close", this.#onClosed);
    // That a client left is told by the two above; unheard, it would end the process.
    req.on("error", () => {});
    this.#begin();
  }

  #begin(): void {
    this.#deadline.await("connect", this.#exchange.gateway.timeouts.connect);
    try {
      this.#send(this.#exchange, this);
    } catch (error) {
      this.onFailure(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** There is a socket for this call, connected or about to be; null: a kept one. */
  onConnection(outgoing: ClientRequest, socket: Socket | null): void {
    this.#outgoing = outgoing;
    // Too late: the client left or was answered while the connection was made. Nothing may be sent any more.
    if (this.#settled) {
      outgoing.destroy();
      return;
    }
    // Not every end of a call is an error to Node: a 101 nobody asked for only closes.
    outgoing.on("close", () => {
      // Nearly always the answer is there, and then no error is made, which costs more than the rest of this.
      if (this.#outgoing === outgoing && this.#answer === null) this.onFailure(closedEarly());
    });
    if (socket === null || isConnected(outgoing, socket)) this.#onConnected();
    else socket.once(socket instanceof TLSSocket ? "secureConnect" : "connect", () => this.#onConnected());
  }

  #onConnected(): void {
    this.#connected = true;
    this.#deadline.await("first_byte", this.#exchange.gateway.timeouts.firstByte);
  }

  /** A piece of what the client sent. */
  onSent(chunk: Buffer): void {
    this.#bytesIn += chunk.length;
    this.#exchange.seeBody?.(chunk);
    this.#deadline.touch("first_byte");
  }

  onAnswer(answer: IncomingMessage): void {
    try {
      this.#takeAnswer(answer);
    } catch (error) {
      // Node's parser lets heads pass that Node's writer throws at, such as status 000.
      answer.destroy();
      this.#onBroken(Object.assign(new Error(reason(error)), { code: "HPE_UNUSABLE_HEAD" }));
    }
  }

  #takeAnswer(answer: IncomingMessage): void {
    this.#answer = answer;
    const { key, metering, countText, gateway } = this.#exchange;
    const firstByteElapsed = this.#clock.elapsed();
    const hearing = new Hearing(answer, { key, metering, countText, firstByteElapsed });
    this.#hearing = hearing;
    this.#exchange.heardIn.hearing = hearing;
    this.#deadline.await("idle", gateway.timeouts.idle);
    answer.on("error", (error) => this.#onBroken(error));
    const status = answer.statusCode ?? 502;
    if (status >= 400) this.#passError(answer, status, hearing);
    else {
      const headers = incomingHeaders(answer.rawHeaders, key);
      // Of a stream out of which something is taken, the length would be wrong.
      const filter = filterFor(answer, this.#exchange.asking);
      if (filter !== null) reframe(headers, null);
      this.#writeHead(status, withCause(headers, hearing.cause));
      this.#passRest(answer, hearing, filter);
    }
  }

  /** The request could not be sent, or its sending broke. */
  onFailure(error: Error): void {
    // Once the answer is there, trouble with the upload shows on the answer itself or does not matter; and when the
    // client is gone, its `close` settles.
    if (this.#answer !== null || this.#exchange.req.socket.destroyed || this.#settled) return;
    if (this.#triedAgain || this.#bytesIn > 0 || !mayTryAgain(this.#exchange.req, this.#outgoing, error)) {
      this.#onBroken(error);
      return;
    }
    this.#triedAgain = true;
    this.#outgoing = null;
    // Where one kept connection was dead, the others are not trusted either.
    closeIdle(this.#exchange.way.agent);
    this.#begin();
  }

  #onBroken(error: Error): void {
    // What breaks once it was settled, by our own hand often enough, must not cut the refusal that is being answered.
    if (this.#settled) return;
    this.#end ??= "gateway-failed";
    // After the first byte the connection is cut and nothing added: an ending of ours would look like the gateway's.
    if (this.#exchange.res.headersSent) this.#exchange.res.destroy();
    else {
      const { gateway, way } = this.#exchange;
      this.#settle(gatewayFailure(error, gateway.name, way.address.origin, this.#connected));
    }
  }

  #onSilence(phase: Phase, ms: number): void {
    const { req, res, gateway, way } = this.#exchange;
    // An upload that stops keeps the gateway from answering, as long as the gateway took what there was of it.
    const unsaid = phase === "first_byte" && !req.complete && this.#outgoing?.writableNeedDrain === false;
    // A reader that takes nothing keeps it from sending. Either silence is the client's.
    this.#end ??= unsaid || res.writableNeedDrain ? "client-left" : "gateway-failed";
    if (res.headersSent) res.destroy();
    else
      this.#settle(unsaid ? uploadStopped(ms) : gatewayTimeout(phase, ms, gateway.name, way.address.origin));
    this.#outgoing?.destroy();
  }

  readonly #onClosed = (): void => {
    const { req, res } = this.#exchange;
    if (!res.writableFinished) this.#outgoing?.destroy();
    else if (!req.complete) {
      // The gateway had its say before the upload was through, and may never read the rest of it.
      this.#outgoing?.destroy();
      discard(req);
    } else if (this.#outgoing !== null) letGoUnlessSent(this.#outgoing);
    this.#settle(null);
  };

  /** The last bytes of a compressed answer may still have to be decoded; nothing that happens meanwhile counts. */
  #settle(refusal: Refusal | null): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#deadline.stop();
    const { req, res } = this.#exchange;
    res.off("close", this.#onClosed);
    req.socket.off("close", this.#onClosed);
    const resolve = (heard: Heard) =>
      this.#resolve(
        outcomeOf(heard, {
          end: this.#end ?? (refusal === null ? this.#endAsHeard(heard) : "gateway-failed"),
          status: res.headersSent ? res.statusCode : null,
          refusal,
          bytesIn: this.#bytesIn,
          arrived: this.#connected,
        }),
      );
    if (this.#hearing === null) resolve(NOTHING_HEARD);
    else this.#hearing.finish(resolve);
  }

  #endAsHeard({ reading }: Heard): End {
    const { writableFinished } = this.#exchange.res;
    // A stream that told of an error, or that stopped short of its last word, was not a success, however cleanly it ended.
    if (reading?.failed || (writableFinished && reading?.reached === false)) return "gateway-failed";
    return writableFinished || reading?.reached ? "complete" : "client-left";
  }

  #passError(answer: IncomingMessage, status: number, hearing: Hearing): void {
    answer.on("data", () => this.#deadline.touch("idle"));
    gather(answer, (gathered) => {
      if (this.#settled) return;
      const error = readError(answer, gathered, this.#exchange.key);
      hearing.readAsError(error, gathered.bytes);
      this.#writeHead(status, error.headers);
      if (gathered.whole) this.#exchange.res.end(error.body);
      else {
        (error.rest ?? this.#exchange.res).write(error.body);
        this.#passRest(answer, hearing, error.rest);
      }
    });
  }

  #writeHead(status: number, headers: string[]): void {
    const { res, key, ownHeaders } = this.#exchange;
    // The gateway's Date, or none: the mirror measures the gateway's clock by it.
    res.sendDate = false;
    addOwn(headers, ownHeaders);
    res.writeHead(status, reasonPhrase(this.#answer?.statusMessage ?? "", key), headers);
  }

  #passRest(answer: IncomingMessage, hearing: Hearing, filter: Transform | null): void {
    const { res } = this.#exchange;
    const see = (chunk: Buffer) => {
      this.#deadline.touch("idle");
      hearing.see(chunk);
    };
    if (filter === null) passOn(answer, res, see, () => this.#onBroken(closedEarly()));
    else {
      res.flushHeaders();
      answer.on("data", see);
      // What failed is known from the streams' own events.
      pipeline(answer, filter, res, () => {});
    }
  }
}
