import type { Use } from "./console-double.ts";

/** The parts of a successful answer, in the shape of its endpoint. A whole answer is one part, a stream one per event. */
export function answerParts(endpoint: string, use: Use): string[] {
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
