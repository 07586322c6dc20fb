import type { ModelPrice } from "./models.ts";

/** What one request used. `input` leaves cached tokens out; `output` includes `reasoning`. */
export interface Tokens {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  readonly output: number;
  readonly reasoning: number;
}

/** In dollars. `total` is the list price; `actual` is what is taken from balance and quota. */
export interface Cost {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  readonly total: number;
  readonly actual: number;
}

export function costOf(tokens: Tokens, price: ModelPrice, multiplier: number): Cost {
  const input = dollars(tokens.input, price.input);
  const output = dollars(tokens.output, price.output);
  const cacheRead = dollars(tokens.cacheRead, price.cacheRead);
  const cacheWrite = dollars(tokens.cacheWrite, price.cacheWrite);
  const total = rounded(input + output + cacheRead + cacheWrite);
  return { input, output, cacheRead, cacheWrite, total, actual: rounded(total * multiplier) };
}

function dollars(tokens: number, perMillion: number): number {
  return rounded((tokens * perMillion) / 1_000_000);
}

/** Ten decimals, the precision that sub2api's columns hold. */
export function rounded(amount: number): number {
  return Math.round(amount * 1e10) / 1e10;
}
