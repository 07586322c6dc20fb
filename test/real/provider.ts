import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** What the provider does with one request. The request carries it in its prompt, so it passes every gateway. */
export interface Plan {
  /** Names the request in every log. */
  readonly marker: string;
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly status: number;
  /** Milliseconds before the head of the response. */
  readonly headDelay: number;
  readonly chunks: number;
  /** Milliseconds before each chunk. */
  readonly chunkDelay: number;
  /** Ends the connection in the middle of the stream. */
  readonly cut: boolean;
  /** After so many answers with `status` the next ones succeed. Absent: none does. */
  readonly failures?: number;
  /** The id of the answer, as a provider that repeats its ids sends it. Absent: the marker's own. */
  readonly id?: string;
}

/** The plan as text for a prompt: base64url has no character that JSON escapes. */
export function planText(plan: Plan): string {
  return `plan<${Buffer.from(JSON.stringify(plan)).toString("base64url")}>`;
}

function planIn(body: string): Plan | null {
  // Go's JSON encoder writes < and > as \u003c and \u003e.
  const found = /plan(?:<|\\u003c)([\w-]+)(?:>|\\u003e)/.exec(body);
  return found?.[1] === undefined ? null : JSON.parse(Buffer.from(found[1], "base64url").toString());
}

/** The id that the provider gives to its answer. Old versions of sub2api show it to the client and list it in the row. */
export function providerId(marker: string): string {
  return `req_${marker}`;
}

export interface Provider {
  readonly origin: string;
  /** The markers of all requests that arrived. */
  readonly seen: Pick<ReadonlySet<string>, "has">;
  close(): void;
}

/** A model provider that speaks chat completions, responses and messages, and does what the prompt says. */
export async function startProvider(port = 0): Promise<Provider> {
  const seen = new Map<string, number>();
  const server: Server = createServer((request, response) => {
    answer(request, response, seen).catch(() => response.destroy());
  });
  // A gateway keeps connections open between requests that are seconds apart.
  server.keepAliveTimeout = 120_000;
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const address = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${address.port}`,
    seen,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  seen: Map<string, number>,
): Promise<void> {
  let body = "";
  request.setEncoding("utf8");
  for await (const chunk of request) body += chunk;
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  const plan = planIn(body);
  if (plan === null) return sendJson(response, 200, { object: "list", data: [] }, {});
  const earlier = seen.get(plan.marker) ?? 0;
  seen.set(plan.marker, earlier + 1);
  const status = earlier >= (plan.failures ?? Number.POSITIVE_INFINITY) ? 200 : plan.status;

  const { model, stream } = JSON.parse(body) as { model: string; stream?: boolean };
  const id = providerId(plan.marker);
  const head: Record<string, string> = { "x-request-id": id, "request-id": id };
  await sleep(plan.headDelay);
  if (response.destroyed) return;
  if (status !== 200) {
    // Without a time that is over, old versions of sub2api do not use the account for five minutes after a 429.
    if (status === 429) head["anthropic-ratelimit-unified-reset"] = String(Math.floor(Date.now() / 1000) - 1);
    return sendJson(response, status, errorBody(path, status), head);
  }
  const shape = shapeOf(path, plan, model);
  if (stream !== true) {
    await sleep(plan.chunks * plan.chunkDelay);
    if (!response.destroyed) sendJson(response, 200, shape.whole, head);
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream", ...head });
  for (const event of shape.before) response.write(event);
  for (let chunk = 0; chunk < plan.chunks; chunk += 1) {
    await sleep(plan.chunkDelay);
    if (response.destroyed) return;
    if (plan.cut && chunk * 2 >= plan.chunks) {
      response.destroy();
      return;
    }
    response.write(shape.chunk);
  }
  for (const event of shape.after) response.write(event);
  response.end();
}

function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  head: Readonly<Record<string, string>>,
): void {
  response.writeHead(status, { "content-type": "application/json", ...head });
  response.end(JSON.stringify(value));
}

function errorBody(path: string, status: number): unknown {
  const types: Readonly<Record<number, string>> = { 400: "invalid_request_error", 429: "rate_limit_error" };
  const error = { type: types[status] ?? "api_error", message: `the provider answers ${status}` };
  return path.endsWith("/messages") ? { type: "error", error } : { error };
}

/** One answer, whole and as the events of a stream. */
interface Shape {
  readonly whole: unknown;
  readonly before: readonly string[];
  readonly chunk: string;
  readonly after: readonly string[];
}

const WORD = "word ";

function shapeOf(path: string, plan: Plan, model: string): Shape {
  if (path.endsWith("/messages")) return messagesShape(plan, model);
  if (path.endsWith("/embeddings")) return onlyWhole(embeddings(plan, model));
  if (path.endsWith("/images/generations")) return onlyWhole(image(plan));
  return path.endsWith("/responses") ? responsesShape(plan, model) : chatShape(plan, model);
}

function onlyWhole(whole: unknown): Shape {
  return { whole, before: [], chunk: "", after: [] };
}

function embeddings({ input }: Plan, model: string): unknown {
  const usage = { prompt_tokens: input, total_tokens: input };
  return { object: "list", data: [{ object: "embedding", index: 0, embedding: [0.5, 0.25] }], model, usage };
}

function image({ input, output }: Plan): unknown {
  const usage = {
    input_tokens: input,
    input_tokens_details: { text_tokens: input, image_tokens: 0 },
    output_tokens: output,
    total_tokens: input + output,
  };
  return { created: seconds(), data: [{ b64_json: "aGk=" }], usage };
}

function named(type: string, data: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

function nameOf({ id, marker }: Plan): string {
  return id ?? marker;
}

function messagesShape(plan: Plan, model: string): Shape {
  const usage = {
    input_tokens: plan.input,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: plan.cacheRead,
    output_tokens: plan.output,
  };
  const message = {
    id: `msg_${nameOf(plan)}`,
    type: "message",
    role: "assistant",
    model,
    stop_sequence: null,
  };
  const content = [{ type: "text", text: WORD.repeat(plan.chunks) }];
  const start = { ...message, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } };
  const end = {
    delta: { stop_reason: "end_turn", stop_sequence: null },
    usage: { output_tokens: plan.output },
  };
  return {
    whole: { ...message, content, stop_reason: "end_turn", usage },
    before: [
      named("message_start", { message: start }),
      named("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
    ],
    chunk: named("content_block_delta", { index: 0, delta: { type: "text_delta", text: WORD } }),
    after: [
      named("content_block_stop", { index: 0 }),
      named("message_delta", end),
      named("message_stop", {}),
    ],
  };
}

function responsesShape(plan: Plan, model: string): Shape {
  const whole = plan.input + plan.cacheRead;
  const usage = {
    input_tokens: whole,
    input_tokens_details: { cached_tokens: plan.cacheRead },
    output_tokens: plan.output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: whole + plan.output,
  };
  const text = WORD.repeat(plan.chunks);
  const item = {
    id: `msg_${plan.marker}`,
    type: "message",
    role: "assistant",
    status: "completed",
    content: [{ type: "output_text", text, annotations: [] }],
  };
  const response = { id: `resp_${nameOf(plan)}`, object: "response", created_at: seconds(), model };
  const done = { ...response, status: "completed", output: [item], usage };
  const begun = { ...response, status: "in_progress", output: [] };
  return {
    whole: done,
    before: [named("response.created", { response: begun })],
    chunk: named("response.output_text.delta", {
      item_id: item.id,
      output_index: 0,
      content_index: 0,
      delta: WORD,
    }),
    after: [named("response.completed", { response: done })],
  };
}

function chatShape(plan: Plan, model: string): Shape {
  const whole = plan.input + plan.cacheRead;
  const usage = {
    prompt_tokens: whole,
    completion_tokens: plan.output,
    total_tokens: whole + plan.output,
    prompt_tokens_details: { cached_tokens: plan.cacheRead },
  };
  const base = { id: `chatcmpl-${nameOf(plan)}`, created: seconds(), model };
  const event = (data: object) =>
    `data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", ...data })}\n\n`;
  const message = { role: "assistant", content: WORD.repeat(plan.chunks) };
  return {
    whole: {
      ...base,
      object: "chat.completion",
      choices: [{ index: 0, message, finish_reason: "stop" }],
      usage,
    },
    before: [event({ choices: [{ index: 0, delta: { role: "assistant" }, finish_reason: null }] })],
    chunk: event({ choices: [{ index: 0, delta: { content: WORD }, finish_reason: null }] }),
    after: [
      event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }),
      event({ choices: [], usage }),
      "data: [DONE]\n\n",
    ],
  };
}

function seconds(): number {
  return Math.floor(Date.now() / 1000);
}
