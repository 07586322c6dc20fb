import { useEffect, useMemo } from "preact/hooks";
import { costInWords } from "../../../core/units.ts";
import type { UsageChart } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { linesOf, nameInWords } from "../pages/usage/words.ts";
import { useAnswer } from "../use-answer.ts";
import { Chart } from "./chart.tsx";

const HOUR_MS = 3_600_000;
const AGAIN_MS = 60_000;

/** What the last 24 hours cost, by tool. */
export function LastDay() {
  const { t, client, clock, live } = useFrame();
  const ask = (signal: AbortSignal) => {
    const since = new Date(clock() - 23 * HOUR_MS).setMinutes(0, 0, 0);
    return client.get(
      "/api/usage",
      new URLSearchParams({ since: String(since), bin: "hour", by: "tool" }),
      signal,
    );
  };
  const { value, failure, busy, again } = useAnswer(ask, []);
  // Not while one is on its way: to ask again gives that one up.
  useEffect(() => (busy ? undefined : live.every(AGAIN_MS, again)), [live, busy]);
  return (
    <section class="panel last-day" aria-labelledby="last-day">
      <header>
        <h2 id="last-day">{t("overview.last-day")}</h2>
        <span class="muted">{value === null ? "" : costInWords(value.total.cost_microdollars, 0)}</span>
      </header>
      <div class="body">
        {value === null ? (
          <p class="empty">{failure === null ? t("frame.loading") : t("frame.failed", { why: failure })}</p>
        ) : (
          <Bars chart={value} />
        )}
      </div>
    </section>
  );
}

function Bars({ chart }: { readonly chart: UsageChart }) {
  const { t } = useFrame();
  const lines = useMemo(() => linesOf(chart, "money"), [chart]);
  if (chart.total.cost_microdollars === 0) return <p class="empty">{t("overview.last-day.empty")}</p>;
  return (
    <Chart
      label={t("overview.last-day")}
      bins={chart.bins}
      bin="hour"
      zone={chart.zone}
      lines={lines}
      nameOf={(name) => nameInWords(name, "tool", t)}
      amount={costInWords}
      hasLegend
    />
  );
}
