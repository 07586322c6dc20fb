import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Test } from "tap";
import { listen } from "./listen.ts";

/** One request that reached the gateway, as the gateway itself remembers it. */
export interface Arrival {
  /** What the client wrote into x-marker. */
  readonly marker: string;
  readonly input: number;
  readonly output: number;
}

interface RecordingGateway {
  readonly origin: string;
  /** In the order of their heads' arrival. */
  readonly arrivals: readonly Arrival[];
}

interface RecordingOptions {
  /** The wait between two events. */
  readonly pause: () => Promise<unknown>;
  /** How many events of text a stream has. */
  readonly events: () => number;
}

/** Answers every protocol, slowly, and notes each request as soon as its head is there. */
export async function startRecordingGateway(t: Test, options: RecordingOptions): Promise<RecordingGateway> {
  const arrivals: Arrival[] = [];
  const server = createServer((req, res) => {
    const events = options.events();
    const arrival = { marker: String(req.headers["x-marker"]), input: 7 + events, output: events };
    arrivals.push(arrival);
    req.on("error", () => {});
    res.on("error", () => {});
    req.resume();
    void answer(req, res, arrival, options.pause);
  });
  server.keepAliveTimeout = 60_000;
  const { origin } = await listen(t, server);
  return { origin, arrivals };
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  arrival: Arrival,
  pause: RecordingOptions["pause"],
) {
  const parts = partsOf(req.url ?? "", arrival);
  const stream = parts.length > 1;
  await pause();
  res.writeHead(200, {
    "content-type": stream ? "text/event-stream" : "application/json",
    "x-client-request-id": `gateway-${arrival.marker}`,
  });
  for (const part of parts) {
    if (res.destroyed) return;
    res.write(part);
    await pause();
  }
  res.end();
}

const event = (data: object | string, name?: string) =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;

function partsOf(url: string, { marker, input, output }: Arrival): string[] {
  const words = Array.from({ length: output }, (_, n) => `word ${n} `);
  const id = `body-${marker}`;
  if (url.startsWith("/v1/chat/completions")) {
    const piece = (choices: object[], usage: object | null) =>
      event({ id, object: "chat.completion.chunk", model: "m", choices, usage });
    const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
    return [
      ...words.map((content) => piece([{ index: 0, delta: { content }, finish_reason: null }], null)),
      piece([{ index: 0, delta: {}, finish_reason: "stop" }], null),
      piece([], usage),
      event("[DONE]"),
    ];
  }
  if (url.startsWith("/v1/messages")) {
    const usage = { input_tokens: input, output_tokens: 1 };
    const pieces = words.map((text) => ({
      type: "content_block_delta",
      index: 0,
      delta: { type: "text_delta", text },
    }));
    const all = [
      { type: "message_start", message: { id, type: "message", role: "assistant", model: "m", usage } },
      ...pieces,
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: output } },
      { type: "message_stop" },
    ];
    return all.map((data) => event(data, data.type));
  }
  if (url === "/v1/responses") {
    const usage = { input_tokens: input, output_tokens: output, total_tokens: input + output };
    const all = [
      { type: "response.created", response: { id, model: "m", status: "in_progress" } },
      ...words.map((delta) => ({ type: "response.output_text.delta", delta })),
      { type: "response.completed", response: { id, model: "m", status: "completed", usage } },
    ];
    return all.map((data) => event(data, data.type));
  }
  if (url.startsWith("/v1beta/")) {
    const usageMetadata = { promptTokenCount: input, candidatesTokenCount: output };
    const text = (part: string) => ({ content: { parts: [{ text: part }], role: "model" }, index: 0 });
    return [
      ...words.map((word) => event({ candidates: [text(word)], modelVersion: "m", responseId: id })),
      event({ candidates: [{ ...text(""), finishReason: "STOP" }], usageMetadata, responseId: id }),
    ];
  }
  if (url.startsWith("/v1/embeddings")) {
    const usage = { prompt_tokens: input, total_tokens: input };
    return [JSON.stringify({ object: "list", model: "m", data: [{ embedding: [0.5] }], usage })];
  }
  return [JSON.stringify({ id, object: "response" })];
}
