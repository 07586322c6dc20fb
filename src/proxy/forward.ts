import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import type { Clock } from "../clock.ts";
import { closeIdle } from "./agents.ts";
import { Call } from "./call.ts";
import type { Exchange, Outcome, UpgradeExchange } from "./exchange.ts";
import { UpgradeCall } from "./upgrade-call.ts";

/** The only file that knows the proxy engine. */
export interface Forwarder {
  /** Sends the request on and its answer back. Resolves once, however it ends; never rejects. */
  forward(exchange: Exchange): Promise<Outcome>;
  /** The same for a connection that is to become a WebSocket. */
  forwardUpgrade(exchange: UpgradeExchange): Promise<Outcome>;
}

export function createForwarder(clock: Clock): Forwarder {
  const calls = new WeakMap<IncomingMessage, Call>();
  const upgrades = new WeakMap<IncomingMessage, UpgradeCall>();
  // No key and no header goes into these options: the engine prints them under DEBUG.
  // toProxy: otherwise the engine would normalise the path as a URL.
  const engine = createProxyServer({
    selfHandleResponse: true,
    prependPath: false,
    toProxy: true,
    secure: true,
  });
  engine.on("proxyReq", (request, req, _res, _options, socket) =>
    calls.get(req)?.onConnection(request, socket),
  );
  engine.on("proxyRes", (answer, req) => calls.get(req)?.onAnswer(answer));
  engine.on("proxyReqWs", (request: ClientRequest, req: IncomingMessage) =>
    upgrades.get(req)?.onRequest(request),
  );
  // Without a listener the engine throws what it has no callback for: the client vanished, which its response's
  // `close` settles.
  engine.on("error", () => {});

  return {
    forward(exchange) {
      return new Promise((resolve) => {
        const { req, res, origin, headers, agent, asking } = exchange;
        const target = targetOf(origin);
        const send = () => {
          try {
            const instead = asking === null ? {} : { buffer: Readable.from([asking.body]) };
            const options = { target, headers, agent, ssl: fixed(exchange.path), ...instead };
            engine.web(req, res, options, (error) => call.onFailure(error));
          } catch (error) {
            call.onFailure(error instanceof Error ? error : new Error(String(error)));
          }
        };
        const call = new Call(exchange, clock, resolve, () => {
          // Where one kept connection was dead, the others are not trusted either.
          closeIdle(agent);
          send();
        });
        calls.set(req, call);
        // The engine copies req.headers and lays options.headers over them. They start empty, so that the gateway
        // gets exactly what headers.ts built.
        req.headers = {};
        req.url = exchange.path;
        send();
      });
    },
    forwardUpgrade(exchange) {
      return new Promise((resolve) => {
        const { req, socket, head, origin, headers, agent } = exchange;
        const call = new UpgradeCall(exchange, clock, resolve);
        upgrades.set(req, call);
        // The engine looks at these two before it does anything; the rest of what the client sent stays here.
        req.headers = { upgrade: "websocket", connection: "upgrade" };
        req.url = exchange.path;
        const options = { target: targetOf(origin), headers, agent, ssl: fixed(exchange.path) };
        engine.ws(req, socket as Socket, head, options, (error) => call.onFailure(error));
      });
    },
  };
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

/** The parts of an origin as URL names them: the engine would parse it for every request. */
function targetOf(origin: string): { protocol: string; host: string; hostname: string; port: number } {
  const at = origin.indexOf("://");
  const protocol = origin.slice(0, at + 1);
  const host = origin.slice(at + "://".length);
  const hostname = host.replace(/:\d+$/, "");
  const port = Number(host.slice(hostname.length + 1)) || (protocol === "https:" ? 443 : 80);
  return { protocol, host, hostname, port };
}
