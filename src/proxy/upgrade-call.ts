import type { ClientRequest, IncomingMessage } from "node:http";
import { type Duplex, pipeline } from "node:stream";
import type { Clock } from "../clock.ts";
import type { Refusal } from "../refusal.ts";
import { headOf } from "./answer-head.ts";
import { Deadline } from "./deadline.ts";
import { type Gathered, gather, readError } from "./error-body.ts";
import type { End, Outcome, UpgradeExchange } from "./exchange.ts";
import {
  failureInWords,
  frontProxyFailure,
  gatewayFailure,
  gatewayTimeout,
  silenceInWords,
} from "./failure.ts";
import { addOwn, incomingHeaders, reasonPhrase } from "./headers.ts";
import { type Heard, Hearing, NOTHING_HEARD } from "./hearing.ts";
import { createKeyMask } from "./key-mask.ts";

/** How long one side of a WebSocket may go on once the other has ended. */
const LAST_WORDS_MS = 1000;

/** A call that becomes a WebSocket: bytes both ways until one side closes. */
export class UpgradeCall {
  readonly #exchange: UpgradeExchange;
  readonly #clock: Clock;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #deadline: Deadline;
  #outgoing: ClientRequest | null = null;
  #status: number | null = null;
  #end: End | null = null;
  #failure: string | null = null;
  #hearing: Hearing | null = null;
  #bytesIn = 0;
  #settled = false;

  constructor(exchange: UpgradeExchange, clock: Clock, resolve: (outcome: Outcome) => void) {
    this.#exchange = exchange;
    this.#clock = clock;
    this.#resolve = resolve;
    const { gateway, way } = exchange;
    const { origin } = way.address;
    this.#deadline = new Deadline(clock, (phase, ms) => {
      this.#end ??= "gateway-failed";
      this.#failure = silenceInWords(phase, ms);
      if (this.#status === null) this.#settle(gatewayTimeout(phase, ms, gateway.name, origin));
      else this.#exchange.socket.destroy();
      this.#outgoing?.destroy();
    });
    this.#deadline.await("first_byte", gateway.timeouts.connect + gateway.timeouts.firstByte);
    exchange.socket.once("close", () => this.#onClosed());
    // A client that leaves only ends its side; while there is nobody to talk to, that is all there will be of it.
    exchange.socket.once("end", () => {
      if (this.#status === null) exchange.socket.destroy();
    });
  }

  onRequest(request: ClientRequest): void {
    this.#outgoing = request;
    // In front of the engine's own listeners, which write to the client.
    request.prependOnceListener("upgrade", (answer, socket) => this.#onUpgrade(answer, socket));
    // The engine's own way with a plain answer would let a key through and hang when the gateway dies. Its listener
    // comes right after this call, and no answer before the socket.
    request.once("socket", () => {
      request.removeAllListeners("response");
      request.once("response", (answer) => this.#onResponse(answer));
    });
  }

  onFailure(error: Error): void {
    if (this.#status !== null || this.#exchange.socket.destroyed) return;
    this.#end ??= "gateway-failed";
    const { gateway, way } = this.#exchange;
    const { origin } = way.address;
    const connected = this.#outgoing?.socket?.connecting === false;
    this.#failure = failureInWords(error, { connected, answered: false });
    this.#settle(gatewayFailure(error, gateway.name, origin, connected));
  }

  #onUpgrade(answer: IncomingMessage, gatewaySocket: Duplex): void {
    const { socket, key, ownHeaders } = this.#exchange;
    const hearing = this.#hear(answer);
    this.#deadline.stop();
    // 101 needs its own two hop-by-hop headers, which incomingHeaders takes out with the others.
    const flat = ["connection", "Upgrade", "upgrade", "websocket"];
    flat.push(...incomingHeaders(answer.rawHeaders, key), ...ownHeaders);
    const headers: Record<string, string> = Object.create(null);
    for (let i = 0; i + 1 < flat.length; i += 2) headers[flat[i] ?? ""] = flat[i + 1] ?? "";
    answer.headers = headers;
    // Not before the engine has joined the two: what came along with the 101 would be counted, and lost.
    process.nextTick(() => {
      socket.on("data", (chunk: Buffer) => {
        this.#bytesIn += chunk.length;
      });
      gatewaySocket.on("data", (chunk: Buffer) => hearing.count(chunk.length));
    });
    // The engine only half-closes, which a side that never answers would outlive.
    const closeSoon = () => {
      const timer = setTimeout(() => socket.destroy(), LAST_WORDS_MS);
      socket.once("close", () => clearTimeout(timer));
    };
    socket.once("end", closeSoon);
    gatewaySocket.once("close", closeSoon);
    socket.once("close", () => gatewaySocket.destroy());
  }

  /** The gateway answered as to any other request. */
  #onResponse(answer: IncomingMessage): void {
    const { socket, gateway, key } = this.#exchange;
    const hearing = this.#hear(answer);
    // The connection is not kept for anybody else: what was half agreed on it is not known.
    if (this.#outgoing !== null) this.#outgoing.shouldKeepAlive = false;
    this.#deadline.await("idle", gateway.timeouts.idle);
    answer.on("data", () => this.#deadline.touch("idle"));
    answer.once("error", (error) => {
      this.#end ??= "gateway-failed";
      this.#failure = failureInWords(error, { connected: true, answered: true });
      socket.destroy();
    });
    if ((answer.statusCode ?? 0) < 400) {
      this.#pass(answer, hearing, incomingHeaders(answer.rawHeaders, key), null);
      return;
    }
    gather(answer, (gathered) => {
      const error = readError(headOf(answer), gathered, key);
      hearing.readAsError(error, gathered.bytes);
      const whole = gathered.whole || error.isCut;
      this.#pass(answer, hearing, error.headers, { bytes: error.body, whole });
    });
  }

  /** There is no response object: head and body go to the bare connection, whose end is the answer's. */
  #pass(answer: IncomingMessage, hearing: Hearing, headers: string[], gathered: Gathered | null): void {
    const { socket, key, ownHeaders } = this.#exchange;
    addOwn(headers, ownHeaders);
    headers.push("connection", "close");
    const reason = reasonPhrase(answer.statusMessage ?? "", key);
    let head = `HTTP/1.1 ${answer.statusCode} ${reason}\r\n`;
    for (let i = 0; i + 1 < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
    socket.resume();
    socket.write(Buffer.from(`${head}\r\n`, "latin1"));
    if (gathered?.whole) return void socket.end(gathered.bytes);
    answer.on("data", (chunk: Buffer) => hearing.see(chunk));
    if (gathered === null) {
      pipeline(answer, socket, () => {});
      return;
    }
    const mask = createKeyMask(key);
    mask.write(gathered.bytes);
    pipeline(answer, mask, socket, () => {});
  }

  #hear(answer: IncomingMessage): Hearing {
    const { key, metering, countText } = this.#exchange;
    this.#status = answer.statusCode ?? null;
    const head = headOf(answer);
    this.#failure = frontProxyFailure(head);
    const firstByteElapsed = this.#clock.elapsed();
    const hearing = new Hearing(head, { key, metering, countText, firstByteElapsed });
    this.#hearing = hearing;
    this.#exchange.heardIn.hearing = hearing;
    this.#exchange.onHead(head.status, hearing.headIds());
    return hearing;
  }

  #onClosed(): void {
    const answered =
      this.#status === 101 || (this.#status !== null && this.#exchange.socket.writableFinished);
    this.#end ??= answered ? "complete" : "client-left";
    this.#outgoing?.destroy();
    this.#settle(null);
  }

  #settle(refusal: Refusal | null): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#deadline.stop();
    const status = refusal === null ? this.#status : this.#exchange.answer(refusal);
    const resolve = (heard: Heard) =>
      this.#resolve({
        ...heard,
        end: this.#end ?? "complete",
        status,
        refusal,
        failure: this.#failure,
        bytesIn: this.#bytesIn,
        arrived: refusal?.code !== "gateway-unreachable",
      });
    if (this.#hearing === null) resolve(NOTHING_HEARD);
    else this.#hearing.finish(resolve);
  }
}
