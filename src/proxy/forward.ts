import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import { createProxyServer } from "http-proxy-3";
import type { Clock } from "../clock.ts";
import { Call } from "./call.ts";
import type { Exchange, Outcome, UpgradeExchange } from "./exchange.ts";
import { byName } from "./headers.ts";
import { UpgradeCall } from "./upgrade-call.ts";

/** The only file that knows the proxy engine. */
export interface Forwarder {
  /** Sends the request on and its answer back. Resolves once, however it ends; never rejects. */
  forward(exchange: Exchange): Promise<Outcome>;
  /** The same for a connection that is to become a WebSocket. */
  forwardUpgrade(exchange: UpgradeExchange): Promise<Outcome>;
}

/**
 * Connections that become something else are joined by http-proxy-3. A plain request is sent by node:http itself: the
 * engine would build its headers, address and options anew, which costs as much as all of our own steps before it, and
 * none of its settings would be left on (answers are handled by us, addresses and headers are final).
 */
export function createForwarder(clock: Clock): Forwarder {
  const upgrades = new WeakMap<IncomingMessage, UpgradeCall>();
  // No key and no header goes into these options: the engine prints them under DEBUG.
  // toProxy: otherwise the engine would normalise the path as a URL.
  const engine = createProxyServer({ prependPath: false, toProxy: true, secure: true });
  engine.on("proxyReqWs", (request: ClientRequest, req: IncomingMessage) =>
    upgrades.get(req)?.onRequest(request),
  );
  // Without a listener the engine throws what it has no callback for: the client vanished, which its response's
  // `close` settles.
  engine.on("error", () => {});

  return {
    forward(exchange) {
      return new Promise((resolve) => new Call(exchange, clock, resolve, send).start());
    },
    forwardUpgrade(exchange) {
      return new Promise((resolve) => {
        const { req, socket, head, way, path } = exchange;
        const { address, agent } = way;
        const call = new UpgradeCall(exchange, clock, resolve);
        upgrades.set(req, call);
        // The engine looks at these two before it does anything; the rest of what the client sent stays here.
        req.headers = { upgrade: "websocket", connection: "upgrade" };
        req.url = path;
        const target = {
          protocol: address.secure ? "https:" : "http:",
          host: address.host,
          hostname: address.hostname,
          port: address.port,
        };
        const headers = { ...byName(exchange.headers), connection: "Upgrade", upgrade: "websocket" };
        const options = { target, headers, agent, ssl: fixed(path) };
        engine.ws(req, socket as Socket, head, options, (error) => call.onFailure(error));
      });
    },
  };
}

/** May throw, as Node does at a header that it will not write. */
function send({ req, way, path, headers }: Exchange): ClientRequest {
  const { address, agent } = way;
  return (address.secure ? httpsRequest : httpRequest)({
    host: address.hostname,
    port: address.port,
    method: req.method ?? "GET",
    path,
    headers,
    agent,
    // Whatever the environment says about it (NODE_TLS_REJECT_UNAUTHORIZED).
    rejectUnauthorized: true,
  });
}

/**
 * The engine builds its request on top of this object. path: its way of joining paths loses an empty query, and ours is
 * final already. url: read only by the engine's other way of sending, with fetch(), which a variable of the environment
 * (FORCE_FETCH_PATH) turns on and which follows redirects with the key; without a usable address it sends nothing.
 */
function fixed(path: string): object {
  return {
    get path() {
      return path;
    },
    set path(_) {},
    get url() {
      return "not-by-fetch:";
    },
    set url(_) {},
  };
}
