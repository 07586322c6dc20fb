import { timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Listen } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { withNext } from "../core/display.ts";
import type { Logger } from "../core/log.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import { REFUSALS } from "../core/refusal.ts";
import { hashToken } from "../core/token.ts";
import { guard } from "../proxy/guard.ts";
import { withoutQuery } from "../proxy/routes.ts";
import { authority, hostsOf, openSidePort, type Port } from "../proxy/server.ts";
import { sendAnswer } from "../proxy/write-refusal.ts";
import type { Exporter } from "./exporter.ts";

interface ServerDeps {
  readonly log: Logger;
  readonly peers: PeerLookup;
  /** The SHA-256 of the token in config.yaml; null: there is none. */
  readonly tokenHash: () => string | null;
  readonly exporter: Exporter;
}

/** The port at which Prometheus reads. It serves GET /metrics and nothing else. */
export class MetricsServer {
  readonly #deps: ServerDeps;
  #port: Port | null = null;
  #listen: Listen | null = null;
  #hosts: readonly string[] = [];
  #url = "";

  constructor(deps: ServerDeps) {
    this.#deps = deps;
  }

  get url(): string {
    return this.#url;
  }

  isOn(listen: Listen | null): boolean {
    return this.#listen?.host === listen?.host && this.#listen?.port === listen?.port;
  }

  /** Throws an error with a message for people if that fails. */
  async open(listen: Listen): Promise<void> {
    const serve = (req: IncomingMessage, res: ServerResponse) => this.#serve(req, res);
    this.#port = await openSidePort("metrics", listen, this.#deps.log, serve);
    const { port } = this.#port;
    this.#listen = listen;
    this.#hosts = hostsOf(port);
    this.#url = `http://${authority(listen.host, port)}/metrics`;
  }

  async close(): Promise<void> {
    await this.#port?.close();
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { method = "", url: target = "", rawHeaders } = req;
    const refusal = guard({ method, target, rawHeaders }, this.#hosts, []);
    if (refusal !== null) return sendText(req, res, REFUSALS[refusal.code].status, refusal.message);
    if (withoutQuery(target) !== "/metrics" || (method !== "GET" && method !== "HEAD"))
      return sendText(req, res, 404, "here is only GET /metrics");
    const problem = await this.#checkReader(req);
    if (problem !== null) {
      res.setHeader("www-authenticate", "Bearer");
      return sendText(req, res, 401, problem);
    }
    const { exporter } = this.#deps;
    send(req, res, 200, exporter.contentType, await exporter.write());
  }

  /** The user that keybearer runs as may read, and so may everyone with the token. null: it may. */
  async #checkReader(req: IncomingMessage): Promise<string | null> {
    const { peers, tokenHash } = this.#deps;
    const expected = tokenHash();
    const given = bearerToken(req.headers.authorization);
    if (given !== null) {
      if (expected !== null && isEqual(hashToken(given), expected)) return null;
      return withNext({ problem: "this is not the token for metrics", next: advice.metricsToken() });
    }
    // Elsewhere the lookup takes every caller for the owner.
    if (peers.supported && (await peers.of(req.socket)) === "ours") return null;
    const problem = peers.supported
      ? "another user of this machine needs the token for metrics"
      : "this system does not show whose a connection is, so the token for metrics is needed";
    return withNext({ problem, next: advice.metricsToken() });
  }
}

function bearerToken(header: string | undefined): string | null {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? (header === undefined ? null : "");
}

/** @param one hexadecimal, as long as the other. */
function isEqual(one: string, other: string): boolean {
  return timingSafeEqual(Buffer.from(one), Buffer.from(other));
}

function sendText(req: IncomingMessage, res: ServerResponse, status: number, text: string): void {
  send(req, res, status, "text/plain; charset=utf-8", `${text}\n`);
}

function send(req: IncomingMessage, res: ServerResponse, status: number, type: string, body: string): void {
  const headers = {
    "content-type": type,
    "content-length": String(Buffer.byteLength(body)),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
  };
  sendAnswer(req, res, { status, headers, body });
}
