import type { LimitStatus } from "../../control/tool-status.ts";
import { dollars, exact, exactDollars } from "../../core/units.ts";
import type { Kind } from "../../limits/counters.ts";
import { consoleFigures } from "../../limits/format.ts";
import type { KeyReport } from "../../mirror/report/shape.ts";
import { factorInWords } from "./components/compared.ts";
import { joined } from "./format.ts";
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

type ConsoleKey = Pick<KeyReport, "quota" | "quota_used" | "windows" | "group" | "multiplier">;

/** What a console says of a key: $1.20 of $5.00, or what was spent without a quota; null: neither. */
export function quotaInWords({ quota, quota_used: used }: ConsoleKey, t: Translate): string | null {
  if (quota !== null) return usedInWords(consoleFigures(used, quota), t);
  return used === null || used === 0 ? null : dollars(used);
}

/** 5h $1.20 of $5.00, 7d $3.00 of $20.00; empty: it has no windows. */
export function windowsInWords({ windows }: ConsoleKey, t: Translate): string {
  const words = windows.map(
    ({ window, used, most }) => `${window} ${usedInWords(consoleFigures(used, most), t)}`,
  );
  return joined(words, t);
}

/** coding ×1.5; null: the key has no group. */
export function groupInWords({ group, multiplier }: ConsoleKey): string | null {
  return group === null || multiplier === null ? group : `${group} ${factorInWords(multiplier)}`;
}
