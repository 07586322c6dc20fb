import { Agent, createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { createProxyServer } from "http-proxy-3";
import { KEY } from "../upstream/bodies.ts";

/*
 * A bare proxy library behind node:http, with a keep-alive agent, that sets the key and does nothing else.
 *   node library-proxy.js <http-proxy-3|httpxy> <port> <plain origin> <stream origin>
 */

interface Proxy {
  web(req: IncomingMessage, res: ServerResponse, options: { target: string }): unknown;
  on(name: "error", listener: (error: Error, req: IncomingMessage, res: unknown) => void): unknown;
}

const [library, port, plain = "", stream = ""] = process.argv.slice(2);
const options = {
  agent: new Agent({ keepAlive: true, maxFreeSockets: 256 }),
  headers: { authorization: `Bearer ${KEY}` },
};

function proxyOf(): Proxy {
  if (library === "http-proxy-3") return createProxyServer(options) as unknown as Proxy;
  // Installed beside the bench, not beside keybearer: its types are not there when the project is checked.
  const { createProxyServer: create } = createRequire(import.meta.url)("httpxy") as {
    createProxyServer: (given: typeof options) => Proxy;
  };
  return create(options);
}

const proxy = proxyOf();
proxy.on("error", (_error, _req, res) => (res as ServerResponse).destroy?.());
createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
  const [, first, rest] = /^\/(plain|stream)(\/.*)$/.exec(req.url ?? "") ?? [];
  req.url = rest ?? "/";
  void proxy.web(req, res, { target: first === "stream" ? stream : plain });
}).listen(Number(port), "127.0.0.1");
