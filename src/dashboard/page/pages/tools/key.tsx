import { dollars } from "../../../../core/units.ts";
import { consoleFigures } from "../../../../limits/format.ts";
import type { ToolConsoleFacts } from "../../../../mirror/report/shape.ts";
import type { ToolSettings } from "../../../api.ts";
import { factorInWords } from "../../components/compared.ts";
import { type Pair, Pairs } from "../../components/pairs.tsx";
import { agoInWords, dayOf } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { useTime } from "../../use-time.ts";

/** A tool's key: where it is kept, and what the gateway and its console say of it. */
export function Key({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  const { key, source, gateway, group, console } = tool;
  const facts: Pair[] = [
    [t("tools.gateway"), group === null ? gateway : `${gateway} / ${group}`],
    // The fingerprint already describes the key itself.
    [t("tools.source"), source.replace(` (${key})`, "")],
    ...(console === null ? [] : consoleFacts(console, time, t)),
  ];
  return (
    <section class="panel" aria-labelledby="tool-key">
      <header>
        <h2 id="tool-key">{t("tools.key.title")}</h2>
        {key === null ? t("tools.key.none") : <code>{key}</code>}
      </header>
      <div class="body">
        <Pairs pairs={facts} />
      </div>
    </section>
  );
}

function consoleFacts(facts: ToolConsoleFacts, now: number, t: Translate): Pair[] {
  const { state, created_at: created, expires_at: expires, balance, as_of: asOf } = facts;
  const money = quotaInWords(facts, t);
  const group = groupInWords(facts, t);
  return [
    [t("tools.console.state"), t(`bill.keys.state.${state}`)],
    ...(created === null
      ? []
      : [[t("tools.console.created"), `${dayOf(created)}, ${agoInWords(created, now, t)}`] as const]),
    ...(expires === null ? [] : [[t("tools.expires"), dayOf(expires)] as const]),
    ...(money === null ? [] : [[t("tools.console.used"), money] as const]),
    ...facts.windows.map(({ window, used, most }) => [window, usedOf(used, most, t)] as const),
    ...(group === null ? [] : [[t("tools.console.group"), group] as const]),
    ...(balance === null ? [] : [[t("tools.console.balance"), dollars(balance)] as const]),
    [t("tools.console.as-of"), agoInWords(asOf, now, t)],
  ];
}

function quotaInWords({ quota, quota_used: used }: ToolConsoleFacts, t: Translate): string | null {
  if (quota !== null) return usedOf(used, quota, t);
  return used === null || used === 0 ? null : dollars(used);
}

function usedOf(used: number | null, most: number, t: Translate): string {
  const figures = consoleFigures(used, most);
  return t("limit.of", { used: figures.used ?? "–", most: figures.max });
}

function groupInWords(
  { group, multiplier, multiplier_here: here }: ToolConsoleFacts,
  t: Translate,
): string | null {
  if (group === null) return null;
  const named = multiplier === null ? group : `${group} ${factorInWords(multiplier)}`;
  return here === null
    ? named
    : `${named}${t("frame.comma")}${t("tools.console.here", { multiplier: here })}`;
}
