import type { Named, Price } from "../config/shape.ts";
import { loadPriceList, type PriceList } from "./price-list.ts";
import type { Tokens } from "./usage.ts";

/** What requests cost. */
export interface Prices {
  /**
   * The list price of a request: of the model asked for, by which gateways bill; of the one that answered where nobody
   * knows the first, which may be a name of the gateway's own. `over` are the prices of config.yaml, by exact name.
   * null: not known, which is not zero. Never throws.
   */
  priceOf(names: ModelNames, tokens: Tokens, at: number, over: Named<Price>): ListPrice | null;
  /** Reads the built-in list now rather than when the first price is asked for. */
  load(): Promise<void>;
}

export interface ModelNames {
  readonly asked: string | null;
  readonly answered: string | null;
}

/** Exact, so that it is rounded once: as it is, or times a group's multiplier. */
export interface ListPrice {
  /** A whole number; a million of them are a micro-dollar. */
  readonly picodollars: number;
}

/** In whole micro-dollars, a half rounded up. */
export function microdollars({ picodollars }: ListPrice, multiplier = 1): number {
  // By whole numbers: 1.1 × 0.45 is a little less than it should be, and a half of it would be lost.
  const exact = BigInt(Math.round(picodollars)) * BigInt(Math.round(multiplier * 1_000_000));
  return Number((exact + 500_000_000_000n) / 1_000_000_000_000n);
}

export function createPrices(): Prices {
  let list: PriceList | null = null;
  const builtIn = () => {
    list ??= loadPriceList();
    return list;
  };
  const listed = (model: string, tokens: Tokens, at: number): number | null => {
    try {
      return builtIn().picodollars(model, tokens, at);
    } catch {
      return null;
    }
  };
  return {
    priceOf({ asked, answered }, tokens, at, over) {
      for (const model of [asked, answered]) {
        if (model === null) continue;
        const own = Object.hasOwn(over, model) ? over[model] : undefined;
        const picodollars = own === undefined ? listed(model, tokens, at) : ownPrice(own, tokens);
        if (picodollars !== null && Number.isFinite(picodollars)) return { picodollars };
      }
      return null;
    },
    async load() {
      builtIn();
    },
  };
}

/** Micro-dollars for a million tokens are picodollars for one. */
function ownPrice(price: Price, { input, cacheRead, cacheWrite, output }: Tokens): number {
  return (
    input * price.input + cacheRead * price.cacheRead + cacheWrite * price.cacheWrite + output * price.output
  );
}
