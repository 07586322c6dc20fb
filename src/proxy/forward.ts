import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { createProxyServer } from "http-proxy-3";
import type { Clock } from "../clock.ts";
import { Call } from "./call.ts";
import { ComingPassage } from "./coming-passage.ts";
import type { Exchange, Outcome, UpgradeExchange } from "./exchange.ts";
import { byName } from "./headers.ts";
import type { Passage } from "./passage.ts";
import { UpgradeCall } from "./upgrade-call.ts";
import type { Way } from "./ways.ts";
import { WholePassage } from "./whole-passage.ts";

/** The only file that knows the proxy engine. */
export interface Forwarder {
  /** Sends the request on and its answer back. Resolves once, however it ends; never rejects. */
  forward(exchange: Exchange): Promise<Outcome>;
  /** The same for a connection that is to become a WebSocket. */
  forwardUpgrade(exchange: UpgradeExchange): Promise<Outcome>;
}

/**
 * What still comes while it is sent, a long upload or a connection that becomes a WebSocket, is joined to the gateway by
 * http-proxy-3. A request that is here whole, as nearly every one is, has no use for that: undici sends it.
 */
export function createForwarder(clock: Clock): Forwarder {
  const passages = new WeakMap<IncomingMessage, ComingPassage>();
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
    passages.get(req)?.onSocket(request, socket),
  );
  engine.on("proxyRes", (answer, req) => passages.get(req)?.onAnswer(answer));
  engine.on("proxyReqWs", (request: ClientRequest, req: IncomingMessage) =>
    upgrades.get(req)?.onRequest(request),
  );
  // Without a listener the engine throws what it has no callback for: the client vanished, which its response's
  // `close` settles.
  engine.on("error", () => {});

  const sendComing = (exchange: Exchange, call: Call): Passage => {
    const { req, res, way, path, headers } = exchange;
    const passage = new ComingPassage(call);
    passages.set(req, passage);
    req.on("data", (chunk: Buffer) => call.onSent(chunk));
    // The engine copies req.headers and lays options.headers over them. They start empty, so that the gateway gets
    // exactly what headers.ts built.
    req.headers = {};
    req.url = path;
    const options = { ...targetOf(way), headers: byName(headers), ssl: fixed(path) };
    engine.web(req, res, options, (error) => passage.onFailure(error));
    return passage;
  };

  return {
    forward(exchange) {
      const send = exchange.body === null && exchange.asking === null ? sendComing : sendWhole;
      return new Promise((resolve) => new Call(exchange, clock, resolve, send).start());
    },
    forwardUpgrade(exchange) {
      return new Promise((resolve) => {
        const { req, socket, head, way, path } = exchange;
        const call = new UpgradeCall(exchange, clock, resolve);
        upgrades.set(req, call);
        // The engine looks at these two before it does anything; the rest of what the client sent stays here.
        req.headers = { upgrade: "websocket", connection: "upgrade" };
        req.url = path;
        const headers = { ...byName(exchange.headers), connection: "Upgrade", upgrade: "websocket" };
        const options = { ...targetOf(way), headers, ssl: fixed(path) };
        engine.ws(req, socket as Socket, head, options, (error) => call.onFailure(error));
      });
    },
  };
}

function sendWhole(exchange: Exchange, call: Call): Passage {
  const { req, way, body } = exchange;
  const passage = new WholePassage(way.lines, call);
  if (body !== null) for (const chunk of body) call.onSent(chunk);
  // Read away: another one is sent in its place.
  else req.on("data", (chunk: Buffer) => call.onSent(chunk));
  passage.send(exchange);
  return passage;
}

interface Target {
  readonly protocol: string;
  readonly host: string;
  readonly hostname: string;
  readonly port: number;
}

/** As URL names the parts: the engine would parse an address for every request. */
function targetOf({ address, agent }: Way): { target: Target; agent: Agent } {
  const { secure, host, hostname, port } = address;
  return { target: { protocol: secure ? "https:" : "http:", host, hostname, port }, agent };
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
