import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

/** A gateway whose streams of chat stand still after three pieces until they are let go. */
export interface PacedGateway {
  /** http://127.0.0.1:port/v1 */
  readonly base: string;
  /** Streams that stand still. */
  held(): number;
  letGo(): void;
}

const PIECES = ["Good", " morning", "."];

export async function startPacedGateway(t: Test): Promise<PacedGateway> {
  const waiting = new Set<ServerResponse>();
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req as AsyncIterable<Buffer>) chunks.push(chunk);
    const { model, stream } = JSON.parse(Buffer.concat(chunks).toString("utf8") || "{}") as {
      model: string;
      stream?: boolean;
    };
    const usage = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };
    if (stream !== true) {
      res.writeHead(200, { "content-type": "application/json" });
      res.end(JSON.stringify({ id: "chatcmpl-1", model, choices: [], data: [{ id: "priced" }], usage }));
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    for (const content of PIECES)
      res.write(
        `data: ${JSON.stringify({ id: "chatcmpl-1", model, choices: [{ index: 0, delta: { content } }] })}\n\n`,
      );
    waiting.add(res);
    res.once("close", () => waiting.delete(res));
    res.once("letgo", () => {
      const last = {
        id: "chatcmpl-1",
        model,
        choices: [{ index: 0, delta: {}, finish_reason: "stop" }],
        usage,
      };
      res.end(`data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return {
    base: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    held: () => waiting.size,
    letGo() {
      for (const res of waiting) res.emit("letgo");
    },
  };
}
