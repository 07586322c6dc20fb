import { type ClientRequest, request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Refusal } from "../core/refusal.ts";
import { closeIdle, whenConnected } from "./agents.ts";
import type { Call } from "./call.ts";
import { checkStillAllowed } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import {
  ConnectTimeout,
  describeFailure,
  gatewayUnreachable,
  isOutage,
  logUnavailable,
  shuttingDown,
} from "./failure.ts";
import type { Outcome } from "./outcome.ts";
import type { UpstreamRequest } from "./upstream.ts";

/* While no connection to a gateway can be made, its requests wait. Nothing of them was sent, so they can be tried again. */

type WaitEnd = "back" | "expired" | "stopped" | "client-left";

type Waiter = (end: WaitEnd) => void;

/** How a request ended that was never connected. */
type Failed = Pick<Outcome, "end" | "refusal" | "failure">;

/**
 * What one request waits. Meanwhile it keeps its place under the limits, and its body. It waits until a connection can be
 * made, it was tried for `timeouts.retry_connect` in all, keybearer stops, or the client leaves.
 */
export class GatewayWait {
  readonly #call: Call;
  readonly #upstream: UpstreamRequest;
  readonly #deps: ProxyDeps;
  /** By performance.now(). */
  readonly #until: number;
  /** How often it waited. */
  #times = 0;
  #end: Waiter = () => {};

  /** @param since when its first attempt began, by performance.now() */
  constructor(call: Call, upstream: UpstreamRequest, since: number, deps: ProxyDeps) {
    this.#call = call;
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
    const { upstream, gatewayHealth, journal, snapshot, clock, isStopping } = this.#deps;
    const { gateway } = this.#upstream;
    const { id, tool } = this.#call;
    if (isStopping()) return refused(shuttingDown());
    const leftMs = this.#leftMs;
    if (leftMs <= 0) return this.#unreachable(error);
    await journal.sent(id, null);
    gatewayHealth.noteWait(gateway, whyNotConnected(error));
    const outage = upstream.outages.of(this.#upstream, error, this.#times);
    this.#times += 1;
    this.#call.isWaiting = true;
    const end = await this.#untilBack(outage, leftMs);
    this.#call.isWaiting = false;
    if (end === "stopped") return refused(shuttingDown());
    if (end !== "back") return this.#unreachable(outage.error);
    const refusal = checkStillAllowed(tool?.name ?? "", snapshot(), clock.now());
    if (refusal !== null) return refused(refusal);
    return (await journal.sent(id, clock.now())) ? null : refused(logUnavailable(journal.state()));
  }

  #unreachable(error: Error): Failed {
    const { gateway, address } = this.#upstream;
    const refusal = gatewayUnreachable(error, gateway.name, address.origin, gateway.timeouts.retryConnect);
    return { end: "gateway-failed", refusal, failure: whyNotConnected(error) };
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
  return { end: "refused", refusal, failure: null };
}

function whyNotConnected(error: Error): string {
  return describeFailure(error, { connected: false, answered: false });
}

/** The gateways that cannot be connected to while requests wait for them. */
export class Outages {
  readonly #outages = new Map<string, Outage>();

  /** @param times how often the request waited before. A gateway that accepts only the probe is tried less and less often. */
  of(request: UpstreamRequest, error: Error, times: number): Outage {
    const { gateway, address } = request;
    // Requests of an older configuration wait for their own address, outbound proxy and certificate authority.
    const id = JSON.stringify([gateway.name, address.origin, gateway.proxy, gateway.authority?.pem]);
    const known = this.#outages.get(id);
    if (known !== undefined) return known;
    const outage = new Outage(request, error, FIRST_PAUSE_MS * 2 ** times, () => this.#outages.delete(id));
    this.#outages.set(id, outage);
    return outage;
  }

  /** Ends every wait, because keybearer stops. */
  stop(): void {
    for (const outage of [...this.#outages.values()]) outage.end("stopped");
  }
}

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2000;

/** One probe tries to connect again and again for all requests that wait. It sends nothing. */
class Outage {
  /** Why the last attempt failed. */
  error: Error;
  readonly #request: UpstreamRequest;
  readonly #onEnd: () => void;
  readonly #waiters = new Set<Waiter>();
  #pauseMs: number;
  #timer: NodeJS.Timeout;
  #probe: ClientRequest | null = null;

  constructor(request: UpstreamRequest, error: Error, pauseMs: number, onEnd: () => void) {
    this.#request = request;
    this.error = error;
    this.#pauseMs = Math.min(pauseMs, MAX_PAUSE_MS);
    this.#onEnd = onEnd;
    this.#timer = setTimeout(() => this.#try(), this.#pauseMs);
  }

  join(waiter: Waiter): void {
    this.#waiters.add(waiter);
  }

  leave(waiter: Waiter): void {
    if (this.#waiters.delete(waiter) && this.#waiters.size === 0) this.end("expired");
  }

  end(how: WaitEnd): void {
    this.#onEnd();
    clearTimeout(this.#timer);
    this.#probe?.destroy();
    this.#probe = null;
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const waiter of waiters) waiter(how);
  }

  #try(): void {
    const { agent, address, gateway } = this.#request;
    const { hostname, port, secure } = address;
    // A kept connection would only show that the gateway was there before.
    closeIdle(agent);
    const send = secure ? httpsRequest : httpRequest;
    // It is never ended, so that nothing of it is sent.
    const probe = send({ hostname, port, agent, method: "HEAD", path: "/" });
    this.#probe = probe;
    const { connect } = gateway.timeouts;
    this.#timer = setTimeout(() => this.#onFailure(probe, new ConnectTimeout(connect)), connect);
    probe.once("socket", (socket) =>
      whenConnected(probe, socket, () => {
        if (this.#probe === probe) this.end("back");
      }),
    );
    probe.on("error", (error) => this.#onFailure(probe, error));
  }

  #onFailure(probe: ClientRequest, error: Error): void {
    if (this.#probe !== probe) return;
    this.#probe = null;
    clearTimeout(this.#timer);
    probe.destroy();
    // Such as a wrong certificate: the requests fail with it themselves.
    if (!isOutage(error)) {
      this.end("back");
      return;
    }
    this.error = error;
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
    this.#timer = setTimeout(() => this.#try(), this.#pauseMs);
  }
}
