import type { LimitStatus } from "../../control/tool-status.ts";
import type { Kind } from "../../limits/counters.ts";
import type { Translate } from "./messages/messages.ts";

/** money / day, at once, quota */
export function limitName({ limit, per }: Pick<LimitStatus, "limit" | "per">, t: Translate): string {
  const name = t(`limit.${limit}`);
  return per === null ? name : t("limit.per", { limit: name, per: t(`limit.${per}`) });
}

/** Of what can be used; 1: all of it. */
export function shareOf({ used, held, most }: Pick<LimitStatus, "used" | "held" | "most">): number {
  return most <= 0 ? 1 : Math.min(1, ((used ?? 0) + (held ?? 0)) / most);
}

/** null: there is no limit. */
export function fullest<Limit extends Pick<LimitStatus, "used" | "held" | "most">>(
  limits: readonly Limit[],
): Limit | null {
  return limits.toSorted((a, b) => shareOf(b) - shareOf(a))[0] ?? null;
}

export type Fullness = "room" | "near" | "full";

export function fullnessOf({ used, held, most }: Pick<LimitStatus, "used" | "held" | "most">): Fullness {
  const taken = (used ?? 0) + (held ?? 0);
  if (taken >= most) return "full";
  return taken >= most * 0.85 ? "near" : "room";
}

/** Requests, tokens or micro-dollars, typed as 60, 400k or 2.50; null: it is not an amount above zero. */
export function readAmount(limit: Kind, text: string): number | null {
  const [, digits = "", unit = ""] = /^\$?(\d{1,9}(?:\.\d{1,6})?)([kKmM]?)$/.exec(text) ?? [];
  if (limit === "spend" && unit !== "") return null;
  const scale = limit === "spend" ? 1_000_000 : (MULTIPLES[unit.toLowerCase()] ?? 1);
  const amount = Number(digits) * scale;
  const whole = Math.round(amount);
  const isWhole = Math.abs(amount - whole) < 1e-6;
  return isWhole && whole > 0 ? whole : null;
}

const MULTIPLES: Readonly<Record<string, number>> = { k: 1000, m: 1_000_000 };
