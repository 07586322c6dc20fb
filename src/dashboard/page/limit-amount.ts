import type { LimitStatus } from "../../control/tool-status.ts";
import type { Translate } from "./messages/messages.ts";

/** money / day, at once, quota */
export function limitName({ limit, per }: Pick<LimitStatus, "limit" | "per">, t: Translate): string {
  const name = t(`limit.${limit}`);
  return per === null ? name : t("limit.per", { limit: name, per: t(`limit.${per}`) });
}

export type Fullness = "room" | "near" | "full";

export function fullnessOf({ used, held, most }: Pick<LimitStatus, "used" | "held" | "most">): Fullness {
  const taken = (used ?? 0) + (held ?? 0);
  if (taken >= most) return "full";
  return taken >= most * 0.85 ? "near" : "room";
}
