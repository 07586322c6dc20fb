import type { Metering, Tokens } from "../record.ts";

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

const PROMPT = ["prompt_tokens", "promptTokenCount"];
const READ_WITHIN = [
  "prompt_tokens_details.cached_tokens",
  "input_tokens_details.cached_tokens",
  "input_token_details.cached_tokens",
  // DeepSeek
  "prompt_cache_hit_tokens",
  // Moonshot
  "cached_tokens",
  "cachedContentTokenCount",
];
const WROTE_WITHIN = [
  "prompt_tokens_details.cache_write_tokens",
  "input_tokens_details.cache_write_tokens",
  // new-api
  "prompt_tokens_details.cached_creation_tokens",
  "input_tokens_details.cached_creation_tokens",
  // LiteLLM
  "prompt_tokens_details.cache_creation_tokens",
];
const REASONING = [
  "completion_tokens_details.reasoning_tokens",
  "output_tokens_details.reasoning_tokens",
  "output_tokens_details.thinking_tokens",
  "reasoning_tokens",
  "thoughtsTokenCount",
];

/** null: this is no usage object. */
export function countsOf(usage: unknown): Counts | null {
  if (typeof usage !== "object" || usage === null || Array.isArray(usage)) return null;
  const most = (paths: readonly string[]) => largest(paths.map((path) => count(at(usage, path))));
  const sum = (...paths: readonly string[]) => sumOf(paths.map((path) => count(at(usage, path))));
  return {
    prompt: most(PROMPT) || sum("prompt_cache_hit_tokens", "prompt_cache_miss_tokens"),
    input: most(["input_tokens"]),
    toolUse: most(["toolUsePromptTokenCount"]),
    readWithin: most(READ_WITHIN),
    wroteWithin: most(WROTE_WITHIN),
    readBeside: most(["cache_read_input_tokens"]),
    wroteBeside: largest([
      most(["cache_creation_input_tokens"]),
      sum("cache_creation.ephemeral_5m_input_tokens", "cache_creation.ephemeral_1h_input_tokens"),
    ]),
    wroteHour: most(["cache_creation.ephemeral_1h_input_tokens"]),
    output: most(["completion_tokens", "output_tokens"]),
    candidates: most(["candidatesTokenCount"]),
    reasoning: most(REASONING),
    total: most(["total_tokens", "totalTokenCount"]),
    marked: at(usage, "usage_semantic") === "anthropic" ? 1 : null,
  };
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
  return {
    input: beside ? input : Math.max(0, input - cached),
    cacheRead,
    cacheWrite,
    ...(hour > 0 ? { cacheWriteHour: hour } : {}),
    output,
    reasoning,
  };
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

function count(value: unknown): number | null {
  const number = typeof value === "string" && /^\d{1,10}$/.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !(number >= 0) || number > MOST) return null;
  return Math.floor(number);
}

function largest(counts: readonly (number | null)[]): number | null {
  return counts.reduce((most, one) => (one === null || (most ?? -1) >= one ? most : one), null);
}

function sumOf(counts: readonly (number | null)[]): number | null {
  return counts.reduce((sum, one) => (one === null ? sum : (sum ?? 0) + one), null);
}

/** The value below one key or two. Own fields only: what a gateway sends may be named like anything. */
function at(value: object, path: string): unknown {
  const dot = path.indexOf(".");
  if (dot === -1) return own(value, path);
  const inner = own(value, path.slice(0, dot));
  return typeof inner === "object" && inner !== null ? own(inner, path.slice(dot + 1)) : undefined;
}

function own(value: object, key: string): unknown {
  return Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;
}
