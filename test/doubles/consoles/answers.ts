import type { Use } from "./console-double.ts";

/** The usage that an answer reports, or none. */
export type Told = Pick<Use, "model" | "input" | "cacheRead" | "cacheWrite" | "output"> & {
  readonly usage: boolean;
};

/** The parts of a 200, in the shape that its endpoint has; the last of a stream tells the usage. */
export function partsOf(endpoint: string, stream: boolean, told: Told): string[] {
  if (endpoint === "/v1/messages") return stream ? messageEvents(told) : [JSON.stringify(message(told))];
  return stream ? chatEvents(told) : [JSON.stringify(chat(told))];
}

const event = (data: object | string, name?: string) =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;

/** Chat completions count the cache within the prompt. */
function chatUsage({ input, cacheRead = 0, cacheWrite = 0, output }: Told): object {
  const prompt_tokens = input + cacheRead + cacheWrite;
  return {
    prompt_tokens,
    completion_tokens: output,
    total_tokens: prompt_tokens + output,
    ...(cacheRead + cacheWrite === 0
      ? {}
      : { prompt_tokens_details: { cached_tokens: cacheRead, cached_creation_tokens: cacheWrite } }),
  };
}

function chat(told: Told): object {
  return {
    id: "chatcmpl-double",
    object: "chat.completion",
    created: 1_780_000_000,
    model: told.model,
    choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
    ...(told.usage ? { usage: chatUsage(told) } : {}),
  };
}

function chatEvents(told: Told): string[] {
  const chunk = (choices: object[], more: object = {}) =>
    event({ id: "chatcmpl-double", object: "chat.completion.chunk", model: told.model, choices, ...more });
  return [
    chunk([{ index: 0, delta: { role: "assistant", content: "hel" }, finish_reason: null }]),
    chunk([{ index: 0, delta: { content: "lo" }, finish_reason: null }]),
    chunk([{ index: 0, delta: {}, finish_reason: "stop" }]),
    ...(told.usage ? [chunk([], { usage: chatUsage(told) })] : []),
    event("[DONE]"),
  ];
}

/** Messages count the cache beside the input. */
function messageUsage({ input, cacheRead = 0, cacheWrite = 0 }: Told, output: number): object {
  return {
    input_tokens: input,
    cache_read_input_tokens: cacheRead,
    cache_creation_input_tokens: cacheWrite,
    output_tokens: output,
  };
}

function message(told: Told): object {
  return {
    id: "msg_double",
    type: "message",
    role: "assistant",
    model: told.model,
    content: [{ type: "text", text: "hello" }],
    stop_reason: "end_turn",
    ...(told.usage ? { usage: messageUsage(told, told.output) } : {}),
  };
}

function messageEvents(told: Told): string[] {
  const start = { id: "msg_double", type: "message", role: "assistant", model: told.model, content: [] };
  const all: { type: string }[] = [
    {
      type: "message_start",
      message: { ...start, ...(told.usage ? { usage: messageUsage(told, 1) } : {}) },
    } as { type: string },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } } as { type: string },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "hello" } } as {
      type: string;
    },
    { type: "content_block_stop", index: 0 } as { type: string },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      ...(told.usage ? { usage: { output_tokens: told.output } } : {}),
    } as { type: string },
    { type: "message_stop" },
  ];
  return all.map((data) => event(data, data.type));
}
