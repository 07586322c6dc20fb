import { type Refusal, shuttingDown } from "../core/refusal.ts";
import type { Call } from "./call.ts";
import { checkStillAllowed } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import { describeProblem, gatewayUnreachable, logUnavailable } from "./failure.ts";
import type { Outage, WaitEnd, Waiter } from "./outages.ts";
import type { Outcome } from "./outcome.ts";
import type { UpstreamRequest } from "./upstream.ts";

/* While no connection to a gateway can be made, its requests wait. Nothing of them was sent, so they can be tried again. */

/** How a request ended that was never connected. */
type Failed = Pick<Outcome, "end" | "refusal" | "problem">;

/**
 * The wait of one request for its gateway. It keeps its place under the limits and its body. The wait ends when a connection
 * can be made, when the request was tried for `timeouts.retry_connect` in all, when keybearer stops, or when the client leaves.
 */
export class GatewayWait {
  readonly #call: Call;
  readonly #upstream: UpstreamRequest;
  readonly #deps: ProxyDeps;
  readonly #tool: string;
  /** By performance.now(). */
  readonly #until: number;
  /** How often it waited. */
  #times = 0;
  #end: Waiter = () => {};

  /** @param since when its first attempt began, by performance.now() */
  constructor(call: Call, upstream: UpstreamRequest, since: number, deps: ProxyDeps) {
    this.#call = call;
    this.#tool = call.tool?.name ?? "";
    this.#upstream = upstream;
    this.#deps = deps;
    this.#until = since + upstream.gateway.timeouts.retryConnect;
  }

  /** How long the next attempt may take. */
  get connectMs(): number {
    return Math.max(1, Math.min(this.#upstream.gateway.timeouts.connect, this.#leftMs));
  }

  get #leftMs(): number {
    return this.#until - performance.now();
  }

  /** Waits after an attempt that failed. Resolves to null when the request may be tried again. */
  async next(error: Error): Promise<Failed | null> {
    const { outages, gatewayHealth, journal, snapshot, clock, isStopping } = this.#deps;
    const { gateway } = this.#upstream;
    const { id } = this.#call;
    const name = this.#tool;
    if (isStopping()) return refused(shuttingDown());
    // One that waits already keeps its time.
    if (this.#times === 0 && outages.wasJustRefused(this.#kind)) return this.#unreachable(error, 0);
    const leftMs = this.#leftMs;
    if (leftMs <= 0) return this.#unreachable(error, gateway.timeouts.retryConnect);
    journal.markUnsent(id);
    gatewayHealth.noteWait(gateway, connectProblem(error));
    const outage = outages.findOrStart(this.#upstream, error, this.#times);
    this.#times += 1;
    this.#call.isWaiting = true;
    const end = await this.#untilBack(outage, leftMs);
    this.#call.isWaiting = false;
    // The exchange has finished already.
    if (end === "client-left") return { end, refusal: null, problem: null };
    if (end === "stopped") return refused(shuttingDown());
    if (end === "expired") return this.#unreachable(outage.error, gateway.timeouts.retryConnect);
    const refusal = checkStillAllowed(name, snapshot(), clock.now());
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
    return `${this.#tool} ${method} ${address.origin}${address.path}`;
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

function refused(refusal: Refusal): Failed {
  return { end: "refused", refusal, problem: null };
}

function connectProblem(error: Error): string {
  return describeProblem(error, { connected: false, answered: false });
}
