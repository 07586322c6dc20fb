import type { Kind, Level } from "./shortage.ts";

/** A million dollars, or as many tokens: beyond any call, and small enough for sums to stay exact. */
const BEYOND_ANY_CALL = 1e12;

/**
 * What the request has to hold. Never more than the tightest limit allows in all: a request whose greatest possible use
 * is above that, such as max_tokens: 128000 under 100k/minute, would never be let in, while most of them use a fraction
 * of it. So it gets an empty window to itself, and what goes above the limit is what this one call uses.
 */
export function needOf(amount: number, tightest: number): number {
  // At least one unit of what it does use, or a limit of 0 would let everything pass.
  return amount > 0 ? Math.min(Math.ceil(amount), BEYOND_ANY_CALL, Math.max(1, tightest)) : 0;
}

/** The quota counts what spend counts. */
export function kindOf({ limit }: Level): Kind {
  return limit.kind === "requests" || limit.kind === "tokens" ? limit.kind : "spend";
}
