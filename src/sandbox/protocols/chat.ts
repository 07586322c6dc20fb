import type { Tokens } from "../billing.ts";
import { isObject, textAt } from "../json.ts";
import { lastUserText, textOf } from "../tokens.ts";
import {
  type Ask,
  event,
  type Frame,
  limitAt,
  MODEL_REQUIRED,
  type Protocol,
  type Reply,
} from "./protocol.ts";

/** POST /v1/chat/completions */
export const chat: Protocol = {
  shape: "openai",
  wants: "text",
  tellsCacheWrites: false,

  read(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return MODEL_REQUIRED;
    const maxTokens = limitAt(body, "max_completion_tokens", "max_tokens");
    if (maxTokens === "invalid") return "max_tokens must be a whole number of at least 1";
    return {
      model,
      stream: body.stream === true,
      prompt: textOf(body.tools, body.messages),
      lastUserText: lastUserText(body.messages),
      maxTokens,
      body,
    };
  },

  whole(_ask, reply) {
    const message = { role: "assistant", content: reply.text, refusal: null, annotations: [] };
    return {
      ...envelope(reply, "chat.completion"),
      choices: [{ index: 0, message, logprobs: null, finish_reason: finishReason(reply) }],
      usage: openAiUsage(reply.tokens),
    };
  },

  *frames(ask, reply): Generator<Frame> {
    const withUsage = asksForUsage(ask);
    const chunk = (delta: object, finish: string | null): string =>
      event({
        ...envelope(reply, "chat.completion.chunk"),
        choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
        ...(withUsage ? { usage: null } : {}),
      });
    yield { bytes: chunk({ role: "assistant", content: "", refusal: null }, null) };
    for (const words of reply.pieces) yield { bytes: chunk({ content: words }, null), words };
    yield { bytes: chunk({}, finishReason(reply)) };
    if (withUsage) {
      const usage = openAiUsage(reply.tokens);
      yield { bytes: event({ ...envelope(reply, "chat.completion.chunk"), choices: [], usage }) };
    }
    yield { bytes: event("[DONE]") };
  },
};

export function asksForUsage(ask: Ask): boolean {
  const options = ask.body.stream_options;
  return isObject(options) && options.include_usage === true;
}

export function finishReason(reply: Reply): string {
  return reply.truncated ? "length" : "stop";
}

/** prompt_tokens includes the cached ones, completion_tokens the reasoning ones. */
export function openAiUsage(tokens: Tokens): object {
  const prompt = tokens.input + tokens.cacheRead + tokens.cacheWrite;
  return {
    prompt_tokens: prompt,
    completion_tokens: tokens.output,
    total_tokens: prompt + tokens.output,
    prompt_tokens_details: { cached_tokens: tokens.cacheRead, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: tokens.reasoning,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

function envelope(reply: Reply, object: string): object {
  return {
    id: `chatcmpl-${reply.id}`,
    object,
    created: reply.created,
    model: reply.model,
    service_tier: "default",
    system_fingerprint: "fp_sandbox",
  };
}
