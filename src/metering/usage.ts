import { fieldAt, isObject } from "../core/json.ts";
import type { Metering } from "./protocols.ts";
import { FAST_TIER, serviceTier } from "./service-tiers.ts";

/** What a gateway reported. Input excludes what was read from or written to a cache; output includes reasoning. */
export interface Tokens {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  /** The part of cacheWrite that is kept for an hour, which costs more. */
  readonly cacheWriteHour: number;
  readonly output: number;
  readonly reasoning: number;
}

export const NO_TOKENS: Tokens = Object.freeze({
  input: 0,
  cacheRead: 0,
  cacheWrite: 0,
  cacheWriteHour: 0,
  output: 0,
  reasoning: 0,
});

/** What usage objects count. null: not stated. */
interface Counts {
  /** Includes what came from the cache. */
  prompt: number | null;
  /** Includes the cache in responses, excludes it in messages. */
  input: number | null;
  /** Gemini adds it to the prompt. */
  toolUse: number | null;
  /** Cache counts that are a part of the prompt. */
  readWithin: number | null;
  wroteWithin: number | null;
  /** Cache counts of the messages protocol, which come on top of the input. */
  readBeside: number | null;
  wroteBeside: number | null;
  wroteHour: number | null;
  output: number | null;
  /** Gemini's, which excludes reasoning. */
  candidates: number | null;
  reasoning: number | null;
  total: number | null;
  /** new-api marks a usage whose prompt excludes the cache. */
  excludesCache: boolean;
}

type CountName = Exclude<keyof Counts, "excludesCache">;

type Field = readonly [name: string, count: CountName];

/** Gateways translate between protocols and fill in several fields for one count, so the largest value counts. */
const FIELDS: readonly Field[] = [
  ["prompt_tokens", "prompt"],
  ["promptTokenCount", "prompt"],
  ["input_tokens", "input"],
  ["toolUsePromptTokenCount", "toolUse"],
  ["prompt_cache_hit_tokens", "readWithin"], // DeepSeek
  ["cached_tokens", "readWithin"], // Moonshot
  ["cachedContentTokenCount", "readWithin"], // Gemini
  ["cache_read_input_tokens", "readBeside"],
  ["cache_creation_input_tokens", "wroteBeside"],
  ["completion_tokens", "output"],
  ["output_tokens", "output"],
  ["candidatesTokenCount", "candidates"],
  ["reasoning_tokens", "reasoning"],
  ["thoughtsTokenCount", "reasoning"], // Gemini
  ["total_tokens", "total"],
  ["totalTokenCount", "total"],
];

const PROMPT_DETAILS: readonly Field[] = [
  ["cached_tokens", "readWithin"],
  ["cache_write_tokens", "wroteWithin"],
  ["cached_creation_tokens", "wroteWithin"], // new-api
  ["cache_creation_tokens", "wroteWithin"], // LiteLLM
];
const OUTPUT_DETAILS: readonly Field[] = [
  ["reasoning_tokens", "reasoning"],
  ["thinking_tokens", "reasoning"],
];

/** The fields of objects inside a usage object. */
const DETAILS: readonly (readonly [name: string, fields: readonly Field[]])[] = [
  ["prompt_tokens_details", PROMPT_DETAILS],
  ["input_tokens_details", PROMPT_DETAILS],
  ["input_token_details", PROMPT_DETAILS],
  ["completion_tokens_details", OUTPUT_DETAILS],
  ["output_tokens_details", OUTPUT_DETAILS],
  ["cache_creation", [["ephemeral_1h_input_tokens", "wroteHour"]]],
];

const INPUT_COUNTS: readonly CountName[] = [
  "prompt",
  "input",
  "toolUse",
  "readWithin",
  "wroteWithin",
  "readBeside",
  "wroteBeside",
  "wroteHour",
];
const OUTPUT_COUNTS: readonly CountName[] = ["output", "candidates", "reasoning", "total"];
const MAX_COUNT = 1_000_000_000;

/** null: this is not a usage object. */
function readCounts(usage: unknown): Counts | null {
  if (!isObject(usage)) return null;
  const counts: Counts = {
    prompt: null,
    input: null,
    toolUse: null,
    readWithin: null,
    wroteWithin: null,
    readBeside: null,
    wroteBeside: null,
    wroteHour: null,
    output: null,
    candidates: null,
    reasoning: null,
    total: null,
    excludesCache: fieldAt(usage, "usage_semantic") === "anthropic",
  };
  addCounts(counts, usage, FIELDS);
  for (const [name, fields] of DETAILS) addCounts(counts, fieldAt(usage, name), fields);
  // DeepSeek reports the two parts of the prompt.
  counts.prompt ||= sum(
    countIn(fieldAt(usage, "prompt_cache_hit_tokens")),
    countIn(fieldAt(usage, "prompt_cache_miss_tokens")),
  );
  const wrote5m = countIn(fieldAt(fieldAt(usage, "cache_creation"), "ephemeral_5m_input_tokens"));
  counts.wroteBeside = larger(counts.wroteBeside, sum(wrote5m, counts.wroteHour));
  return counts;
}

function addCounts(counts: Counts, object: unknown, fields: readonly Field[]): void {
  if (typeof object !== "object" || object === null) return;
  for (const [name, count] of fields) counts[count] = larger(counts[count], countIn(fieldAt(object, name)));
}

/**
 * Joins two reports of one stream. Counts in streams are cumulative, so the later one wins. But many gateways report the
 * input at the start and the output at the end, and write 0 for what they do not know. So a 0 does not replace a count,
 * except an input count when another input count is above 0.
 */
function laterCounts(earlier: Counts, later: Counts): Counts {
  const knowsInput = INPUT_COUNTS.some((name) => (later[name] ?? 0) > 0);
  const merged = { ...earlier, excludesCache: earlier.excludesCache || later.excludesCache };
  for (const name of INPUT_COUNTS) {
    if (later[name] !== null && (knowsInput || merged[name] === null)) merged[name] = later[name];
  }
  for (const name of OUTPUT_COUNTS) {
    if (later[name] !== null && (later[name] > 0 || merged[name] === null)) merged[name] = later[name];
  }
  return merged;
}

/** null: nothing was counted, or only zeros. */
function computeTokens(metering: Metering, counts: Counts): Tokens | null {
  const total = counts.total ?? 0;
  const reasoning = counts.reasoning ?? 0;
  const cacheRead = Math.max(counts.readWithin ?? 0, counts.readBeside ?? 0);
  const cacheWrite = Math.max(counts.wroteWithin ?? 0, counts.wroteBeside ?? 0);
  const cached = cacheRead + cacheWrite;
  const prompt = (counts.prompt || counts.input || 0) + (counts.toolUse ?? 0);
  const output = computeOutput(counts, prompt, total, reasoning);
  // Some services report only the total of embeddings.
  const input = prompt === 0 && output === 0 && metering === "embeddings" ? total : prompt;
  if (input + cached + output === 0) return null;
  const uncached = excludesCache(metering, counts, cached, input, output)
    ? input
    : Math.max(0, input - cached);
  const cacheWriteHour = Math.min(counts.wroteHour ?? 0, cacheWrite);
  return { input: uncached, cacheRead, cacheWrite, cacheWriteHour, output, reasoning };
}

function computeOutput(counts: Counts, prompt: number, total: number, reasoning: number): number {
  if (counts.output !== null && (counts.output > 0 || counts.candidates === null)) {
    // xAI counts reasoning separately from the completion, and only the total shows it.
    const isSeparate = reasoning > 0 && total === prompt + counts.output + reasoning;
    return isSeparate ? counts.output + reasoning : Math.max(counts.output, reasoning);
  }
  if (counts.candidates !== null) return counts.candidates + reasoning;
  // Gemini omits the candidates of some responses, but not the total.
  return Math.max(reasoning, counts.prompt === null ? 0 : total - prompt);
}

/**
 * Whether the cache counts come on top of the input. In the messages protocol they do. In the others they do only if the
 * gateway says so, uses only the names of the messages protocol, or reports a total that shows it: gateways that translate
 * from the messages protocol change the names, but often not the meaning.
 */
function excludesCache(
  metering: Metering,
  counts: Counts,
  cached: number,
  input: number,
  output: number,
): boolean {
  if (counts.excludesCache) return true;
  const hasBeside = counts.readBeside !== null || counts.wroteBeside !== null;
  const hasWithin = counts.readWithin !== null || counts.wroteWithin !== null;
  if (!counts.prompt) {
    if (hasBeside && !hasWithin) return true;
    if (metering === "messages" && (hasBeside || !hasWithin)) return true;
  }
  if (cached === 0) return false;
  return counts.total === input + cached + output || (hasBeside && cached > input);
}

/** An id or a model name: printable, and of a sane length. */
const NAME = /^[\x21-\x7e]{1,200}$/;

/** Collects what a response reports. A JSON response is one document; a stream has one for each event. */
export class ResponseFacts {
  id: string | null = null;
  model: string | null = null;
  tokens: Tokens | null = null;
  readonly #metering: Metering | null;
  #counts: Counts | null = null;
  #tier: string | null = null;
  #isFast = false;

  /** @param metering null: not billed by tokens. A stored response that is fetched again repeats its old usage. */
  constructor(metering: Metering | null) {
    this.#metering = metering;
  }

  /** The last one that is named: the first events of a stream may only repeat what the request asked for. */
  serviceTier(): string | null {
    return this.#isFast ? FAST_TIER : this.#tier;
  }

  /** The first id and the first model count: they are the response's own, even if an error with others follows. */
  add(document: unknown): void {
    // `response` is a field of the responses protocol and of Gemini's CLI, `message` one of messages.
    for (const part of [document, fieldAt(document, "response"), fieldAt(document, "message")]) {
      this.id ??= nameIn(part, "id") ?? nameIn(part, "responseId");
      this.model ??= nameIn(part, "model") ?? nameIn(part, "modelVersion");
      this.#tier = serviceTier(fieldAt(part, "service_tier")) ?? this.#tier;
      this.#addUsage(fieldAt(part, "usage"));
      this.#addUsage(fieldAt(part, "usageMetadata"));
    }
    // Groq's streams
    this.#addUsage(fieldAt(fieldAt(document, "x_groq"), "usage"));
    // Moonshot's streams
    const choices = fieldAt(document, "choices");
    if (!Array.isArray(choices)) return;
    for (const choice of choices.slice(0, 8)) this.#addUsage(fieldAt(choice, "usage"));
  }

  #addUsage(usage: unknown): void {
    const counts = readCounts(usage);
    if (counts === null) return;
    this.#counts = this.#counts === null ? counts : laterCounts(this.#counts, counts);
    if (this.#metering !== null) this.tokens = computeTokens(this.#metering, this.#counts);
    // Anthropic's, then Vertex AI's.
    const tier = fieldAt(usage, "service_tier") ?? fieldAt(usage, "trafficType");
    this.#tier = serviceTier(tier) ?? this.#tier;
    const speed = fieldAt(usage, "speed");
    if (typeof speed === "string") this.#isFast = speed === FAST_TIER;
  }
}

function nameIn(value: unknown, key: string): string | null {
  const name = fieldAt(value, key);
  return typeof name === "string" && NAME.test(name) ? name : null;
}

/**
 * A count is a number from 0 to a billion, or a string of digits, as some protobuf encoders write it. Fractions are cut
 * off. Anything else (negative, NaN, text, a list) is ignored.
 */
function countIn(field: unknown): number | null {
  const value = typeof field === "string" && /^\d{1,10}$/.test(field) ? Number(field) : field;
  if (typeof value !== "number" || !(value >= 0) || value > MAX_COUNT) return null;
  return Math.floor(value);
}

function larger(one: number | null, other: number | null): number | null {
  return one === null || (other !== null && other > one) ? other : one;
}

function sum(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : one + other;
}
