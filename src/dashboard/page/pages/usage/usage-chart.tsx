import { useMemo, useRef } from "preact/hooks";
import type { UsageChart } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import { framed, spread } from "../../components/chart-calendar.ts";
import { type Colours, coloursFor, type Layer, layersOf, sum } from "../../components/chart-stack.ts";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { UsageFigures } from "./usage-figures.tsx";
import { amountIn, binWords, nameInWords, ownZone, valuesIn } from "./usage-labels.ts";
import { UsageNumbers } from "./usage-numbers.tsx";
import { datesOf, type Span } from "./usage-period.ts";
import { UsageTable } from "./usage-table.tsx";
import { DIMENSIONS, type View, withBar, withFilter } from "./usage-view.ts";

interface UsageChartProps {
  readonly chart: UsageChart;
  readonly view: View;
  readonly onView: (view: View) => void;
}

/** The bars, what they are made of, and what they come to. */
export function UsageChartPanel({ chart, view, onView }: UsageChartProps) {
  const { t, language } = useFrame();
  const { measure } = view;
  // While something else is asked for, what is shown is what was: not the old numbers under new names.
  const { by, bin } = chart;
  const span = spanOfChart(chart);
  const { bins, layers, colours } = useStack(chart, view);
  const words = useMemo(() => binWords(bins, bin, language, chart.zone), [bins, bin, language, chart.zone]);
  const chosen = view.at === null ? -1 : bins.indexOf(view.at);
  const nameOf = (layer: Layer) =>
    layer.folded.length > 0 ? t("usage.other", { n: layer.folded.length }) : nameInWords(layer.name, by, t);
  const { from, to } = datesOf(span);
  const label = t("usage.chart.label", {
    measure: t(`usage.measure.${measure}`),
    bin: t(`usage.bin.${bin}`),
    by: t(`usage.by.${by}`),
    from,
    to,
  });
  const amount = amountIn(measure);
  return (
    <section class="panel" aria-label={label}>
      <div class="body stack">
        <UsageFigures total={chart.total} />
        {layers.length === 0 ? (
          <EmptyChart view={view} />
        ) : (
          <Chart
            count={bins.length}
            layers={layers}
            chosen={chosen === -1 ? null : chosen}
            label={`${label}. ${t("usage.chart.hint")}`}
            tick={words.tick}
            title={words.title}
            amount={amount}
            nameOf={nameOf}
            total={t("usage.chart.total")}
            onChoose={(bar) => onView(withBar(view, bins[bar] ?? 0))}
          />
        )}
        <Notes chart={chart} />
      </div>
      {chart.rows.length === 0 ? null : (
        <UsageTable
          chart={chart}
          by={by}
          colours={colours}
          onName={(name) => onView(withFilter(view, by, name))}
        />
      )}
      {layers.length === 0 ? null : (
        <UsageNumbers
          layers={layers}
          count={bins.length}
          title={words.title}
          amount={amount}
          nameOf={nameOf}
        />
      )}
    </section>
  );
}

/** A name keeps its colour while filters change, for as long as the page is open. */
function useStack(chart: UsageChart, { measure }: View) {
  const before = useRef<Colours>(new Map());
  return useMemo(() => {
    const given = { bins: chart.bins, end: chart.bins_end };
    const frame = framed(given, spanOfChart(chart), chart.bin, chart.zone === ownZone());
    const lines = chart.series.map((series) => ({
      name: series.name,
      values: spread(valuesIn(series, measure), frame),
    }));
    const names = lines.toSorted((a, b) => sum(b.values) - sum(a.values)).map(({ name }) => name);
    before.current = coloursFor(names, before.current);
    const layers = layersOf(lines, before.current);
    const colours = new Map(
      layers.filter(({ folded }) => folded.length === 0).map(({ name, colour }) => [name, colour]),
    );
    return { bins: frame.bins, layers, colours };
  }, [chart, measure]);
}

/** As it was asked for; this page always names both ends. */
function spanOfChart({ since, until, bins, bins_end }: UsageChart): Span {
  return { since: since ?? bins[0] ?? 0, until: until ?? bins_end ?? 0 };
}

function EmptyChart({ view }: Pick<UsageChartProps, "view">) {
  const isFiltered = DIMENSIONS.some((name) => view.filters[name] !== undefined);
  return (
    <p class="empty">
      <Text id={isFiltered ? "usage.chart.empty.filtered" : "usage.chart.empty"} />
    </p>
  );
}

/** What the sums do not tell. */
function Notes({ chart }: { readonly chart: UsageChart }) {
  const { t } = useFrame();
  const models = chart.unpriced.map(({ model }) => model || t("usage.nameless.model"));
  return (
    <div class="usage-notes muted small">
      {models.length === 0 ? null : (
        <p>
          <Text id="usage.unpriced" values={{ models: models.join(", ") }} />
        </p>
      )}
      {chart.total.unmetered === 0 ? null : <p>{t("usage.unmetered", { n: chart.total.unmetered })}</p>}
      {chart.zone === ownZone() ? null : <p>{t("usage.chart.zone", { zone: chart.zone })}</p>}
    </div>
  );
}
