import { Agent, createServer, request } from "node:http";
import { UPSTREAM_KEY } from "./prompts.ts";

/*
 * The candidate "node:http": the shortest proxy Node can be, two pipes and a keep-alive agent. Its idle memory is that of Node.
 *   node node-http.js <port> <upstream port>
 */

const [port, upstreamPort] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxFreeSockets: 256 });

createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
  const options = {
    agent,
    host: "127.0.0.1",
    port: Number(upstreamPort),
    method: req.method ?? "GET",
    path: req.url ?? "/",
    headers: { ...req.headers, authorization: `Bearer ${UPSTREAM_KEY}` },
  };
  const upstream = request(options, (answer) => {
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(res);
  });
  upstream.on("error", () => res.destroy());
  res.on("close", () => upstream.destroy());
  req.pipe(upstream);
}).listen(Number(port), "127.0.0.1");
