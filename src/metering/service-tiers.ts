/*
 * Makers sell the same model at several prices: OpenAI's flex and priority (renamed fast in July 2026), Google's flex and
 * priority, Anthropic's fast mode. The tier in the response counts, because a request for priority may be served as standard.
 * If the response names no tier, the one in the request counts.
 */

/** The list price, whatever the protocol calls it. */
export const STANDARD_TIER = "standard";
/** Anthropic calls it a speed, not a service tier. */
export const FAST_TIER = "fast";

const STANDARD_NAMES = /^(?:default|standard|standard_only|on_demand)$/;
/** The maker chooses. Some responses only repeat this from the request. */
const NO_NAMES = /^(?:|auto|.*unspecified)$/;

/**
 * The tier that a field of a request or a response names; null: none.
 * @param value a `service_tier`, or Vertex AI's `trafficType` (ON_DEMAND_PRIORITY).
 */
export function serviceTier(value: unknown): string | null {
  if (typeof value !== "string" || value.length > 64) return null;
  const name = value.toLowerCase().replace(/^service_tier_|^on_demand_/, "");
  if (NO_NAMES.test(name)) return null;
  return STANDARD_NAMES.test(name) ? STANDARD_TIER : name;
}

/** What a tier costs, as a multiple of the list price. A tier that is not here has no known price. */
export type TierFactors = Readonly<Record<string, number>>;

/** OpenAI bills flex at the prices of its Batch API, and Google like its batch mode: half, for every model. */
const FLEX_MAKERS = ["openai", "google"];

/**
 * From openai.com/api-fast-mode in 2026 and, for GPT-6, from a reseller of it. Google's priority costs "75% to 100% more",
 * so its price is not known.
 */
const OPENAI_PRIORITY: readonly (readonly [RegExp, number])[] = [
  [/^gpt-4o-mini$/, 5 / 3],
  [/^gpt-4o$/, 1.7],
  [/^(?:gpt-4o-2024-05-13|gpt-4\.1|gpt-4\.1-mini|o3)$/, 1.75],
  [/^gpt-5-mini$/, 1.8],
  [/^o4-mini$/, 2 / 1.1],
  [/^(?:gpt-4\.1-nano|gpt-5|gpt-5\.[124]|gpt-5\.4-mini|gpt-5\.6-\w+|gpt-6-(?:astra|sol|luna))$/, 2],
  [/^gpt-5\.5$/, 2.5],
];

/** From platform.claude.com in 2026. Anthropic's priority tier is capacity bought in advance, without a price per token. */
const ANTHROPIC_FAST: readonly (readonly [RegExp, number])[] = [
  [/^claude-opus-4-[67]$/, 6],
  [/^claude-opus-(?:4-8|5|5-5)$/, 2],
];

/** @param id the model's in the price list. */
export function tierFactors(maker: string, id: string): TierFactors {
  const factors: Record<string, number> = {};
  if (FLEX_MAKERS.includes(maker)) factors.flex = 0.5;
  const priority = maker === "openai" ? findFactor(OPENAI_PRIORITY, id) : undefined;
  if (priority !== undefined) factors.priority = priority;
  const fast = maker === "anthropic" ? findFactor(ANTHROPIC_FAST, id) : priority;
  if (fast !== undefined) factors.fast = fast;
  return factors;
}

function findFactor(factors: readonly (readonly [RegExp, number])[], id: string): number | undefined {
  return factors.find(([models]) => models.test(id))?.[1];
}
