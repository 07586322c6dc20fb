import type { Period } from "../config/shape.ts";

/** What a limit counts. */
export type Kind = "requests" | "tokens" | "spend";

/** Requests, tokens and micro-dollars. */
export type Amounts = Readonly<Record<Kind, number>>;

export type LimitName =
  | { readonly kind: Kind; readonly per: Period }
  | { readonly kind: "concurrent" }
  | { readonly kind: "quota" }
  /** Money is limited, and the price of the request is unknown. */
  | { readonly kind: "price" };

/** How full a limit is. Requests, tokens or micro-dollars. */
export interface Level {
  readonly limit: LimitName;
  /** Used for good. */
  readonly used: number;
  /** Held for requests in flight, which may give some of it back. */
  readonly held: number;
  /** What can be used in total, extra included. */
  readonly max: number;
  /** How much of max comes from allowances. */
  readonly extra: number;
  /** When the window ends; null: the limit does not depend on time. */
  readonly resetsAt: number | null;
}

/** Why a request cannot be admitted now. */
export interface Shortage extends Omit<Level, "extra" | "resetsAt"> {
  /** What the request would hold. */
  readonly need: number;
  /** When there is capacity again even if no request ends before; null: never. */
  readonly roomAt: number | null;
  /** Whether a request that ends can make room before that. */
  readonly mayEndSooner: boolean;
}

export function remaining({ max, used, held }: Level): number {
  return Math.max(0, max - used - held);
}

export function shortageOf(level: Level, need: number): Shortage | null {
  const { limit, used, held, max, extra, resetsAt } = level;
  // A request that costs nothing, such as a list of models, passes a limit that is used up.
  if (need === 0 || used + held + need <= max) return null;
  // $0/day is a limit too: none of its windows ever has room.
  const roomAt = max - extra > 0 ? resetsAt : null;
  return { limit, used, held, max, need, roomAt, mayEndSooner: used + need <= max };
}

export function tooManyAtOnce(max: number, inFlight: number): Shortage {
  const limit = { kind: "concurrent" } as const;
  return { limit, used: inFlight, held: 0, max, need: 1, roomAt: null, mayEndSooner: true };
}

export function priceUnknown(): Shortage {
  const limit = { kind: "price" } as const;
  return { limit, used: 0, held: 0, max: 0, need: 0, roomAt: null, mayEndSooner: false };
}

/** The shortage that lasts longest: a retry before its end would be refused again. */
export function longest(shortages: readonly Shortage[]): Shortage | null {
  const [first, ...others] = shortages;
  if (first === undefined) return null;
  return others.reduce((worst, next) => (endOf(next) > endOf(worst) ? next : worst), first);
}

function endOf({ roomAt, mayEndSooner }: Shortage): number {
  if (mayEndSooner) return Number.NEGATIVE_INFINITY;
  return roomAt ?? Number.POSITIVE_INFINITY;
}
