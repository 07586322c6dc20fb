import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { DOWNLOAD_BYTES, DOWNLOAD_PATH, MODEL, plainAnswer } from "./bodies.ts";

/*
 * The upstream in a process of its own: paced streams whose events carry the time they were written, an answer that
 * tells what arrived, and, where there is no nginx, the fixed answer and the large one.
 *   node server.js <port> [fixed]
 */

const EVENT_MS = 50;
const MOST_EVENTS = 10_000;

function events(res: ServerResponse, count: number): void {
  let sent = 0;
  const chunk = (delta: object, finish: string | null, usage: object | null) =>
    `data: ${JSON.stringify({
      id: "chatcmpl-bench0123456789",
      object: "chat.completion.chunk",
      created: 1_763_164_800,
      model: MODEL,
      choices: [{ index: 0, delta, finish_reason: finish }],
      usage,
    })}\n\n`;
  const next = () => {
    sent += 1;
    if (sent < count) {
      // The system's monotonic clock, the same for every process of the machine.
      res.write(chunk({ content: `t=${process.hrtime.bigint()} ` }, null, null));
      return;
    }
    clearInterval(timer);
    const usage = { prompt_tokens: 12, completion_tokens: count, total_tokens: 12 + count };
    res.end(`${chunk({}, "stop", usage)}data: [DONE]\n\n`);
  };
  const timer = setInterval(next, EVENT_MS);
  res.once("close", () => clearInterval(timer));
  res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  next();
}

/** What arrived here, so that a candidate can be shown to pass it on as it should. */
function echo(req: IncomingMessage, res: ServerResponse, body: Buffer): void {
  const seen = {
    authorization: req.headers.authorization ?? null,
    sha256: createHash("sha256").update(body).digest("hex"),
    json: JSON.parse(body.toString("utf8")) as unknown,
  };
  const content = JSON.stringify(seen);
  const usage = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };
  const choices = [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }];
  json(res, JSON.stringify({ id: "chatcmpl-echo", object: "chat.completion", model: MODEL, choices, usage }));
}

function json(res: ServerResponse, text: string): void {
  res.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  res.end(text);
}

function large(res: ServerResponse): void {
  const block = Buffer.alloc(1024 * 1024, "keybearer bench ");
  let left = DOWNLOAD_BYTES;
  res.writeHead(200, { "content-type": "application/octet-stream", "content-length": DOWNLOAD_BYTES });
  const more = () => {
    while (left > 0) {
      left -= block.length;
      if (!res.write(block) && left > 0) {
        res.once("drain", more);
        return;
      }
    }
    res.end();
  };
  more();
}

const [port, mode] = process.argv.slice(2);
const fixed = mode === "fixed" ? plainAnswer() : null;
const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
  if (req.url === DOWNLOAD_PATH) return large(res);
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => void chunks.push(chunk));
  req.on("end", () => {
    if (fixed !== null) return json(res, fixed);
    const body = Buffer.concat(chunks);
    const asked = JSON.parse(body.toString("utf8")) as { stream?: boolean; max_tokens?: number };
    if (asked.stream === true) events(res, Math.min(MOST_EVENTS, asked.max_tokens ?? 10));
    else echo(req, res, body);
  });
});
server.listen(Number(port), "127.0.0.1");
