import type { Period } from "../config/shape.ts";

export type Kind = "requests" | "tokens" | "spend";

export type LimitName =
  | { readonly kind: Kind; readonly per: Period }
  | { readonly kind: "concurrent" }
  | { readonly kind: "quota" }
  /** Money is limited, and what the request costs is unknown. */
  | { readonly kind: "price" };

/** How full a limit is. Requests, tokens or micro-dollars. */
export interface Level {
  readonly limit: LimitName;
  /** Settled, for good. */
  readonly used: number;
  /** Held for calls under way, which may give some of it back. */
  readonly held: number;
  /** What can be used in all, extra included. */
  readonly most: number;
  /** How much of it is an extra allowance. */
  readonly extra: number;
  /** null: it is not a matter of time. */
  readonly resetsAt: number | null;
}

/** Why there is no room. */
export interface Shortage extends Omit<Level, "extra" | "resetsAt"> {
  /** What the request would hold. */
  readonly need: number;
  /** When room returns even if no call ends before; null: never. */
  readonly roomAt: number | null;
  /** Whether a call that ends can make room before that. */
  readonly mayEndSooner: boolean;
}

export function shortageOf(level: Level, need: number): Shortage | null {
  const { limit, used, held, most, extra, resetsAt } = level;
  // What costs nothing, such as a list of models, passes a limit that is used up.
  if (need === 0 || used + held + need <= most) return null;
  // $0/day is a limit too: no window of it ever has room.
  const roomAt = most - extra > 0 ? resetsAt : null;
  return { limit, used, held, most, need, roomAt, mayEndSooner: used + need <= most };
}

export function tooManyAtOnce(most: number, running: number): Shortage {
  const limit = { kind: "concurrent" } as const;
  return { limit, used: running, held: 0, most, need: 1, roomAt: null, mayEndSooner: true };
}

export function priceUnknown(): Shortage {
  const limit = { kind: "price" } as const;
  return { limit, used: 0, held: 0, most: 0, need: 0, roomAt: null, mayEndSooner: false };
}

/** Of several the one that lasts longest, because to come back before that is in vain. */
export function longest(shortages: readonly Shortage[]): Shortage | null {
  const [first, ...others] = shortages;
  if (first === undefined) return null;
  return others.reduce((worst, next) => (lasts(next) > lasts(worst) ? next : worst), first);
}

function lasts({ roomAt, mayEndSooner }: Shortage): number {
  if (mayEndSooner) return Number.NEGATIVE_INFINITY;
  return roomAt ?? Number.POSITIVE_INFINITY;
}
