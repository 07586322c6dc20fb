import type { Clock } from "../clock.ts";
import { reason } from "../reason.ts";
import type { Refusal } from "../refusal.ts";
import { discard } from "./answer.ts";
import type { AnswerHead } from "./answer-head.ts";
import { Deadline, type Phase } from "./deadline.ts";
import { Delivery } from "./delivery.ts";
import { type End, type Exchange, type Outcome, outcomeOf } from "./exchange.ts";
import {
  failureInWords,
  frontProxyFailure,
  gatewayFailure,
  gatewayTimeout,
  silenceInWords,
  uploadStopped,
} from "./failure.ts";
import { type Heard, Hearing, NOTHING_HEARD } from "./hearing.ts";
import { mayTryAgain } from "./kept-connection.ts";
import type { Passage } from "./passage.ts";
import { closeIdle } from "./ways.ts";

/**
 * One call while it runs: the request goes out, the answer comes back, and one Outcome is told. Whoever ends it first, the
 * client or the gateway, gives the ending its name.
 */
export class Call {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  readonly #resolve: (outcome: Outcome) => void;
  /** Sends the request, once more where it is called once more. */
  readonly #send: (exchange: Exchange, call: Call) => Passage;
  readonly #deadline: Deadline;
  #passage: Passage | null = null;
  #hearing: Hearing | null = null;
  /** null: there is no answer yet. */
  #delivery: Delivery | null = null;
  #end: End | null = null;
  #failure: string | null = null;
  #bytesIn = 0;
  #triedAgain = false;
  #connected = false;
  #settled = false;

  constructor(
    exchange: Exchange,
    clock: Clock,
    resolve: (outcome: Outcome) => void,
    send: (exchange: Exchange, call: Call) => Passage,
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
    req.on("error", ignore);
    this.#begin();
  }

  #begin(): void {
    this.#deadline.await("connect", this.#exchange.gateway.timeouts.connect);
    try {
      this.#passage = this.#send(this.#exchange, this);
    } catch (error) {
      this.onFailure(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** There is a connection, over which the request goes out now. */
  onConnected(): void {
    this.#connected = true;
    this.#deadline.await("first_byte", this.#exchange.gateway.timeouts.firstByte);
  }

  /** A piece of what the client sent. */
  onSent(chunk: Buffer): void {
    this.#bytesIn += chunk.length;
    this.#exchange.seeBody?.(chunk);
    this.#deadline.touch("first_byte");
  }

  onAnswer(answer: AnswerHead, passage: Passage): void {
    if (this.#settled) return;
    const { key, metering, countText, gateway } = this.#exchange;
    this.#deadline.await("idle", gateway.timeouts.idle);
    this.#failure = frontProxyFailure(answer);
    try {
      const firstByteElapsed = this.#clock.elapsed();
      const hearing = new Hearing(answer, { key, metering, countText, firstByteElapsed });
      this.#hearing = hearing;
      this.#exchange.heardIn.hearing = hearing;
      this.#exchange.onHead(answer.status, hearing.headIds());
      this.#delivery = new Delivery(this.#exchange, answer, hearing, passage);
      this.#delivery.begin();
    } catch (error) {
      // Node's parser lets heads pass that Node's writer throws at, such as status 000.
      passage.destroy();
      this.onBroken(Object.assign(new Error(reason(error)), { code: "HPE_UNUSABLE_HEAD" }));
    }
  }

  /** A piece of the answer; false: the client is not that fast, and the passage is told when it is. */
  onPiece(chunk: Buffer, isLast: boolean): boolean {
    if (this.#settled || this.#delivery === null) return true;
    this.#deadline.touch("idle");
    return this.#delivery.piece(chunk, isLast);
  }

  /** The answer is whole. */
  onEnd(): void {
    if (!this.#settled) this.#delivery?.end();
  }

  /** The request could not be sent, or its sending broke. */
  onFailure(error: Error): void {
    // Once the answer is there, trouble with the upload shows on the answer itself or does not matter; and when the
    // client is gone, its `close` settles.
    if (this.#delivery !== null || this.#exchange.req.socket.destroyed || this.#settled) return;
    const kept = this.#passage?.kept === true;
    if (this.#triedAgain || this.#bytesIn > 0 || !mayTryAgain(this.#exchange.req, kept, error)) {
      this.onBroken(error);
      return;
    }
    this.#triedAgain = true;
    this.#passage = null;
    // Where one kept connection was dead, the others are not trusted either.
    closeIdle(this.#exchange.way);
    this.#begin();
  }

  /** The answer will not be whole. */
  onBroken(error: Error): void {
    // What breaks once it was settled, by our own hand often enough, must not cut the refusal that is being answered.
    if (this.#settled) return;
    this.#end ??= "gateway-failed";
    this.#failure = failureInWords(error, { connected: this.#connected, answered: this.#hearing !== null });
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
    const unsaid = phase === "first_byte" && !req.complete && this.#passage?.taken === true;
    // A reader that takes nothing keeps it from sending. Either silence is the client's.
    this.#end ??= unsaid || res.writableNeedDrain ? "client-left" : "gateway-failed";
    if (this.#end === "gateway-failed") this.#failure = silenceInWords(phase, ms);
    if (res.headersSent) res.destroy();
    else
      this.#settle(unsaid ? uploadStopped(ms) : gatewayTimeout(phase, ms, gateway.name, way.address.origin));
    this.#passage?.destroy();
  }

  readonly #onClosed = (): void => {
    const { req, res } = this.#exchange;
    if (!res.writableFinished || this.#delivery?.isCut) this.#passage?.destroy();
    else if (!req.complete) {
      // The gateway had its say before the upload was through, and may never read the rest of it.
      this.#passage?.destroy();
      discard(req);
    } else this.#passage?.finish();
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
          failure: this.#failure,
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
}

function ignore(): void {}
