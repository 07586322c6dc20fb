import type { Tokens } from "../billing.ts";
import { isObject } from "../json.ts";
import { lastUserText, textOf } from "../tokens.ts";
import { event, type Frame, limitAt, MODEL_REQUIRED, type Protocol, type Reply } from "./protocol.ts";

/** POST /v1beta/models/M:generateContent and :streamGenerateContent. The model is in the path. */
export const gemini: Protocol = {
  shape: "gemini",
  wants: "text",
  tellsCacheWrites: false,

  read(body, address) {
    if (address.model === null) return MODEL_REQUIRED;
    const config = body.generationConfig;
    const maxTokens = isObject(config) ? limitAt(config, "maxOutputTokens") : null;
    if (maxTokens === "invalid") return "maxOutputTokens must be a whole number of at least 1";
    return {
      model: address.model,
      stream: address.stream,
      prompt: textOf(body.tools, body.systemInstruction, body.contents),
      lastUserText: lastUserText(body.contents, "parts"),
      maxTokens,
      body,
    };
  },

  whole: (_ask, reply) => chunk(reply, reply.text, true),

  *frames(_ask, reply): Generator<Frame> {
    for (const words of reply.pieces) yield { bytes: event(chunk(reply, words, false)), words };
    yield { bytes: event(chunk(reply, "", true)) };
  },
};

function chunk(reply: Reply, text: string, last: boolean): object {
  const candidate = { content: { role: "model", parts: [{ text }] }, index: 0 };
  return {
    candidates: [last ? { ...candidate, finishReason: reply.truncated ? "MAX_TOKENS" : "STOP" } : candidate],
    ...(last ? { usageMetadata: usageMetadata(reply.tokens) } : {}),
    modelVersion: reply.model,
    responseId: reply.id,
  };
}

/** promptTokenCount includes the cached ones; thoughts stand beside the candidates, not inside. */
function usageMetadata(tokens: Tokens): object {
  const prompt = tokens.input + tokens.cacheRead + tokens.cacheWrite;
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: tokens.output - tokens.reasoning,
    totalTokenCount: prompt + tokens.output,
    ...(tokens.cacheRead > 0 ? { cachedContentTokenCount: tokens.cacheRead } : {}),
    ...(tokens.reasoning > 0 ? { thoughtsTokenCount: tokens.reasoning } : {}),
  };
}
