// The answers of the gateway beside a console double, in each protocol, as the headers of a request order them.
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { AccountKey, Call, Reply, Use } from "./console-double.ts";

/*
 * Headers of a request to the gateway say what becomes of it:
 * x-test-input, -output, -cache-read, -cache-write   tokens in the answer and in the row; default 12, 5, 0, 0
 * x-test-row-output              output tokens of the row, where they differ from the answer's
 * x-test-dollars, -list-dollars  money of the row; default by the tokens
 * x-test-no-row                  the console never lists it
 * x-test-errors                  so many failed attempts come before the one that succeeds
 * x-test-status                  it fails with this status and is not billed
 * x-test-hang-before-headers     no response; billed when the client leaves
 * x-test-hang-in-body            headers and the first part, then nothing; billed when the client leaves
 * x-test-pieces                  so many deltas before it hangs
 */

export function useOf(call: Call, key: AccountKey, multiplier: number, requestId: string): Use {
  const input = testNumber(call, "input") ?? 12;
  const output = testNumber(call, "output") ?? 5;
  const cacheRead = testNumber(call, "cache-read") ?? 0;
  const cacheWrite = testNumber(call, "cache-write") ?? 0;
  const priced = (input * 3 + cacheRead * 0.3 + cacheWrite * 3.75 + output * 15) / 1_000_000;
  const listDollars = testNumber(call, "list-dollars") ?? priced;
  return {
    key: key.key,
    model: String(call.body.model ?? ""),
    stream: call.body.stream === true,
    input,
    cacheRead,
    cacheWrite,
    output,
    dollars: testNumber(call, "dollars") ?? listDollars * multiplier,
    listDollars,
    requestId,
    errors: testNumber(call, "errors") ?? 0,
    endpoint: call.path,
  };
}

/** Answers a request that succeeds, and calls `bill` when the gateway would. */
export async function sendAnswer(
  call: Call,
  use: Use,
  res: ServerResponse,
  headers: Record<string, string>,
  bill: () => void,
): Promise<void> {
  const closed = once(res, "close");
  if (hasTest(call, "hang-before-headers")) {
    await closed;
    return bill();
  }
  const parts = answerParts(call.path, use);
  res.writeHead(200, { "content-type": use.stream ? "text/event-stream" : "application/json", ...headers });
  if (hasTest(call, "hang-in-body")) {
    res.write(use.stream ? parts[0] : parts[0]?.slice(0, 10));
    const delta = parts.find((part) => /"delta":\{("type":"text_delta"|"content")/.test(part)) ?? "";
    res.write(delta.repeat(testNumber(call, "pieces") ?? 0));
    await closed;
    return bill();
  }
  const last = parts.pop() ?? "";
  for (const part of parts) res.write(part);
  // Before the last byte, so that a client that read the whole answer finds the row.
  bill();
  res.end(last);
}

export function upstreamError(status: number, path: string): Reply {
  const error = { type: "api_error", message: `bad response status code ${status}` };
  return { status, body: path.startsWith("/v1/messages") ? { type: "error", error } : { error } };
}

export function hasTest(call: Call, name: string): boolean {
  return call.headers[`x-test-${name}`] !== undefined;
}

export function testNumber(call: Call, name: string): number | null {
  return hasTest(call, name) ? Number(call.headers[`x-test-${name}`]) : null;
}

/** The parts of a successful answer, in the shape of its endpoint. A whole answer is one part, a stream one per event. */
function answerParts(endpoint: string, use: Use): string[] {
  if (endpoint === "/v1/messages") return use.stream ? messageEvents(use) : [JSON.stringify(message(use))];
  return use.stream ? chatEvents(use) : [JSON.stringify(chat(use))];
}

/** Chat completions count the cache within the prompt. */
function chatUsage({ input, cacheRead = 0, cacheWrite = 0, output }: Use): object {
  const prompt = input + cacheRead + cacheWrite;
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: { cached_tokens: cacheRead, cached_creation_tokens: cacheWrite },
  };
}

function chat(use: Use): object {
  return {
    id: "chatcmpl-double",
    object: "chat.completion",
    created: 1_780_000_000,
    model: use.model,
    choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
    usage: chatUsage(use),
  };
}

function chatEvents(use: Use): string[] {
  const chunk = { id: "chatcmpl-double", object: "chat.completion.chunk", model: use.model };
  const chunks = [
    { ...chunk, choices: [{ index: 0, delta: { role: "assistant", content: "hel" }, finish_reason: null }] },
    { ...chunk, choices: [{ index: 0, delta: { content: "lo" }, finish_reason: null }] },
    { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
    { ...chunk, choices: [], usage: chatUsage(use) },
  ];
  return [...chunks.map((data) => `data: ${JSON.stringify(data)}\n\n`), "data: [DONE]\n\n"];
}

/** Messages count the cache beside the input. */
function messageUsage({ input, cacheRead = 0, cacheWrite = 0 }: Use, output: number): object {
  return {
    input_tokens: input,
    cache_read_input_tokens: cacheRead,
    cache_creation_input_tokens: cacheWrite,
    output_tokens: output,
  };
}

function message(use: Use): object {
  return {
    id: "msg_double",
    type: "message",
    role: "assistant",
    model: use.model,
    content: [{ type: "text", text: "hello" }],
    stop_reason: "end_turn",
    usage: messageUsage(use, use.output),
  };
}

function messageEvents(use: Use): string[] {
  const started = { ...message(use), content: [], stop_reason: null, usage: messageUsage(use, 1) };
  const stopped = { stop_reason: "end_turn", stop_sequence: null };
  const events = [
    { type: "message_start", message: started },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "hello" } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: stopped, usage: { output_tokens: use.output } },
    { type: "message_stop" },
  ];
  return events.map((data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`);
}
