import type { Tokens } from "../account.ts";
import {
  lastUserText,
  type ModelReply,
  type ModelRequest,
  type Protocol,
  parseRequest,
  promptText,
  type StreamEvent,
  sse,
} from "./protocol.ts";

/** POST /v1/responses */
export const responses: Protocol = {
  errorShape: "openai",
  produces: "text",
  reportsCacheWrites: false,

  parse: (body) =>
    parseRequest(body, {
      limits: ["max_output_tokens"],
      prompt: promptText(body.tools, body.instructions, body.input),
      lastUserText: lastUserText(body.input),
    }),

  whole: finished,

  *events(request, reply): Generator<StreamEvent> {
    let sequence = 0;
    const event = (type: string, fields: object): string => {
      const bytes = sse({ type, sequence_number: sequence, ...fields }, type);
      sequence += 1;
      return bytes;
    };
    const position = { item_id: `msg_${reply.id}`, output_index: 0, content_index: 0 };
    const started = { response: responseObject(request, reply, "in_progress", [], null) };
    yield { bytes: event("response.created", started) };
    yield { bytes: event("response.in_progress", started) };
    const emptyItem = { output_index: 0, item: messageItem(reply, "in_progress", []) };
    yield { bytes: event("response.output_item.added", emptyItem) };
    yield { bytes: event("response.content_part.added", { ...position, part: textPart("") }) };
    for (const delta of reply.deltas) {
      yield { bytes: event("response.output_text.delta", { ...position, delta, logprobs: [] }), delta };
    }
    const { text } = reply;
    yield { bytes: event("response.output_text.done", { ...position, text, logprobs: [] }) };
    yield { bytes: event("response.content_part.done", { ...position, part: textPart(text) }) };
    yield { bytes: event("response.output_item.done", { output_index: 0, item: finishedItem(reply) }) };
    yield { bytes: event(`response.${finalStatus(reply)}`, { response: finished(request, reply) }) };
  },
};

type Status = "in_progress" | "completed" | "incomplete";

function finalStatus(reply: ModelReply): Status {
  return reply.truncated ? "incomplete" : "completed";
}

function finished(request: ModelRequest, reply: ModelReply): object {
  const output = [finishedItem(reply)];
  return responseObject(request, reply, finalStatus(reply), output, usageOf(reply.tokens));
}

function finishedItem(reply: ModelReply): object {
  return messageItem(reply, finalStatus(reply), [textPart(reply.text)]);
}

function messageItem(reply: ModelReply, status: Status, content: readonly object[]): object {
  return { id: `msg_${reply.id}`, type: "message", status, role: "assistant", content };
}

function textPart(text: string): object {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

/** Repeats the settings of the request, with the real service's defaults for those that are absent. */
function responseObject(
  { body, maxTokens }: ModelRequest,
  reply: ModelReply,
  status: Status,
  output: readonly object[],
  usage: object | null,
): object {
  return {
    id: `resp_${reply.id}`,
    object: "response",
    created_at: reply.created,
    status,
    background: false,
    error: null,
    incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
    instructions: body.instructions ?? null,
    max_output_tokens: maxTokens,
    model: reply.model,
    output,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    reasoning: body.reasoning ?? { effort: null, summary: null },
    service_tier: "default",
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: body.text ?? { format: { type: "text" } },
    tool_choice: body.tool_choice ?? "auto",
    tools: body.tools ?? [],
    top_p: body.top_p ?? 1,
    truncation: body.truncation ?? "disabled",
    usage,
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  };
}

/** input_tokens includes the cached tokens, output_tokens the reasoning tokens. */
function usageOf(tokens: Tokens): object {
  const input = tokens.input + tokens.cacheRead + tokens.cacheWrite;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: tokens.cacheRead },
    output_tokens: tokens.output,
    output_tokens_details: { reasoning_tokens: tokens.reasoning },
    total_tokens: input + tokens.output,
  };
}
