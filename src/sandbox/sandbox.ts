import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { withTimeout } from "../core/timeout.ts";
import { Account } from "./account.ts";
import { CONSOLE_PREFIX, Console } from "./console.ts";
import { Gateway, gatewayRoute } from "./gateway.ts";
import { Exchange } from "./http.ts";

const HOST = "127.0.0.1";
/** Longer than clients keep an idle connection: the client closes first, and no request meets a closed connection. */
const KEEP_ALIVE_MS = 75_000;
/** Unknown paths below these are a plain 404. Every other unknown path is the console's web page, with status 200. */
const API_PREFIXES = ["/api/", "/v1/", "/v1beta/"];

/** What sub2api answers to a wrong base URL. */
const WEB_PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>keybearer sandbox</title>
  </head>
  <body>
    <h1>keybearer sandbox</h1>
    <p>This is the console's web page, not an API. The base URL of an OpenAI-compatible client ends in /v1.</p>
  </body>
</html>
`;

/**
 * A gateway with a console like sub2api's, on its own loopback port. `keybearer run` serves it when there
 * is no config.yaml.
 */
export class Sandbox {
  readonly account: Account;
  readonly gateway: Gateway;
  readonly #console: Console;
  readonly #log: Pick<Logger, "error">;
  readonly #inFlight = new Set<Promise<unknown>>();
  #server: Server | null = null;
  #port = 0;

  constructor(clock: Clock, log: Pick<Logger, "error">) {
    this.account = new Account(clock);
    this.gateway = new Gateway(this.account, clock);
    this.#console = new Console(this.account, clock);
    this.#log = log;
  }

  /** Port 0 takes a free one. Can be started again after a stop, with the same keys and usage. */
  async start(port = 0): Promise<void> {
    const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: 0 });
    server.on("request", (request, response) => this.#accept(request, response));
    server.listen(port, HOST);
    await once(server, "listening");
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
  }

  /** Waits for requests in flight, then closes every connection. A second call ends the wait of the first. */
  async stop(graceMs = 0): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    server.close();
    const finished = Promise.allSettled(this.#inFlight);
    await withTimeout(finished, graceMs, null);
    server.closeAllConnections();
    await finished;
    this.#server = null;
  }

  get isRunning(): boolean {
    return this.#server !== null;
  }

  /** The address of the console and of the messages protocol. */
  get origin(): string {
    if (this.#server === null) throw new Error("the sandbox is not running");
    return `http://${HOST}:${this.#port}`;
  }

  get baseUrl(): string {
    return `${this.origin}/v1`;
  }

  #accept(request: IncomingMessage, response: ServerResponse): void {
    const finished = this.#finish(request, response).finally(() => this.#inFlight.delete(finished));
    this.#inFlight.add(finished);
    background(finished, this.#log, "a request to the sandbox");
  }

  /** Resolves when the response has left or its client is gone. */
  async #finish(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const closed = new Promise((resolve) => response.once("close", resolve));
    try {
      await this.serve(request, response);
    } catch (error) {
      // The client must not wait for a response that does not come.
      response.destroy();
      throw error;
    }
    await closed;
  }

  protected async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const exchange = new Exchange(request, response);
    const { method, path } = exchange;
    const route = gatewayRoute(method, path);
    if (route !== null) await this.gateway.serve(exchange, route);
    else if (path.startsWith(`${CONSOLE_PREFIX}/`)) await this.#console.serve(exchange);
    else if (API_PREFIXES.some((prefix) => path.startsWith(prefix))) {
      exchange.send(404, "text/plain", "404 page not found");
    } else exchange.send(200, "text/html; charset=utf-8", WEB_PAGE);
  }
}
