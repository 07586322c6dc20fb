import type { Metering } from "./protocols.ts";

/** What a gateway reported. Input never includes what was read from or written to a cache; output includes reasoning. */
export interface Tokens {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  /** How much of cacheWrite was written for an hour, which costs more; not there: none that is known. */
  readonly cacheWriteHour?: number;
  readonly output: number;
  readonly reasoning: number;
}

/**
 * What one or several usage objects said, still in the protocol's own meaning. A count that was not there is null. A
 * count is a whole number from 0 to a billion, or a string of its digits, as some encoders of protobuf write; a
 * fraction is cut off. Whatever else stands in its place (negative, NaN, text, a list) counts as not there.
 */
export interface Counts {
  /** prompt_tokens and promptTokenCount: with what came from the cache. */
  readonly prompt: number | null;
  /** input_tokens: with it in responses, without it in messages. */
  readonly input: number | null;
  /** Gemini's toolUsePromptTokenCount, beside the prompt. */
  readonly toolUse: number | null;
  /** Among the details of the prompt, as a part of it. */
  readonly readWithin: number | null;
  readonly wroteWithin: number | null;
  /** In the names of messages, where they stand beside the input. */
  readonly readBeside: number | null;
  readonly wroteBeside: number | null;
  /** What of that is kept for an hour. */
  readonly wroteHour: number | null;
  readonly output: number | null;
  /** Gemini's candidatesTokenCount, without the thoughts. */
  readonly candidates: number | null;
  readonly reasoning: number | null;
  readonly total: number | null;
  /** new-api marks a usage whose prompt leaves the cache out. */
  readonly marked: number | null;
}

const MOST = 1_000_000_000;

/** null: this is no usage object. */
export function countsOf(usage: unknown): Counts | null {
  if (typeof usage !== "object" || usage === null || Array.isArray(usage)) return null;
  const own = usage as Fields;
  const prompt = detailsIn(own, "prompt_tokens_details");
  const input = detailsIn(own, "input_tokens_details");
  const output = detailsIn(own, "output_tokens_details");
  const created = detailsIn(own, "cache_creation");
  const hit = count(own, "prompt_cache_hit_tokens");
  const hour = count(created, "ephemeral_1h_input_tokens");
  return {
    prompt:
      larger(count(own, "prompt_tokens"), count(own, "promptTokenCount")) ||
      sumOf(hit, count(own, "prompt_cache_miss_tokens")),
    input: count(own, "input_tokens"),
    toolUse: count(own, "toolUsePromptTokenCount"),
    readWithin: readWithin(own, prompt, input, hit),
    wroteWithin: larger(
      larger(wroteWithin(prompt), wroteWithin(input)),
      // LiteLLM
      count(prompt, "cache_creation_tokens"),
    ),
    readBeside: count(own, "cache_read_input_tokens"),
    wroteBeside: larger(
      count(own, "cache_creation_input_tokens"),
      sumOf(count(created, "ephemeral_5m_input_tokens"), hour),
    ),
    wroteHour: hour,
    output: larger(count(own, "completion_tokens"), count(own, "output_tokens")),
    candidates: count(own, "candidatesTokenCount"),
    reasoning: reasoningOf(own, output),
    total: larger(count(own, "total_tokens"), count(own, "totalTokenCount")),
    marked: own.usage_semantic === "anthropic" ? 1 : null,
  };
}

function readWithin(own: Fields, prompt: Fields, input: Fields, hit: number | null): number | null {
  let most = larger(count(prompt, "cached_tokens"), count(input, "cached_tokens"));
  most = larger(most, count(detailsIn(own, "input_token_details"), "cached_tokens"));
  // DeepSeek
  most = larger(most, hit);
  // Moonshot
  most = larger(most, count(own, "cached_tokens"));
  return larger(most, count(own, "cachedContentTokenCount"));
}

function wroteWithin(details: Fields): number | null {
  // The latter is new-api's.
  return larger(count(details, "cache_write_tokens"), count(details, "cached_creation_tokens"));
}

function reasoningOf(own: Fields, output: Fields): number | null {
  const completion = detailsIn(own, "completion_tokens_details");
  let most = larger(count(completion, "reasoning_tokens"), count(output, "reasoning_tokens"));
  most = larger(most, count(output, "thinking_tokens"));
  most = larger(most, count(own, "reasoning_tokens"));
  return larger(most, count(own, "thoughtsTokenCount"));
}

const OF_INPUT: readonly (keyof Counts)[] = [
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
 * What a stream said earlier and says now. Counts in streams are cumulative, so the later one counts; but a zero beside
 * nothing else is how gateways fill a field they do not know, and takes nothing back: many tell the input at the start
 * and the output at the end. Only where the later one knows of any input, its zeros on that side are meant.
 */
export function laterCounts(earlier: Counts, later: Counts): Counts {
  const knowsInput = OF_INPUT.some((name) => (later[name] ?? 0) > 0);
  const merged: { -readonly [name in keyof Counts]: Counts[name] } = { ...earlier };
  for (const name of Object.keys(later) as (keyof Counts)[]) {
    const value = later[name];
    if (value === null) continue;
    const meant = value > 0 || merged[name] === null || (knowsInput && OF_INPUT.includes(name));
    if (meant) merged[name] = value;
  }
  return merged;
}

/** The one meaning: input without cache, output with reasoning. null: nothing was counted, or only zeros. */
export function tokensOf(metering: Metering, counts: Counts): Tokens | null {
  const whole = counts.total ?? 0;
  const reasoning = counts.reasoning ?? 0;
  const cacheRead = Math.max(counts.readWithin ?? 0, counts.readBeside ?? 0);
  const cacheWrite = Math.max(counts.wroteWithin ?? 0, counts.wroteBeside ?? 0);
  const told = (counts.prompt || counts.input || 0) + (counts.toolUse ?? 0);
  const output = outputOf(counts, told, whole, reasoning);
  // Some services count embeddings by their total alone.
  const input = told === 0 && output === 0 && metering === "embeddings" ? whole : told;
  const cached = cacheRead + cacheWrite;
  if (input + cached + output === 0) return null;
  const beside = leavesOutCache(metering, counts, cached, input, output);
  const hour = Math.min(counts.wroteHour ?? 0, cacheWrite);
  const plain = beside ? input : Math.max(0, input - cached);
  if (hour === 0) return { input: plain, cacheRead, cacheWrite, output, reasoning };
  return { input: plain, cacheRead, cacheWrite, cacheWriteHour: hour, output, reasoning };
}

function outputOf(counts: Counts, input: number, whole: number, reasoning: number): number {
  if (counts.output !== null && (counts.output > 0 || counts.candidates === null)) {
    // xAI counts reasoning beside the completion, and only its total tells.
    const apart = reasoning > 0 && whole === input + counts.output + reasoning;
    return apart ? counts.output + reasoning : Math.max(counts.output, reasoning);
  }
  // Gemini leaves out the candidates of some answers, but not the total.
  if (counts.candidates === null) return Math.max(reasoning, counts.prompt === null ? 0 : whole - input);
  return counts.candidates + reasoning;
}

/**
 * Whether what came from or went to the cache stands beside the input, not in it. So by the protocol for messages. For
 * the others only where it is said, where the names of messages are used alone, or where the sum shows it: gateways
 * that speak for a messages model translate names and forget meanings.
 */
function leavesOutCache(
  metering: Metering,
  counts: Counts,
  cached: number,
  input: number,
  output: number,
): boolean {
  const namedSo = counts.readBeside !== null || counts.wroteBeside !== null;
  const namedOtherwise = counts.readWithin !== null || counts.wroteWithin !== null;
  if (counts.marked !== null) return true;
  if (!counts.prompt && (metering === "messages" ? !namedOtherwise || namedSo : namedSo && !namedOtherwise))
    return true;
  if (cached === 0) return false;
  return counts.total === input + cached + output || (namedSo && cached > input);
}

/** What JSON.parse made. No name that is asked for is one of a prototype's. */
type Fields = Readonly<Record<string, unknown>>;

const NO_FIELDS: Fields = Object.freeze({});

function detailsIn(usage: Fields, name: string): Fields {
  const details = usage[name];
  return typeof details === "object" && details !== null ? (details as Fields) : NO_FIELDS;
}

function count(fields: Fields, name: string): number | null {
  let value = fields[name];
  if (value === undefined) return null;
  if (typeof value === "string" && /^\d{1,10}$/.test(value)) value = Number(value);
  if (typeof value !== "number" || !(value >= 0) || value > MOST) return null;
  return Math.floor(value);
}

function larger(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null || one >= other ? one : other;
}

function sumOf(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : one + other;
}
