import type { ClientRequest } from "node:http";
import { type Refusal, shuttingDown } from "../core/refusal.ts";
import { closeIdle } from "./agents.ts";
import type { Call } from "./call.ts";
import { checkStillAllowed } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import { describeProblem, gatewayUnreachable, logUnavailable } from "./failure.ts";
import type { Outage, WaitEnd, Waiter } from "./outages.ts";
import type { Outcome } from "./outcome.ts";
import type { UpstreamRequest } from "./upstream.ts";

/** How a request ended that was never connected. */
type Failed = Pick<Outcome, "end" | "refusal" | "problem">;

/** One attempt to send a request. */
export interface Attempt {
  /** null: http-proxy-3 makes it, and shows it together with its socket. */
  request: ClientRequest | null;
  /** The agent handed out a kept socket that was just destroyed. */
  isDeadSocket: boolean;
}

/**
 * The attempts to send one request. There is a second one after a dead kept connection. While no connection can be made, nothing
 * of the request was sent: it keeps its place under the limits and its body, and waits for its gateway. The wait ends when a
 * connection can be made, when the request was tried for `timeouts.retry_connect` in all, when keybearer stops, or when the
 * client leaves.
 */
export class Attempts {
  readonly #call: Call;
  readonly #upstream: UpstreamRequest;
  readonly #deps: ProxyDeps;
  /** When the first one began. */
  readonly #since = performance.now();
  /** It was sent a second time, because a kept connection was dead. */
  #isRetried = false;
  /** How often it waited. */
  #times = 0;
  /** Ends the wait. */
  #end: Waiter = nothingWaits;

  constructor(call: Call, upstream: UpstreamRequest, deps: ProxyDeps) {
    this.#call = call;
    this.#upstream = upstream;
    this.#deps = deps;
  }

  /** How long the next one may take to connect. */
  get connectMs(): number {
    const { connect } = this.#upstream.gateway.timeouts;
    return this.#times === 0 ? connect : Math.max(1, Math.min(connect, this.#leftMs));
  }

  /**
   * The gateway may close a kept connection at the moment it is used again. Only what is safe to do twice is sent again
   * (RFC 9110 section 9.2.2): a chat might be paid twice. If the socket was dead before, nothing of the request was sent. True:
   * it must be sent again now, over a new connection.
   * @param isWhole all of it is still here: no part of a body was passed on
   */
  takeRetry({ request, isDeadSocket }: Attempt, error: NodeJS.ErrnoException, isWhole: boolean): boolean {
    const isStale = request?.reusedSocket === true && /^(?:ECONNRESET|EPIPE)$/.test(error.code ?? "");
    const isSafe = /^(?:GET|HEAD|OPTIONS)$/.test(this.#upstream.method) && isWhole;
    if (this.#isRetried || (!isDeadSocket && !(isStale && isSafe))) return false;
    this.#isRetried = true;
    this.#call.sentAt = null;
    // If one kept connection is dead, the others may be too.
    closeIdle(this.#upstream.agent);
    return true;
  }

  get #leftMs(): number {
    return this.#since + this.#upstream.gateway.timeouts.retryConnect - performance.now();
  }

  /** Waits after an attempt that could not connect. Resolves to null when the request may be tried again. */
  async wait(error: Error): Promise<Failed | null> {
    const { outages, gatewayHealth, journal, snapshot, clock, isStopping } = this.#deps;
    const { gateway } = this.#upstream;
    const { id, tool } = this.#call;
    if (isStopping()) return refused(shuttingDown());
    // One that waits already keeps its time.
    if (this.#times === 0 && outages.wasJustRefused(this.#kind)) return this.#unreachable(error, 0);
    const leftMs = this.#leftMs;
    if (leftMs <= 0) return this.#unreachable(error, gateway.timeouts.retryConnect);
    journal.markUnsent(id);
    const noteFailure = (latest: Error) => gatewayHealth.noteWait(gateway, connectProblem(latest));
    noteFailure(error);
    const outage = outages.findOrStart(this.#upstream, error, this.#times, noteFailure);
    this.#times += 1;
    this.#call.isWaiting = true;
    const end = await this.#untilBack(outage, leftMs);
    this.#call.isWaiting = false;
    // The exchange has finished already.
    if (end === "client-left") return { end, refusal: null, problem: null };
    if (end === "stopped") return refused(shuttingDown());
    if (end === "expired") return this.#unreachable(outage.error, gateway.timeouts.retryConnect);
    const refusal = checkStillAllowed(tool?.name ?? "", snapshot(), clock.now());
    if (refusal !== null) return refused(refusal);
    return (await journal.markSending(id, clock.now())) ? null : refused(logUnavailable(journal.state()));
  }

  #unreachable(error: Error, triedMs: number): Failed {
    // Not one that was sent again: it would never wait again.
    if (triedMs > 0) this.#deps.outages.noteRefusal(this.#kind);
    const refusal = gatewayUnreachable(error, this.#upstream, triedMs);
    return { end: "gateway-failed", refusal, problem: connectProblem(error) };
  }

  /** The same for a request that the client sends again. Not by its body: Claude Code changes it each time. */
  get #kind(): string {
    const { method, address } = this.#upstream;
    return `${this.#call.tool?.name} ${method} ${address.origin}${address.path}`;
  }

  /** The client left. */
  leave(): void {
    this.#end("client-left");
  }

  async #untilBack(outage: Outage, ms: number): Promise<WaitEnd> {
    let timer: NodeJS.Timeout | undefined;
    const end = await new Promise<WaitEnd>((resolve) => {
      this.#end = resolve;
      timer = setTimeout(resolve, ms, "expired");
      outage.join(resolve);
    });
    clearTimeout(timer);
    outage.leave(this.#end);
    return end;
  }
}

function nothingWaits(): void {}

function refused(refusal: Refusal): Failed {
  return { end: "refused", refusal, problem: null };
}

function connectProblem(error: Error): string {
  return describeProblem(error, { connected: false, answered: false });
}
