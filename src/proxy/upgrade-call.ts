import type { ClientRequest, IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../clock.ts";
import type { Refusal } from "../refusal.ts";
import { type Cause, causeOf } from "./cause.ts";
import { createDeadline, type Deadline } from "./deadline.ts";
import type { End, Outcome, UpgradeExchange } from "./exchange.ts";
import { gatewayFailure, gatewayTimeout } from "./failure.ts";
import { incomingHeaders } from "./headers.ts";

/** A call that becomes a WebSocket: bytes both ways until one side closes. */
export class UpgradeCall {
  readonly #exchange: UpgradeExchange;
  readonly #clock: Clock;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #deadline: Deadline;
  readonly #started: number;
  #outgoing: ClientRequest | null = null;
  #status: number | null = null;
  #end: End | null = null;
  #cause: Cause | null = null;
  #firstByteMs: number | null = null;
  #bytesIn = 0;
  #bytesOut = 0;
  #settled = false;

  constructor(exchange: UpgradeExchange, clock: Clock, resolve: (outcome: Outcome) => void) {
    this.#exchange = exchange;
    this.#clock = clock;
    this.#resolve = resolve;
    this.#started = clock.elapsed();
    const { gateway, origin } = exchange;
    this.#deadline = createDeadline((phase, ms) => {
      this.#end ??= "gateway-failed";
      this.#settle(gatewayTimeout(phase, ms, gateway.name, origin));
      this.#outgoing?.destroy();
    });
    this.#deadline.await("first_byte", gateway.timeouts.connect + gateway.timeouts.firstByte);
    exchange.socket.once("close", () => this.#onClosed());
  }

  onRequest(request: ClientRequest): void {
    this.#outgoing = request;
    // In front of the engine's own listeners, which write to the client.
    request.prependOnceListener("upgrade", (answer, socket) => this.#onUpgrade(answer, socket));
    request.prependOnceListener("response", (answer) => {
      this.#answered(answer);
      this.#cause = causeOf({
        status: answer.statusCode ?? 0,
        contentType: answer.headers["content-type"] ?? "",
        body: "",
      });
    });
  }

  onFailure(error: Error): void {
    if (this.#status !== null || this.#exchange.socket.destroyed) return;
    this.#end ??= "gateway-failed";
    this.#settle(gatewayFailure(error, this.#exchange.gateway.name, this.#exchange.origin));
  }

  #onUpgrade(answer: IncomingMessage, gatewaySocket: Duplex): void {
    const { socket } = this.#exchange;
    this.#answered(answer);
    // 101 needs its own two hop-by-hop headers, which incomingHeaders takes out with the others.
    answer.headers.connection = "Upgrade";
    answer.headers.upgrade = "websocket";
    socket.on("data", (chunk: Buffer) => {
      this.#bytesIn += chunk.length;
    });
    gatewaySocket.on("data", (chunk: Buffer) => {
      this.#bytesOut += chunk.length;
    });
    gatewaySocket.once("close", () => {
      if (!socket.destroyed) this.#end ??= "complete";
    });
    // The engine only half-closes towards the gateway, which a gateway that never answers would outlive.
    socket.once("close", () => gatewaySocket.destroy());
  }

  #answered(answer: IncomingMessage): void {
    this.#status = answer.statusCode ?? null;
    this.#firstByteMs = this.#clock.elapsed() - this.#started;
    this.#deadline.stop();
    const { key, ownHeaders } = this.#exchange;
    const flat = [...incomingHeaders(answer.rawHeaders, key), ...ownHeaders];
    const headers: Record<string, string> = {};
    for (let i = 0; i + 1 < flat.length; i += 2) headers[flat[i] ?? ""] = flat[i + 1] ?? "";
    answer.headers = headers;
  }

  #onClosed(): void {
    this.#end ??= this.#status === null ? "client-left" : "complete";
    this.#outgoing?.destroy();
    this.#settle(null);
  }

  #settle(refusal: Refusal | null): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#deadline.stop();
    this.#resolve({
      end: this.#end ?? "complete",
      status: refusal === null ? this.#status : this.#exchange.answer(refusal),
      cause: this.#cause,
      words: null,
      refusal,
      firstByteMs: this.#firstByteMs,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
    });
  }
}
