import type { MatchLogic, ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import { DAY_MS } from "../core/units.ts";
import { ANY_PREVIEW, normalizeName } from "./model-names.ts";
import { type TierFactors, tierFactors } from "./service-tiers.ts";

/*
 * The build reduces the list prices of @pydantic/genai-prices to dist/prices.json (48 KB), and prices.ts reads that file. The
 * package is a build dependency, like Preact: its prices are in dist, with its version and licence.
 *
 * Why the daemon does not load the package, measured with 0.1.8 on Node 20 (medians):
 * - It takes 10 MB of idle memory. Without it the daemon has 70 MB, and the limit is 71 MB (1.6 times a bare node:http process).
 * - It takes 80 ms of CPU at every start.
 * - Its calcPrice takes 6 to 25 µs. prices.ts takes 0.2 µs, and a request needs up to five prices.
 * Both calculate the same prices; prices.test.ts compares them for every model. The package has no prices for service
 * tiers, and it matches names by patterns (see readNames).
 */

export interface PriceTable {
  /** If two models have the same name, the name means the first one. */
  readonly models: readonly PricedModel[];
}

export interface PricedModel {
  /** Normalized. */
  readonly names: readonly string[];
  /** The last one that is valid counts. If none is valid, the first one counts. */
  readonly prices: readonly DatedPrices[];
  readonly tiers: TierFactors;
}

export interface DatedPrices {
  /** Milliseconds UTC. */
  readonly since?: number;
  /** Milliseconds of a day UTC. A range over midnight ends before it begins. */
  readonly between?: readonly [from: number, to: number];
  /** null: not billed by tokens, or token counts are not enough to find the price. */
  readonly prices: TokenPrices | null;
}

/** In dollars per million tokens, or per thousand requests. A model with tiers costs more for a long input. */
export type Amount = NonNullable<ModelPrice[string]>;
export type TokenPrices = { readonly [kind in PriceKind]?: Amount } & { readonly input_mtok: Amount };

type PriceKind = (typeof PRICE_KINDS)[number];
type Library = Pick<typeof import("@pydantic/genai-prices"), "findProvider">;

const PRICE_KINDS = [
  "input_mtok",
  "cache_read_mtok",
  "cache_write_mtok",
  "cache_write_1h_mtok",
  "output_mtok",
  "output_reasoning_mtok",
  "requests_kcount",
] as const;

/** Only makers of models: resellers charge other prices. Z.ai's list in dollars comes before its list in yuan. */
const MAKERS = [
  "anthropic",
  "openai",
  "google",
  "x-ai",
  "deepseek",
  "moonshotai",
  "mistral",
  "cohere",
  "perplexity",
  "zai",
  "zhipuai",
  "minimax",
  "voyageai",
];

/** Audio costs several times as much as text, and token counts do not distinguish them. */
const MIXED_MODEL = /audio|realtime|live|transcribe/;
const MIXED_OUTPUT = /^output_(?:audio|image|video)_mtok$/;

export function buildTable(library: Library): PriceTable {
  return { models: MAKERS.flatMap((maker) => readModels(library, maker)) };
}

function readModels(library: Library, maker: string): PricedModel[] {
  const models = library.findProvider({ providerId: maker })?.models ?? [];
  return models
    .filter(({ id }) => !MIXED_MODEL.test(id) && !isResold(maker, id))
    .map((model) => ({
      names: readNames(model),
      prices: readPrices(model),
      tiers: tierFactors(maker, model.id),
    }));
}

function isResold(maker: string, id: string): boolean {
  return maker === "google" && !/^gem(?:ini|ma)-/.test(id);
}

/**
 * The exact names of a model. The list also has patterns (starts with, contains), but with them every new model that is
 * named after an old one would get the old price.
 */
function readNames({ id, match }: ModelInfo): string[] {
  const names = [id, ...literalNames(match)].filter((name) => !name.startsWith("ft:"));
  return [...new Set(names.map((name) => normalizeName(name.replace(/[-@]$/, ""))))];
}

function literalNames(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(literalNames);
  if ("and" in match) return match.and.flatMap(literalNames);
  if ("regex" in match) return [];
  // Only the list knows which previews of a model are the same as the model.
  if ("starts_with" in match) return [match.starts_with, `${match.starts_with}${ANY_PREVIEW}`];
  return Object.values(match);
}

function readPrices({ prices }: ModelInfo): DatedPrices[] {
  if (!Array.isArray(prices)) return [{ prices: tokenPrices(prices) }];
  return prices.map(({ constraint, prices: amounts }): DatedPrices => {
    const prices = tokenPrices(amounts);
    if (constraint === undefined) return { prices };
    if ("start_date" in constraint) return { since: parseTime(constraint.start_date), prices };
    const from = timeOfDay(parseTime(`1970-01-02T${constraint.start_time}`));
    const to = timeOfDay(parseTime(`1970-01-02T${constraint.end_time}`));
    return { between: [from, to], prices };
  });
}

/** Throws, because a price whose time cannot be read must not become one that is always valid. */
function parseTime(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new Error(`the price list contains a time that cannot be read: ${text}`);
  return time;
}

export function timeOfDay(time: number): number {
  return ((time % DAY_MS) + DAY_MS) % DAY_MS;
}

function tokenPrices(prices: ModelPrice): TokenPrices | null {
  const { input_mtok } = prices;
  if (input_mtok === undefined || Object.keys(prices).some((key) => MIXED_OUTPUT.test(key))) return null;
  const known = PRICE_KINDS.flatMap((kind) => {
    const amount = prices[kind];
    return amount === undefined ? [] : [[kind, amount] as const];
  });
  return { ...Object.fromEntries(known), input_mtok };
}
