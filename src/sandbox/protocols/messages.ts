import type { Tokens } from "../account.ts";
import {
  lastUserText,
  type ModelReply,
  type Protocol,
  parseRequest,
  promptText,
  type StreamEvent,
  sse,
} from "./protocol.ts";

/** POST /v1/messages */
export const messages: Protocol = {
  errorShape: "anthropic",
  produces: "text",
  reportsCacheWrites: true,

  parse: (body) =>
    parseRequest(body, {
      limits: ["max_tokens"],
      prompt: promptText(body.tools, body.system, body.messages),
      lastUserText: lastUserText(body.messages),
    }),

  whole: (_request, reply) => ({
    ...envelope(reply),
    content: [{ type: "text", text: reply.text }],
    stop_reason: stopReason(reply),
    usage: usageOf(reply.tokens, reply.tokens.output),
  }),

  *events(_request, reply): Generator<StreamEvent> {
    const event = (type: string, fields: object): string => sse({ type, ...fields }, type);
    // The real service starts with an output of 1, too. The number in message_delta replaces it.
    const usage = usageOf(reply.tokens, 1);
    const started = { ...envelope(reply), content: [], stop_reason: null, usage };
    yield { bytes: event("message_start", { message: started }) };
    const block = { index: 0, content_block: { type: "text", text: "" } };
    yield { bytes: event("content_block_start", block) };
    yield { bytes: event("ping", {}) };
    for (const text of reply.deltas) {
      const delta = { type: "text_delta", text };
      yield { bytes: event("content_block_delta", { index: 0, delta }), delta: text };
    }
    yield { bytes: event("content_block_stop", { index: 0 }) };
    const end = {
      delta: { stop_reason: stopReason(reply), stop_sequence: null },
      usage: usageOf(reply.tokens, reply.tokens.output),
    };
    yield { bytes: event("message_delta", end) };
    yield { bytes: event("message_stop", {}) };
  },
};

function envelope(reply: ModelReply): object {
  return {
    id: `msg_${reply.id}`,
    type: "message",
    role: "assistant",
    model: reply.model,
    stop_sequence: null,
  };
}

function stopReason(reply: ModelReply): string {
  return reply.truncated ? "max_tokens" : "end_turn";
}

/** input_tokens excludes the cached tokens. */
function usageOf(tokens: Tokens, output: number): object {
  return {
    input_tokens: tokens.input,
    cache_creation_input_tokens: tokens.cacheWrite,
    cache_read_input_tokens: tokens.cacheRead,
    cache_creation: { ephemeral_5m_input_tokens: tokens.cacheWrite, ephemeral_1h_input_tokens: 0 },
    output_tokens: output,
    service_tier: "standard",
  };
}
