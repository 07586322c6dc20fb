import type { Metering } from "./protocols.ts";
import { FAST_TIER, serviceTier } from "./service-tiers.ts";

/** What a gateway reported. Input excludes what was read from or written to a cache; output includes reasoning. */
export interface Tokens {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  /** The part of cacheWrite that is kept for an hour, which costs more. Absent: none is known. */
  readonly cacheWriteHour?: number;
  readonly output: number;
  readonly reasoning: number;
}

/**
 * What one or more usage objects say, still in the protocol's own terms; null: not stated. A count is a whole number from
 * 0 to a billion, or a string of digits, as some protobuf encoders write it. Fractions are cut off. Anything else in its
 * place (negative, NaN, text, a list) is ignored.
 */
export interface Counts {
  /** prompt_tokens and promptTokenCount. Includes what came from the cache. */
  readonly prompt: number | null;
  /** input_tokens. Includes the cache in responses, excludes it in messages. */
  readonly input: number | null;
  /** Gemini's toolUsePromptTokenCount, which is added to the prompt. */
  readonly toolUse: number | null;
  /** Cache counts among the details of the prompt, as a part of it. */
  readonly readWithin: number | null;
  readonly wroteWithin: number | null;
  /** Cache counts under the names of the messages protocol, where they come on top of the input. */
  readonly readBeside: number | null;
  readonly wroteBeside: number | null;
  readonly wroteHour: number | null;
  readonly output: number | null;
  /** Gemini's candidatesTokenCount, which excludes reasoning. */
  readonly candidates: number | null;
  readonly reasoning: number | null;
  readonly total: number | null;
  /** 1 if new-api marks the usage as one whose prompt excludes the cache. */
  readonly excludesCache: number | null;
}

const MAX_COUNT = 1_000_000_000;

/** null: this is not a usage object. */
export function countsOf(usage: unknown): Counts | null {
  if (typeof usage !== "object" || usage === null || Array.isArray(usage)) return null;
  const own = usage as Fields;
  const promptDetails = detailsIn(own, "prompt_tokens_details");
  const inputDetails = detailsIn(own, "input_tokens_details");
  const outputDetails = detailsIn(own, "output_tokens_details");
  const cacheCreation = detailsIn(own, "cache_creation");
  const deepSeekHit = count(own, "prompt_cache_hit_tokens");
  const wroteHour = count(cacheCreation, "ephemeral_1h_input_tokens");
  return {
    prompt:
      largest(count(own, "prompt_tokens"), count(own, "promptTokenCount")) ||
      sum(deepSeekHit, count(own, "prompt_cache_miss_tokens")),
    input: count(own, "input_tokens"),
    toolUse: count(own, "toolUsePromptTokenCount"),
    readWithin: largest(
      count(promptDetails, "cached_tokens"),
      count(inputDetails, "cached_tokens"),
      count(detailsIn(own, "input_token_details"), "cached_tokens"),
      deepSeekHit,
      count(own, "cached_tokens"), // Moonshot
      count(own, "cachedContentTokenCount"), // Gemini
    ),
    wroteWithin: largest(
      count(promptDetails, "cache_write_tokens"),
      count(inputDetails, "cache_write_tokens"),
      count(promptDetails, "cached_creation_tokens"), // new-api
      count(inputDetails, "cached_creation_tokens"), // new-api
      count(promptDetails, "cache_creation_tokens"), // LiteLLM
    ),
    readBeside: count(own, "cache_read_input_tokens"),
    wroteBeside: largest(
      count(own, "cache_creation_input_tokens"),
      sum(count(cacheCreation, "ephemeral_5m_input_tokens"), wroteHour),
    ),
    wroteHour,
    output: largest(count(own, "completion_tokens"), count(own, "output_tokens")),
    candidates: count(own, "candidatesTokenCount"),
    reasoning: largest(
      count(detailsIn(own, "completion_tokens_details"), "reasoning_tokens"),
      count(outputDetails, "reasoning_tokens"),
      count(outputDetails, "thinking_tokens"),
      count(own, "reasoning_tokens"),
      count(own, "thoughtsTokenCount"), // Gemini
    ),
    total: largest(count(own, "total_tokens"), count(own, "totalTokenCount")),
    excludesCache: own.usage_semantic === "anthropic" ? 1 : null,
  };
}

const INPUT_COUNTS: readonly (keyof Counts)[] = [
  "prompt",
  "input",
  "toolUse",
  "readWithin",
  "wroteWithin",
  "readBeside",
  "wroteBeside",
  "wroteHour",
];

/**
 * Joins what a stream said earlier and says now. Counts in streams are cumulative, so the later one wins. But gateways
 * write 0 into fields they do not know, and many report the input at the start and the output at the end. So a 0 does
 * not replace a count, except among the input counts when another of them is above 0.
 */
export function laterCounts(earlier: Counts, later: Counts): Counts {
  const knowsInput = INPUT_COUNTS.some((name) => (later[name] ?? 0) > 0);
  const merged: { -readonly [name in keyof Counts]: Counts[name] } = { ...earlier };
  for (const name of Object.keys(later) as (keyof Counts)[]) {
    const value = later[name];
    if (value === null) continue;
    const isMeant = value > 0 || merged[name] === null || (knowsInput && INPUT_COUNTS.includes(name));
    if (isMeant) merged[name] = value;
  }
  return merged;
}

/** null: nothing was counted, or only zeros. */
export function tokensOf(metering: Metering, counts: Counts): Tokens | null {
  const total = counts.total ?? 0;
  const reasoning = counts.reasoning ?? 0;
  const cacheRead = Math.max(counts.readWithin ?? 0, counts.readBeside ?? 0);
  const cacheWrite = Math.max(counts.wroteWithin ?? 0, counts.wroteBeside ?? 0);
  const cached = cacheRead + cacheWrite;
  const prompt = (counts.prompt || counts.input || 0) + (counts.toolUse ?? 0);
  const output = outputOf(counts, prompt, total, reasoning);
  // Some services report only the total of embeddings.
  const input = prompt === 0 && output === 0 && metering === "embeddings" ? total : prompt;
  if (input + cached + output === 0) return null;
  const uncached = excludesCache(metering, counts, cached, input, output)
    ? input
    : Math.max(0, input - cached);
  const cacheWriteHour = Math.min(counts.wroteHour ?? 0, cacheWrite);
  if (cacheWriteHour === 0) return { input: uncached, cacheRead, cacheWrite, output, reasoning };
  return { input: uncached, cacheRead, cacheWrite, cacheWriteHour, output, reasoning };
}

function outputOf(counts: Counts, prompt: number, total: number, reasoning: number): number {
  if (counts.output !== null && (counts.output > 0 || counts.candidates === null)) {
    // xAI counts reasoning separately from the completion, and only the total shows it.
    const isSeparate = reasoning > 0 && total === prompt + counts.output + reasoning;
    return isSeparate ? counts.output + reasoning : Math.max(counts.output, reasoning);
  }
  if (counts.candidates !== null) return counts.candidates + reasoning;
  // Gemini omits the candidates of some answers, but not the total.
  return Math.max(reasoning, counts.prompt === null ? 0 : total - prompt);
}

/**
 * Whether the cache counts come on top of the input. They do in the messages protocol. In the others only if the gateway
 * says so, if it uses only the names of the messages protocol, or if the sum shows it: gateways in front of a messages
 * model translate names and forget meanings.
 */
function excludesCache(
  metering: Metering,
  counts: Counts,
  cached: number,
  input: number,
  output: number,
): boolean {
  if (counts.excludesCache !== null) return true;
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

/** Collects what the documents of one answer report: one document if it is JSON, one per event if it is a stream. */
export class AnswerFacts {
  readonly #metering: Metering | null;
  #counts: Counts | null = null;
  #id: string | null = null;
  #model: string | null = null;
  #tier: string | null = null;
  #isFast = false;

  /** @param metering null: not billed by tokens. A stored response that is fetched again repeats its old usage. */
  constructor(metering: Metering | null) {
    this.#metering = metering;
  }

  get id(): string | null {
    return this.#id;
  }

  get model(): string | null {
    return this.#model;
  }

  /** The last one that is named: the first events of a stream may only repeat what the request asked for. */
  get serviceTier(): string | null {
    return this.#isFast ? FAST_TIER : this.#tier;
  }

  get tokens(): Tokens | null {
    if (this.#metering === null || this.#counts === null) return null;
    return tokensOf(this.#metering, this.#counts);
  }

  /** The first id and the first model count: they are the answer's own, even if the document of an error follows. */
  add(document: unknown): void {
    // `response` is of the responses protocol and of Gemini as its own CLI reaches it, `message` of messages.
    for (const part of [document, fieldOf(document, "response"), fieldOf(document, "message")]) {
      this.#id ??= nameIn(part, "id") ?? nameIn(part, "responseId");
      this.#model ??= nameIn(part, "model") ?? nameIn(part, "modelVersion");
      this.#tier = serviceTier(fieldOf(part, "service_tier")) ?? this.#tier;
      this.#addUsage(fieldOf(part, "usage"));
      this.#addUsage(fieldOf(part, "usageMetadata"));
    }
    // Groq's streams
    this.#addUsage(fieldOf(fieldOf(document, "x_groq"), "usage"));
    // Moonshot's streams
    const choices = fieldOf(document, "choices");
    if (!Array.isArray(choices)) return;
    for (const choice of choices.slice(0, 8)) this.#addUsage(fieldOf(choice, "usage"));
  }

  #addUsage(usage: unknown): void {
    const counts = countsOf(usage);
    if (counts === null) return;
    this.#counts = this.#counts === null ? counts : laterCounts(this.#counts, counts);
    // Anthropic's, then Vertex AI's.
    const tier = fieldOf(usage, "service_tier") ?? fieldOf(usage, "trafficType");
    this.#tier = serviceTier(tier) ?? this.#tier;
    const speed = fieldOf(usage, "speed");
    if (typeof speed === "string") this.#isFast = speed === FAST_TIER;
  }
}

/** A field of a parsed JSON value; undefined if there is none. No name that is asked for exists on a prototype. */
export function fieldOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Fields)[key] : undefined;
}

function nameIn(value: unknown, key: string): string | null {
  const name = fieldOf(value, key);
  return typeof name === "string" && NAME.test(name) ? name : null;
}

type Fields = Readonly<Record<string, unknown>>;

const NO_FIELDS: Fields = Object.freeze({});

function detailsIn(usage: Fields, name: string): Fields {
  const details = usage[name];
  return typeof details === "object" && details !== null ? (details as Fields) : NO_FIELDS;
}

function count(fields: Fields, name: string): number | null {
  let value = fields[name];
  if (typeof value === "string" && /^\d{1,10}$/.test(value)) value = Number(value);
  if (typeof value !== "number" || !(value >= 0) || value > MAX_COUNT) return null;
  return Math.floor(value);
}

function largest(...counts: readonly (number | null)[]): number | null {
  const known = counts.filter((each) => each !== null);
  return known.length === 0 ? null : Math.max(...known);
}

function sum(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : one + other;
}
