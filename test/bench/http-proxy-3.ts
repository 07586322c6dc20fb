import { Agent, createServer, type ServerResponse } from "node:http";
import { createProxyServer } from "http-proxy-3";
import { UPSTREAM_KEY } from "./prompts.ts";

/*
 * The candidate "http-proxy-3": the library behind node:http with a keep-alive agent. It sets the key and does nothing else.
 *   node http-proxy-3.js <port> <upstream port>
 */

const [port, upstreamPort] = process.argv.slice(2);
const proxy = createProxyServer({
  target: `http://127.0.0.1:${upstreamPort}`,
  agent: new Agent({ keepAlive: true, maxFreeSockets: 256 }),
  headers: { authorization: `Bearer ${UPSTREAM_KEY}` },
});
proxy.on("error", (_error, _req, res) => res.destroy());

function answerHealth(res: ServerResponse): void {
  res.writeHead(200, { "content-type": "text/plain", "content-length": 2 });
  res.end("ok");
}

createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
  if (req.url === "/healthz") answerHealth(res);
  else proxy.web(req, res);
}).listen(Number(port), "127.0.0.1");
