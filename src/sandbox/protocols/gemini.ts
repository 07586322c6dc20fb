import { isObject } from "../../core/json.ts";
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

/** POST /v1beta/models/<model>:generateContent and :streamGenerateContent */
export const gemini: Protocol = {
  errorShape: "gemini",
  produces: "text",
  reportsCacheWrites: false,

  parse(body, path) {
    const config = isObject(body.generationConfig) ? body.generationConfig : {};
    return parseRequest(
      { ...config, ...path },
      {
        limits: ["maxOutputTokens"],
        prompt: promptText(body.tools, body.systemInstruction, body.contents),
        lastUserText: lastUserText(body.contents, "parts"),
      },
    );
  },

  whole: (_request, reply) => lastChunk(reply, reply.text),

  *events(_request, reply): Generator<StreamEvent> {
    for (const delta of reply.deltas) {
      yield { bytes: sse({ candidates: [candidate(delta)], ...ids(reply) }), delta };
    }
    yield { bytes: sse(lastChunk(reply, "")) };
  },
};

function lastChunk(reply: ModelReply, text: string): object {
  const finishReason = reply.truncated ? "MAX_TOKENS" : "STOP";
  return {
    candidates: [{ ...candidate(text), finishReason }],
    usageMetadata: usageOf(reply.tokens),
    ...ids(reply),
  };
}

function candidate(text: string): object {
  return { content: { role: "model", parts: [{ text }] }, index: 0 };
}

function ids(reply: ModelReply): object {
  return { modelVersion: reply.model, responseId: reply.id };
}

/** promptTokenCount includes the cached tokens; candidatesTokenCount excludes the reasoning tokens. */
function usageOf(tokens: Tokens): object {
  const prompt = tokens.input + tokens.cacheRead + tokens.cacheWrite;
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: tokens.output - tokens.reasoning,
    totalTokenCount: prompt + tokens.output,
    ...(tokens.cacheRead > 0 ? { cachedContentTokenCount: tokens.cacheRead } : {}),
    ...(tokens.reasoning > 0 ? { thoughtsTokenCount: tokens.reasoning } : {}),
  };
}
