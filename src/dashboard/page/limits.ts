import type { LimitStatus } from "../../control/tool-status.ts";
import { exact, exactDollars } from "../../core/units.ts";
import type { Kind } from "../../limits/counters.ts";
import type { Translate } from "./messages/messages.ts";

type Level = Pick<LimitStatus, "used" | "held" | "most">;

/** A limit of a tool, or of a session. */
export type ShownLimit = Level & Pick<LimitStatus, "limit" | "extra"> & Partial<LimitStatus>;

/** money / day, at once, quota */
export function limitName({ limit, per }: Pick<ShownLimit, "limit" | "per">, t: Translate): string {
  const name = t(`limit.${limit}`);
  return per == null ? name : t("limit.per", { limit: name, per: t(`limit.${per}`) });
}

/** 60 requests, $2.50 */
export function moreInWords(limit: Kind, amount: number, t: Translate): string {
  return limit === "spend" ? exactDollars(amount) : t(`limit.more.${limit}`, { n: exact(amount) });
}

/** $1.20 of $5.00 */
export function usedInWords(figures: { used: string | null; max: string }, t: Translate): string {
  return t("limit.of", { used: figures.used ?? "–", most: figures.max });
}

/** Of what can be used; 1: all of it. */
export function shareOf({ used, held, most }: Level): number {
  return most <= 0 ? 1 : Math.min(1, ((used ?? 0) + (held ?? 0)) / most);
}

/** null: there is no limit. */
export function fullest<Limit extends Level>(limits: readonly Limit[]): Limit | null {
  return limits.toSorted((a, b) => shareOf(b) - shareOf(a))[0] ?? null;
}

export function fullnessOf(limit: Level): "room" | "near" | "full" {
  const share = shareOf(limit);
  if (share >= 1) return "full";
  return share >= 0.85 ? "near" : "room";
}
