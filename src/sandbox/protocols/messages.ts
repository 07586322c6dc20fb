import type { Tokens } from "../billing.ts";
import { textAt } from "../json.ts";
import { lastUserText, textOf } from "../tokens.ts";
import { event, type Frame, limitAt, MODEL_REQUIRED, type Protocol, type Reply } from "./protocol.ts";

/** POST /v1/messages */
export const messages: Protocol = {
  shape: "anthropic",
  wants: "text",
  tellsCacheWrites: true,

  read(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return MODEL_REQUIRED;
    const maxTokens = limitAt(body, "max_tokens");
    if (maxTokens === "invalid") return "max_tokens: must be a whole number of at least 1";
    return {
      model,
      stream: body.stream === true,
      prompt: textOf(body.tools, body.system, body.messages),
      lastUserText: lastUserText(body.messages),
      maxTokens,
      body,
    };
  },

  whole(_ask, reply) {
    return {
      ...envelope(reply),
      content: [{ type: "text", text: reply.text }],
      stop_reason: stopReason(reply),
      usage: messagesUsage(reply.tokens, reply.tokens.output),
    };
  },

  *frames(_ask, reply): Generator<Frame> {
    const named = (type: string, rest: object): Frame => ({ bytes: event({ type, ...rest }, type) });
    // The count of output at the start is what has been made so far, and the delta at the end replaces it.
    const opening = {
      ...envelope(reply),
      content: [],
      stop_reason: null,
      usage: messagesUsage(reply.tokens, 1),
    };
    yield named("message_start", { message: opening });
    yield named("content_block_start", { index: 0, content_block: { type: "text", text: "" } });
    yield named("ping", {});
    for (const words of reply.pieces) {
      const delta = { type: "text_delta", text: words };
      yield { ...named("content_block_delta", { index: 0, delta }), words };
    }
    yield named("content_block_stop", { index: 0 });
    yield named("message_delta", {
      delta: { stop_reason: stopReason(reply), stop_sequence: null },
      usage: messagesUsage(reply.tokens, reply.tokens.output),
    });
    yield named("message_stop", {});
  },
};

function envelope(reply: Reply): object {
  return {
    id: `msg_${reply.id}`,
    type: "message",
    role: "assistant",
    model: reply.model,
    stop_sequence: null,
  };
}

function stopReason(reply: Reply): string {
  return reply.truncated ? "max_tokens" : "end_turn";
}

/** input_tokens leaves the cached ones out. */
function messagesUsage(tokens: Tokens, output: number): object {
  return {
    input_tokens: tokens.input,
    cache_creation_input_tokens: tokens.cacheWrite,
    cache_read_input_tokens: tokens.cacheRead,
    cache_creation: { ephemeral_5m_input_tokens: tokens.cacheWrite, ephemeral_1h_input_tokens: 0 },
    output_tokens: output,
    service_tier: "standard",
  };
}
