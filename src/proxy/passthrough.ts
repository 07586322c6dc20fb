import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import { byName } from "./headers.ts";
import type { UpstreamRequest } from "./upstream.ts";

interface PassthroughEvents {
  /** The request has a socket, which may still connect. */
  onSocket(request: ClientRequest, socket: Socket): void;
  onResponse(response: IncomingMessage): void;
  onError(error: Error): void;
}

interface UpgradeEvents {
  /** The request is made, and nothing of it is sent. */
  onRequest(request: ClientRequest): void;
  onError(error: Error): void;
}

/**
 * Sends what is not read here with http-proxy-3: requests without a body, uploads, large bodies and WebSockets. The only file
 * that knows it. Its options hold no key when it is created, because it prints them under DEBUG.
 */
export class Passthrough {
  /** toProxy: the path is taken as it is, and not resolved as a URL. */
  readonly #proxy = createProxyServer({
    selfHandleResponse: true,
    prependPath: false,
    toProxy: true,
    secure: true,
  });
  readonly #requests = new WeakMap<IncomingMessage, PassthroughEvents>();
  readonly #upgrades = new WeakMap<IncomingMessage, UpgradeEvents>();

  constructor() {
    this.#proxy.on("proxyReq", (request, req, _res, _options, socket) =>
      this.#requests.get(req)?.onSocket(request, socket),
    );
    this.#proxy.on("proxyRes", (response, req) => this.#requests.get(req)?.onResponse(response));
    this.#proxy.on("proxyReqWs", (request: ClientRequest, req: IncomingMessage) =>
      this.#upgrades.get(req)?.onRequest(request),
    );
    // It throws errors that have no listener. These are of clients that left, which their connections' `close` reports.
    this.#proxy.on("error", () => {});
  }

  send(req: IncomingMessage, res: ServerResponse, request: UpstreamRequest, events: PassthroughEvents): void {
    this.#requests.set(req, events);
    // It sends req.headers with ours on top, so those of the client are removed first.
    req.headers = {};
    req.url = request.address.path;
    const options = { ...targetOf(request), headers: byName(request.headers) };
    this.#proxy.web(req, res, options, (error) => events.onError(error));
  }

  upgrade(
    req: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    request: UpstreamRequest,
    events: UpgradeEvents,
  ): void {
    this.#upgrades.set(req, events);
    // It checks these two before it does anything.
    req.headers = { upgrade: "websocket", connection: "upgrade" };
    req.url = request.address.path;
    const headers = { ...byName(request.headers), connection: "Upgrade", upgrade: "websocket" };
    const options = { ...targetOf(request), headers };
    this.#proxy.ws(req, socket as Socket, head, options, (error) => events.onError(error));
  }
}

function targetOf({ address, agent }: UpstreamRequest) {
  const { secure, host, hostname, port } = address;
  return { target: { protocol: secure ? "https:" : "http:", host, hostname, port }, agent };
}
