import { type ClientRequest, request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Clock } from "../core/clock.ts";
import { closeIdle, whenConnected } from "./agents.ts";
import { ConnectTimeout, isOutage } from "./failure.ts";
import type { UpstreamRequest } from "./upstream.ts";

/** How the wait of a request ends. */
export type WaitEnd = "back" | "expired" | "stopped" | "client-left";

export type Waiter = (end: WaitEnd) => void;

/** The gateways that cannot be connected to while requests wait for them. */
export class Outages {
  readonly #outages = new Map<string, Outage>();
  /** By tool, method and address of a request that waited and was refused: when, by clock.elapsed(). */
  readonly #refusedAt = new Map<string, number>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param times how often this request has waited. Each time doubles the first pause, for a gateway that accepts only the probe
   * @param noteFailure called with each attempt of the probe that could not connect
   */
  findOrStart(
    request: UpstreamRequest,
    error: Error,
    times: number,
    noteFailure: (error: Error) => void,
  ): Outage {
    const { gateway, address } = request;
    // Requests of an older configuration wait for their own address, outbound proxy and certificate authority.
    const id = JSON.stringify([gateway.name, address.origin, gateway.proxy, gateway.authority?.pem]);
    const known = this.#outages.get(id);
    if (known !== undefined) return known;
    const outage = new Outage(request, error, FIRST_PAUSE_MS * 2 ** times, {
      onFailure: noteFailure,
      onEnd: () => this.#outages.delete(id),
    });
    this.#outages.set(id, outage);
    return outage;
  }

  /** A request waited, and its gateway did not come back. */
  noteRefusal(kind: string): void {
    this.#refusedAt.set(kind, this.#clock.elapsed());
  }

  /**
   * Whether such a request was refused a moment ago. It is then tried once and does not wait again: Claude Code sends a refused
   * request five more times before it shows the refusal.
   */
  wasJustRefused(kind: string): boolean {
    const oldest = this.#clock.elapsed() - AGAIN_MS;
    for (const [known, at] of this.#refusedAt) if (at < oldest) this.#refusedAt.delete(known);
    return this.#refusedAt.has(kind);
  }

  /** Ends every wait, because keybearer stops. */
  stop(): void {
    for (const outage of [...this.#outages.values()]) outage.end("stopped");
  }
}

/** Clients that resend a refused request by themselves do so within this time. */
const AGAIN_MS = 5000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2000;

interface OutageListener {
  readonly onFailure: (error: Error) => void;
  readonly onEnd: () => void;
}

/** One probe tries to connect again and again for all requests that wait. It sends nothing. */
export class Outage {
  /** Why the last attempt failed. */
  error: Error;
  readonly #request: UpstreamRequest;
  readonly #listener: OutageListener;
  readonly #waiters = new Set<Waiter>();
  #pauseMs: number;
  #timer: NodeJS.Timeout;
  #probe: ClientRequest | null = null;

  constructor(request: UpstreamRequest, error: Error, pauseMs: number, listener: OutageListener) {
    this.#request = request;
    this.error = error;
    this.#pauseMs = Math.min(pauseMs, MAX_PAUSE_MS);
    this.#listener = listener;
    this.#timer = setTimeout(() => this.#try(), this.#pauseMs);
  }

  join(waiter: Waiter): void {
    this.#waiters.add(waiter);
  }

  leave(waiter: Waiter): void {
    if (this.#waiters.delete(waiter) && this.#waiters.size === 0) this.#close();
  }

  end(how: WaitEnd): void {
    this.#close();
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const waiter of waiters) waiter(how);
  }

  #close(): void {
    this.#listener.onEnd();
    clearTimeout(this.#timer);
    this.#probe?.destroy();
    this.#probe = null;
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
    this.#listener.onFailure(error);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
    this.#timer = setTimeout(() => this.#try(), this.#pauseMs);
  }
}
