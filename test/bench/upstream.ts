import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { MODEL, PATHS, readInstruction, type StreamRequest, UPSTREAM_KEY } from "./prompts.ts";

/*
 * The gateway that every candidate forwards to, in a process of its own. It reads the whole body, then answers at once: JSON
 * with usage, or an event stream. Events of a paced stream carry the time at which they were written.
 */

/** Events written in one turn of the event loop when a stream has no pace, as a gateway does that catches up. */
const EVENTS_PER_WRITE = 10;

/** The parts of one protocol's stream. `before` and `after` surround the text of one event. */
interface StreamFormat {
  readonly open: string;
  readonly before: string;
  readonly after: string;
  readonly close: string;
}

const CHUNK = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1763164800,"model":"${MODEL}"`;

const CHAT: StreamFormat = {
  open: `${CHUNK},"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}\n\n`,
  before: `${CHUNK},"choices":[{"index":0,"delta":{"content":"`,
  after: '"},"finish_reason":null}]}\n\n',
  close: `${CHUNK},"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":900,"completion_tokens":300,"total_tokens":1200}}\n\ndata: [DONE]\n\n`,
};

/** One event of the messages protocol, whose name is in the data once more. */
function messagesEvent(type: string, fields: string): string {
  return `event: ${type}\ndata: {"type":"${type}"${fields}}\n\n`;
}

const MESSAGE = `{"id":"msg_bench","type":"message","role":"assistant","model":"${MODEL}","content":[],"stop_reason":null,"usage":{"input_tokens":900,"output_tokens":1}}`;

const MESSAGES: StreamFormat = {
  open:
    messagesEvent("message_start", `,"message":${MESSAGE}`) +
    messagesEvent("content_block_start", ',"index":0,"content_block":{"type":"text","text":""}'),
  before:
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"',
  after: '"}}\n\n',
  close:
    messagesEvent("content_block_stop", ',"index":0') +
    messagesEvent("message_delta", ',"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":300}') +
    messagesEvent("message_stop", ""),
};

/** The clock that all processes of a machine share, in nanoseconds. Fixed width, so that streams have one length. */
function timestamp(): string {
  return process.hrtime.bigint().toString().padStart(18, "0");
}

function writeStream(res: ServerResponse, format: StreamFormat, { events, paceMs }: StreamRequest): void {
  res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  res.write(format.open);
  let written = 0;
  if (paceMs > 0) {
    const timer = setInterval(() => {
      res.write(`${format.before}t=${timestamp()} ${format.after}`);
      written += 1;
      if (written < events) return;
      clearInterval(timer);
      res.end(format.close);
    }, paceMs);
    res.once("close", () => clearInterval(timer));
    return;
  }
  // Without a pace every stream has the same bytes, so that the check can compare them. The texts are numbered, because LiteLLM
  // ends a stream that repeats one text a hundred times.
  const writeMore = () => {
    if (res.destroyed) return;
    let text = "";
    const end = Math.min(written + EVENTS_PER_WRITE, events);
    for (; written < end; written += 1) text += `${format.before}word ${written} ${format.after}`;
    res.write(text);
    if (written < events) setImmediate(writeMore);
    else res.end(format.close);
  };
  writeMore();
}

function plainAnswer(): string {
  const content = 'Done. I changed `readSettings("app.json")`:\n\n```ts\nconst text = "…";\n```\n'.repeat(6);
  return JSON.stringify({
    id: "chatcmpl-bench0123456789",
    object: "chat.completion",
    created: 1_763_164_800,
    model: MODEL,
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
    usage: { prompt_tokens: 900, completion_tokens: 120, total_tokens: 1020 },
  });
}

function main(): void {
  const answer = Buffer.from(plainAnswer());
  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      if (req.headers.authorization !== `Bearer ${UPSTREAM_KEY}`) {
        res.writeHead(401).end();
        return;
      }
      const stream = readInstruction(Buffer.concat(chunks));
      if (stream === null) {
        res.writeHead(200, { "content-type": "application/json", "content-length": answer.length });
        res.end(answer);
      } else {
        writeStream(res, req.url === PATHS.messages ? MESSAGES : CHAT, stream);
      }
    });
  });
  server.listen(0, "127.0.0.1", () => {
    process.send?.({ port: (server.address() as AddressInfo).port });
  });
  process.once("disconnect", () => process.exit());
}

main();
