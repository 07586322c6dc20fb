import type { Kind, Level } from "./shortage.ts";

/** A million dollars, or as many tokens: beyond any call, and small enough for sums to stay exact. */
const BEYOND_ANY_CALL = 1e12;

/**
 * What the request has to hold. Never more than the tightest limit allows in all: a request whose greatest possible use
 * is above that, such as max_tokens: 128000 under 100k/minute, would never be let in, while most of them use a fraction
 * of it. So it gets an empty window to itself, and what goes above the limit is what this one call uses.
 */
export function needOf(
  ask: { readonly tokens: number; readonly spend: number | null },
  levels: readonly Level[],
): Readonly<Record<Kind, number>> {
  const within = (kind: Kind, amount: number) => {
    if (!(amount > 0)) return 0;
    let need = Math.min(Math.ceil(amount), BEYOND_ANY_CALL);
    for (const level of levels) {
      // At least one unit of what it does use, or a limit of 0 would let everything pass.
      if (kindOf(level) === kind) need = Math.min(need, Math.max(1, level.most));
    }
    return need;
  };
  return { requests: 1, tokens: within("tokens", ask.tokens), spend: within("spend", ask.spend ?? 0) };
}

/** The quota counts what spend counts. */
export function kindOf({ limit }: Level): Kind {
  return limit.kind === "requests" || limit.kind === "tokens" ? limit.kind : "spend";
}
