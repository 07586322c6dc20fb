import type { ToolConsoleFacts } from "../../../mirror/report/shape.ts";
import { dollars } from "../../../usage/reports/format.ts";
import { agoInWords, dayOf } from "../format.ts";
import type { Translate } from "../words/words.ts";

/** Older than this, what the console said may no longer hold. */
const STALE_MS = 3_600_000;

/** What the gateway's console says of a tool's key, each fact in a few words. */
export function consoleFacts(facts: ToolConsoleFacts | null, now: number, t: Translate): string[] {
  if (facts === null) return [];
  const { state, expires_at: expires, balance, as_of: asOf } = facts;
  const told = [
    ...(state === "active" || state === "unknown" ? [] : [t(`tools.console.state.${state}`)]),
    ...quotaFacts(facts, t),
    ...facts.windows.map(({ window, used, most }) =>
      t("tools.console.window", { window, used: dollars(used), most: dollars(most) }),
    ),
    ...groupFacts(facts, t),
    ...(expires === null ? [] : [t("tools.console.expires", { day: dayOf(expires) })]),
    ...(balance === null ? [] : [t("tools.console.balance", { money: dollars(balance) })]),
  ];
  if (told.length === 0 || now - asOf < STALE_MS) return told;
  return [...told, t("tools.console.as-of", { ago: agoInWords(asOf, now, t) })];
}

function quotaFacts({ quota, quota_used: used }: ToolConsoleFacts, t: Translate): string[] {
  if (quota === null)
    return used === null || used === 0 ? [] : [t("tools.console.used", { used: dollars(used) })];
  if (used === null) return [t("tools.console.quota", { quota: dollars(quota) })];
  return [t("tools.console.used-of", { used: dollars(used), quota: dollars(quota) })];
}

function groupFacts({ group, multiplier, multiplier_here: here }: ToolConsoleFacts, t: Translate): string[] {
  const named =
    group === null
      ? []
      : [
          multiplier === null
            ? t("tools.console.group-plain", { group })
            : t("tools.console.group", { group, multiplier }),
        ];
  return here === null ? named : [...named, t("tools.console.here", { multiplier: here })];
}
