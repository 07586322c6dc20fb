import { textAt } from "../json.ts";
import { lastUserText, textOf } from "../tokens.ts";
import { asksForUsage, finishReason, openAiUsage } from "./chat.ts";
import { event, type Frame, limitAt, MODEL_REQUIRED, type Protocol } from "./protocol.ts";

/** POST /v1/completions, which some editors still use for the code under the cursor. */
export const completions: Protocol = {
  shape: "openai",
  wants: "text",
  tellsCacheWrites: false,

  read(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return MODEL_REQUIRED;
    const maxTokens = limitAt(body, "max_tokens");
    if (maxTokens === "invalid") return "max_tokens must be a whole number of at least 1";
    return {
      model,
      stream: body.stream === true,
      prompt: textOf(body.prompt, body.suffix),
      lastUserText: lastUserText(body.prompt),
      maxTokens,
      body,
    };
  },

  whole(_ask, reply) {
    return {
      id: `cmpl-${reply.id}`,
      object: "text_completion",
      created: reply.created,
      model: reply.model,
      choices: [{ text: reply.text, index: 0, logprobs: null, finish_reason: finishReason(reply) }],
      usage: openAiUsage(reply.tokens),
    };
  },

  *frames(ask, reply): Generator<Frame> {
    const withUsage = asksForUsage(ask);
    const chunk = (choices: readonly object[], usage: object | null): string =>
      event({
        id: `cmpl-${reply.id}`,
        object: "text_completion",
        created: reply.created,
        model: reply.model,
        choices,
        ...(withUsage ? { usage } : {}),
      });
    const choice = (text: string, finish: string | null) => ({
      text,
      index: 0,
      logprobs: null,
      finish_reason: finish,
    });
    for (const words of reply.pieces) yield { bytes: chunk([choice(words, null)], null), words };
    yield { bytes: chunk([choice("", finishReason(reply))], null) };
    if (withUsage) yield { bytes: chunk([], openAiUsage(reply.tokens)) };
    yield { bytes: event("[DONE]") };
  },
};
