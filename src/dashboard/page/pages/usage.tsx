import { useEffect, useMemo, useState } from "preact/hooks";
import { RecordPanel } from "../components/record-panel.tsx";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { useTime } from "../use-time.ts";
import { barOf } from "./usage/usage-bar.ts";
import { UsageChartPanel } from "./usage/usage-chart.tsx";
import { UsageChips } from "./usage/usage-chips.tsx";
import { UsageControls } from "./usage/usage-controls.tsx";
import { fittingBin, type Span, spanOf } from "./usage/usage-period.ts";
import { belongs, chartQuery } from "./usage/usage-query.ts";
import { UsageRecords } from "./usage/usage-records.tsx";
import { periodName, queryOf, type View, viewOf } from "./usage/usage-view.ts";

/** The chart is fetched again at most this often. */
const FRESH_MS = 4000;

export function UsagePage({ query, setQuery }: PageProps) {
  const { t, client, language } = useFrame();
  const view = useMemo(() => viewOf(query), [query]);
  const now = useTime(30_000);
  const span = useSpan(view, now);
  const bin = fittingBin(span, view.bin);
  const asked = chartQuery(view, span, bin).toString();
  const fresh = useFresh(view, span);
  const { value, failure, busy, again } = useAnswer(
    (signal) => client.get("/api/usage", new URLSearchParams(asked), signal),
    [asked, fresh],
  );
  const onView = (next: View) => setQuery(queryOf(next));
  const close = () => {
    // Back to where one was in the list, if the row is still in sight.
    document.querySelector<HTMLElement>(".records tr[data-open='true'] button")?.focus();
    onView({ ...view, record: null });
  };
  const bar = useMemo(() => barOf(view, span, bin, value, language), [view, span, bin, value, language]);
  return (
    <div class="usage" data-open={view.record !== null}>
      <div class="usage-main">
        <h1>{t("usage.title")}</h1>
        <UsageControls view={view} span={span} bin={bin} now={now} onView={onView} />
        <UsageChips view={view} bar={bar?.words ?? null} onView={onView} />
        {failure === null ? null : (
          <p class="notice" role="alert">
            {t("frame.failed", { why: failure })}{" "}
            <button type="button" class="plain" onClick={again}>
              {t("frame.again")}
            </button>
          </p>
        )}
        {value === null ? (
          busy && <p class="panel empty usage-waiting">{t("frame.loading")}</p>
        ) : (
          <div aria-busy={busy}>
            <UsageChartPanel chart={value} view={view} onView={onView} />
          </div>
        )}
        <UsageRecords view={view} span={bar?.span ?? span} onView={onView} />
      </div>
      {view.record === null ? null : <RecordPanel id={view.record} onClose={close} />}
    </div>
  );
}

/** The same object until its ends move, which at midnight they do. */
function useSpan({ period }: View, now: number): Span {
  const { since, until } = spanOf(period, now);
  return useMemo(() => ({ since, until }), [periodName(period), since, until]);
}

/** Another number whenever something came that belongs to the chart. */
function useFresh({ filters }: View, span: Span): number {
  const { live } = useFrame();
  const [round, setRound] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    const { end: _, ...chartFilters } = filters;
    const stop = live.onRecord((record) => {
      if (timer !== null || !belongs(record, chartFilters, span)) return;
      timer = setTimeout(() => {
        timer = null;
        setRound((before) => before + 1);
      }, FRESH_MS);
    });
    return () => {
      stop();
      if (timer !== null) clearTimeout(timer);
    };
  }, [live, filters, span]);
  return round;
}
