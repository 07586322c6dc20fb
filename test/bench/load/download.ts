import { connect } from "node:net";

/*
 * Reads one answer to its end and tells how fast it came. A bare socket: Node's own client would be measured along.
 *   node download.js <url> <headers as JSON>
 */

const url = new URL(process.argv[2] ?? "");
const headers = JSON.parse(process.argv[3] ?? "{}") as Record<string, string>;
const lines = Object.entries({ host: url.host, connection: "close", ...headers });
const began = performance.now();
let bytes = 0;
let head = "";
const socket = connect({ host: url.hostname, port: Number(url.port) }, () => {
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  socket.write(`GET ${url.pathname} HTTP/1.1\r\n${head}\r\n`);
});
socket.setTimeout(60_000, () => socket.destroy(new Error("nothing came for a minute")));
socket.on("data", (chunk) => {
  if (bytes === 0) head = chunk.toString("latin1", 0, 200);
  bytes += chunk.length;
});
socket.once("close", () => {
  const seconds = (performance.now() - began) / 1000;
  process.stdout.write(`${JSON.stringify({ ok: /^HTTP\/1\.1 200 /.test(head), bytes, seconds })}\n`);
});
socket.once("error", (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
});
