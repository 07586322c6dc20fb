import { createHash } from "node:crypto";
import { isObject, textAt } from "../../core/json.ts";
import type { Tokens } from "../account.ts";
import {
  isPositiveInteger,
  lastUserText,
  type ModelReply,
  type ModelRequest,
  type Protocol,
  parseRequest,
  promptText,
  type StreamEvent,
  sse,
} from "./protocol.ts";

/** POST /v1/chat/completions */
export const chat: Protocol = {
  errorShape: "openai",
  produces: "text",
  reportsCacheWrites: false,

  parse: (body) =>
    parseRequest(body, {
      limits: ["max_completion_tokens", "max_tokens"],
      prompt: promptText(body.tools, body.messages),
      lastUserText: lastUserText(body.messages),
    }),

  whole(_request, reply) {
    const message = { role: "assistant", content: reply.text, refusal: null, annotations: [] };
    return {
      ...chatEnvelope(reply, "chat.completion"),
      choices: [{ index: 0, message, logprobs: null, finish_reason: finishReason(reply) }],
      usage: usageOf(reply.tokens),
    };
  },

  *events(request, reply): Generator<StreamEvent> {
    const includeUsage = includesUsage(request);
    const chunk = (delta: object, finish: string | null): string =>
      sse({
        ...chatEnvelope(reply, "chat.completion.chunk"),
        choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
        ...(includeUsage ? { usage: null } : {}),
      });
    yield { bytes: chunk({ role: "assistant", content: "", refusal: null }, null) };
    for (const delta of reply.deltas) yield { bytes: chunk({ content: delta }, null), delta };
    yield { bytes: chunk({}, finishReason(reply)) };
    if (includeUsage) {
      const usage = usageOf(reply.tokens);
      yield { bytes: sse({ ...chatEnvelope(reply, "chat.completion.chunk"), choices: [], usage }) };
    }
    yield { bytes: sse("[DONE]") };
  },
};

/** POST /v1/completions, which some editors still use for the code at the cursor. */
export const completions: Protocol = {
  errorShape: "openai",
  produces: "text",
  reportsCacheWrites: false,

  parse: (body) =>
    parseRequest(body, {
      limits: ["max_tokens"],
      prompt: promptText(body.prompt, body.suffix),
      lastUserText: lastUserText(body.prompt),
    }),

  whole: (_request, reply) => ({
    ...completionEnvelope(reply),
    choices: [completionChoice(reply.text, finishReason(reply))],
    usage: usageOf(reply.tokens),
  }),

  *events(request, reply): Generator<StreamEvent> {
    const includeUsage = includesUsage(request);
    const chunk = (choices: readonly object[], usage: object | null): string =>
      sse({ ...completionEnvelope(reply), choices, ...(includeUsage ? { usage } : {}) });
    for (const delta of reply.deltas) yield { bytes: chunk([completionChoice(delta, null)], null), delta };
    yield { bytes: chunk([completionChoice("", finishReason(reply))], null) };
    if (includeUsage) yield { bytes: chunk([], usageOf(reply.tokens)) };
    yield { bytes: sse("[DONE]") };
  },
};

const DEFAULT_DIMENSIONS = 256;
const MAX_DIMENSIONS = 3072;
const MAX_INPUTS = 2048;

/** POST /v1/embeddings */
export const embeddings: Protocol = {
  errorShape: "openai",
  produces: "vectors",
  reportsCacheWrites: false,

  parse(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return "model is required";
    const inputs = inputsOf(body.input);
    if (inputs.length === 0) return "input is required";
    if (inputs.length > MAX_INPUTS) return `input may hold at most ${MAX_INPUTS} texts`;
    const dimensions = body.dimensions ?? DEFAULT_DIMENSIONS;
    if (!isPositiveInteger(dimensions) || dimensions > MAX_DIMENSIONS) {
      return `dimensions must be a whole number from 1 to ${MAX_DIMENSIONS}`;
    }
    return { model, stream: false, prompt: inputs.join("\n"), lastUserText: "", maxTokens: null, body };
  },

  whole({ body }, reply) {
    const dimensions = Number(body.dimensions ?? DEFAULT_DIMENSIONS);
    // The official SDK asks for base64 by default and decodes little-endian floats.
    const isBase64 = body.encoding_format === "base64";
    const data = inputsOf(body.input).map((input, index) => {
      const vector = vectorOf(input, dimensions);
      return { object: "embedding", index, embedding: isBase64 ? base64Of(vector) : [...vector] };
    });
    const promptTokens = reply.tokens.input + reply.tokens.cacheRead;
    const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
    return { object: "list", data, model: reply.model, usage };
  },

  events: () => [],
};

function chatEnvelope(reply: ModelReply, object: string): object {
  return {
    id: `chatcmpl-${reply.id}`,
    object,
    created: reply.created,
    model: reply.model,
    service_tier: "default",
    system_fingerprint: "fp_sandbox",
  };
}

function completionEnvelope(reply: ModelReply): object {
  return { id: `cmpl-${reply.id}`, object: "text_completion", created: reply.created, model: reply.model };
}

function completionChoice(text: string, finishReason: string | null): object {
  return { text, index: 0, logprobs: null, finish_reason: finishReason };
}

function includesUsage({ body }: ModelRequest): boolean {
  return isObject(body.stream_options) && body.stream_options.include_usage === true;
}

function finishReason(reply: ModelReply): string {
  return reply.truncated ? "length" : "stop";
}

/** prompt_tokens includes the cached tokens, completion_tokens the reasoning tokens. */
function usageOf(tokens: Tokens): object {
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

/** The input of an embedding: a text, a list of texts, a list of token numbers, or a list of such lists. */
function inputsOf(input: unknown): readonly string[] {
  if (typeof input === "string") return [input];
  if (!Array.isArray(input) || input.length === 0) return [];
  if (input.every((item) => typeof item === "number")) return [input.join(" ")];
  return input.map((item: unknown) => (Array.isArray(item) ? item.join(" ") : String(item)));
}

/** A vector of length 1 that depends on the text alone. */
function vectorOf(text: string, dimensions: number): Float32Array {
  const bytes = createHash("shake256", { outputLength: dimensions * 2 })
    .update(text)
    .digest();
  const raw = Float32Array.from({ length: dimensions }, (_, i) => bytes.readInt16LE(i * 2));
  const length = Math.hypot(...raw) || 1;
  return raw.map((value) => value / length);
}

function base64Of(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.length * 4);
  for (const [i, value] of vector.entries()) bytes.writeFloatLE(value, i * 4);
  return bytes.toString("base64");
}
