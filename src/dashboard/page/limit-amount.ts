import type { LimitStatus } from "../../control/tool-status.ts";
import { exact } from "../../core/units.ts";
import type { Translate } from "./messages/messages.ts";

type Limit = LimitStatus["limit"];

/** money / day, at once, quota */
export function limitName({ limit, per }: Pick<LimitStatus, "limit" | "per">, t: Translate): string {
  const name = t(`limit.${limit}`);
  return per === null ? name : t("limit.per", { limit: name, per: t(`limit.${per}`) });
}

/** $4.10, 399.9k, 60. Rounded down: what is almost used up must not read as used up. */
export function limitAmount(limit: Limit, amount: number): string {
  if (limit === "spend" || limit === "quota") return cents(amount);
  if (limit !== "tokens" || amount < 10_000) return exact(amount);
  const [unit, sign] = amount < 1_000_000 ? [1000, "k"] : [1_000_000, "M"];
  return `${exact(Math.floor((amount / unit) * 10) / 10)}${sign}`;
}

/** Cents; below a cent as exactly as it is counted, or a small amount would read as nothing. */
function cents(microdollars: number): string {
  if (microdollars > 0 && microdollars < 10_000) return `$${trimmed(microdollars / 1_000_000)}`;
  const [whole = "0", part = "00"] = (Math.floor(microdollars / 10_000) / 100).toFixed(2).split(".");
  return `$${exact(Number(whole))}.${part}`;
}

function trimmed(dollars: number): string {
  return dollars.toFixed(6).replace(/0{1,4}$/, "");
}

export type Fullness = "room" | "near" | "full";

export function fullnessOf({ used, held, most }: Pick<LimitStatus, "used" | "held" | "most">): Fullness {
  const taken = (used ?? 0) + (held ?? 0);
  if (taken >= most) return "full";
  return taken >= most * 0.85 ? "near" : "room";
}
