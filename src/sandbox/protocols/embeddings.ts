import { createHash } from "node:crypto";
import { textAt } from "../json.ts";
import { MODEL_REQUIRED, type Protocol } from "./protocol.ts";

const DEFAULT_DIMENSIONS = 256;
const MOST_DIMENSIONS = 3072;
const MOST_INPUTS = 2048;

/** POST /v1/embeddings */
export const embeddings: Protocol = {
  shape: "openai",
  wants: "vectors",
  tellsCacheWrites: false,

  read(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return MODEL_REQUIRED;
    const inputs = inputsOf(body.input);
    if (inputs.length === 0) return "input is required";
    if (inputs.length > MOST_INPUTS) return `input may hold at most ${MOST_INPUTS} texts`;
    const dimensions = body.dimensions ?? DEFAULT_DIMENSIONS;
    if (!Number.isInteger(dimensions) || Number(dimensions) < 1 || Number(dimensions) > MOST_DIMENSIONS) {
      return `dimensions must be a whole number from 1 to ${MOST_DIMENSIONS}`;
    }
    return { model, stream: false, prompt: inputs.join("\n"), lastUserText: "", maxTokens: null, body };
  },

  whole(ask, reply) {
    const dimensions = Number(ask.body.dimensions ?? DEFAULT_DIMENSIONS);
    // The official SDK asks for base64 unless told otherwise, and decodes little-endian floats from it.
    const base64 = ask.body.encoding_format === "base64";
    const data = inputsOf(ask.body.input).map((input, index) => {
      const vector = vectorOf(input, dimensions);
      return { object: "embedding", index, embedding: base64 ? packed(vector) : vector };
    });
    const prompt = reply.tokens.input + reply.tokens.cacheRead;
    const usage = { prompt_tokens: prompt, total_tokens: prompt };
    return { object: "list", data, model: reply.model, usage };
  },

  frames: () => [],
};

/** A text, a list of texts, a list of token numbers, or a list of such lists. */
function inputsOf(input: unknown): readonly string[] {
  if (typeof input === "string") return [input];
  if (!Array.isArray(input) || input.length === 0) return [];
  if (input.every((each) => typeof each === "number")) return [input.join(" ")];
  return input.map((each: unknown) => (Array.isArray(each) ? each.join(" ") : String(each)));
}

/** A direction that depends on nothing but the text, of length 1. */
function vectorOf(text: string, dimensions: number): readonly number[] {
  const bytes = createHash("shake256", { outputLength: dimensions * 2 })
    .update(text)
    .digest();
  const raw = Array.from({ length: dimensions }, (_, i) => bytes.readInt16LE(i * 2) / 32768);
  const length = Math.hypot(...raw) || 1;
  return raw.map((value) => Math.fround(value / length));
}

function packed(vector: readonly number[]): string {
  const bytes = Buffer.alloc(vector.length * 4);
  vector.forEach((value, i) => {
    bytes.writeFloatLE(value, i * 4);
  });
  return bytes.toString("base64");
}
