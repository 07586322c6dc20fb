import type { MatchLogic, ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import { ANY_PREVIEW, oneSpelling } from "./model-names.ts";

/** Of the list what is needed of it, as plain JSON: the build writes it down, because the whole list takes 15 MB. */
export interface PriceTable {
  /** Of two models with one name the first has it. */
  readonly models: readonly PricedModel[];
}

export interface PricedModel {
  /** In one spelling. */
  readonly names: readonly string[];
  /** The last one that holds counts; the first where none does. */
  readonly prices: readonly PricesThen[];
}

export interface PricesThen {
  /** Milliseconds UTC. */
  readonly since?: number;
  /** Milliseconds of a day UTC; the second may lie before the first, at night. */
  readonly between?: readonly [from: number, to: number];
  /** null: this is not paid for by tokens, or by more than tokens tell. */
  readonly prices: TokenPrices | null;
}

export type Kind = (typeof KINDS)[number];
export type Amount = NonNullable<ModelPrice[string]>;
export type TokenPrices = { readonly [kind in Kind]?: Amount } & { readonly input_mtok: Amount };

type Library = Pick<typeof import("@pydantic/genai-prices"), "findProvider">;

const KINDS = [
  "input_mtok",
  "cache_read_mtok",
  "cache_write_mtok",
  "cache_write_1h_mtok",
  "output_mtok",
  "output_reasoning_mtok",
  "requests_kcount",
] as const;

/** Who makes models: resellers ask other prices. Z.ai's list in dollars goes before its list in yuan. */
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

/** Sound and speech cost several times what text does, and a count of tokens does not tell which they were. */
const MIXED = /audio|realtime|live|transcribe/;
const MIXED_OUTPUT = /^output_(?:audio|image|video)_mtok$/;

export function tableOf(library: Library): PriceTable {
  return { models: MAKERS.flatMap((maker) => modelsOf(library, maker)) };
}

function modelsOf(library: Library, maker: string): PricedModel[] {
  const models = library.findProvider({ providerId: maker })?.models ?? [];
  const own = models.filter(({ id }) => !MIXED.test(id) && !isResold(maker, id));
  return own.map((model) => ({ names: namesOf(model), prices: pricesOf(model) }));
}

function isResold(maker: string, id: string): boolean {
  return maker === "google" && !/^gem(?:ini|ma)-/.test(id);
}

/**
 * The names that the list gives a model. It matches more than these by how they begin or what they contain, but that
 * would find a price for every new model that is named after an old one.
 */
function namesOf({ id, match }: ModelInfo): string[] {
  const names = [id, ...literals(match)].filter((name) => !name.startsWith("ft:"));
  return [...new Set(names.map((name) => oneSpelling(name.replace(/[-@]$/, ""))))];
}

function literals(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(literals);
  if ("and" in match) return match.and.flatMap(literals);
  if ("regex" in match) return [];
  // Which of a model's previews are the same as the model, only the list knows.
  if ("starts_with" in match) return [match.starts_with, `${match.starts_with}${ANY_PREVIEW}`];
  return Object.values(match);
}

function pricesOf({ prices }: ModelInfo): PricesThen[] {
  if (!Array.isArray(prices)) return [{ prices: known(prices) }];
  return prices.map(({ constraint, prices: then }) => {
    if (constraint === undefined) return { prices: known(then) };
    if ("start_date" in constraint) return { since: timeOf(constraint.start_date), prices: known(then) };
    const [from, to] = [constraint.start_time, constraint.end_time].map((time) =>
      timeOf(`1970-01-02T${time}`),
    );
    return { between: [ofDay(from ?? 0), ofDay(to ?? 0)], prices: known(then) };
  });
}

/** A list that says when in another way than it does today must not be taken for one that holds always. */
function timeOf(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new Error(`the price list names a time that cannot be read: ${text}`);
  return time;
}

export const DAY_MS = 86_400_000;

export function ofDay(time: number): number {
  return ((time % DAY_MS) + DAY_MS) % DAY_MS;
}

function known(prices: ModelPrice): TokenPrices | null {
  const { input_mtok } = prices;
  if (input_mtok === undefined || Object.keys(prices).some((key) => MIXED_OUTPUT.test(key))) return null;
  const kinds = KINDS.flatMap((kind) => (prices[kind] === undefined ? [] : [[kind, prices[kind]] as const]));
  return { ...Object.fromEntries(kinds), input_mtok };
}
