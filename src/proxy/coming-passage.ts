import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { headOf } from "./answer-head.ts";
import type { Call } from "./call.ts";
import { closedEarly, isConnected, letGoUnlessSent, whenConnected } from "./kept-connection.ts";
import type { Passage } from "./passage.ts";

/** A request whose body still comes, joined to the gateway by http-proxy-3, as it tells of it. */
export class ComingPassage implements Passage {
  readonly #call: Call;
  #outgoing: ClientRequest | null = null;
  #answer: IncomingMessage | null = null;
  #destroyed = false;

  constructor(call: Call) {
    this.#call = call;
  }

  get kept(): boolean {
    return this.#outgoing?.reusedSocket === true;
  }

  get taken(): boolean {
    return this.#outgoing?.writableNeedDrain === false;
  }

  /** There is a socket for it, connected or about to be. */
  onSocket(outgoing: ClientRequest, socket: Socket): void {
    this.#outgoing = outgoing;
    // Too late: the client left or was answered while the connection was made. Nothing may be sent any more.
    if (this.#destroyed) {
      outgoing.destroy();
      return;
    }
    // Not every end of a call is an error to Node: a 101 nobody asked for only closes.
    outgoing.on("close", () => {
      if (this.#answer === null) this.onFailure(closedEarly());
    });
    if (isConnected(outgoing, socket)) this.#call.onConnected();
    else whenConnected(socket, () => this.#call.onConnected());
  }

  onAnswer(answer: IncomingMessage): void {
    this.#answer = answer;
    answer.on("error", (error) => this.#onBroken(error));
    this.#call.onAnswer(headOf(answer), this);
    answer.on("data", (chunk: Buffer) => {
      const isLast = answer.complete && answer.readableLength === 0;
      if (!this.#destroyed && !this.#call.onPiece(chunk, isLast)) answer.pause();
    });
    answer.on("end", () => {
      if (!this.#destroyed) this.#call.onEnd();
    });
    answer.on("close", () => {
      if (!answer.complete) this.#onBroken(closedEarly());
    });
  }

  onFailure(error: Error): void {
    if (!this.#destroyed) this.#call.onFailure(error);
  }

  #onBroken(error: Error): void {
    if (!this.#destroyed) this.#call.onBroken(error);
  }

  resume(): void {
    this.#answer?.resume();
  }

  destroy(): void {
    this.#destroyed = true;
    this.#outgoing?.destroy();
  }

  finish(): void {
    if (this.#outgoing !== null) letGoUnlessSent(this.#outgoing);
  }
}
