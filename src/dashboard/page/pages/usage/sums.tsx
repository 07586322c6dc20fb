import { useMemo, useState } from "preact/hooks";
import { costInWords, dollars, duration, exact } from "../../../../core/units.ts";
import { percent, short } from "../../../../usage/reports/format.ts";
import type { UsageChart, UsageRow, UsageSums } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import { type Line, layersOf } from "../../components/chart-layers.ts";
import { sortRows } from "../../components/sort-rows.ts";
import { Swatch } from "../../components/swatch.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { datesOf } from "./period.ts";
import { changed, hrefTo, type View, withFilter } from "./view.ts";
import { amountIn, changeInWords, errorRate, linesOf, nameInWords } from "./words.ts";

interface SumsProps {
  readonly chart: UsageChart;
  /** Of the period before; null: there is nothing to compare with. */
  readonly before: UsageChart | null;
  readonly view: View;
  readonly onView: (view: View) => void;
}

/** What the period comes to, bar by bar and name by name. */
export function Sums({ chart, before, view, onView }: SumsProps) {
  const { t } = useFrame();
  // While something else is asked for, what is shown is what was: not the old numbers under new names.
  const { by, bin, bins, zone } = chart;
  const { measure } = view;
  const lines = useMemo(() => linesOf(chart, measure), [chart, measure]);
  const dates = datesOf({ since: chart.since ?? 0, until: chart.until ?? 0 });
  const label = t("usage.chart.label", {
    measure: t(`usage.measure.${measure}`),
    bin: t(`usage.bin.${bin}`),
    by: t(`usage.by.${by}`),
    ...dates,
  });
  const choose = (bar: number) => {
    const since = bins[bar] ?? 0;
    const chosen = { since, until: bins[bar + 1] ?? chart.bins_end ?? since };
    onView(changed(view, { bar: view.bar?.since === since ? null : chosen }));
  };
  const chosen = view.bar === null ? -1 : bins.indexOf(view.bar.since);
  return (
    <section class="panel" aria-label={label}>
      <div class="body stack">
        <Figures total={chart.total} before={before?.total ?? null} />
        {chart.total.requests === 0 ? (
          <p class="empty usage-waiting">{t("usage.chart.empty")}</p>
        ) : (
          <Chart
            label={label}
            bins={bins}
            bin={bin}
            zone={zone}
            lines={lines}
            nameOf={(name) => nameInWords(name, by, t)}
            amount={amountIn(measure)}
            chosen={chosen === -1 ? null : chosen}
            onChoose={choose}
          />
        )}
        <Notes chart={chart} />
      </div>
      {chart.rows.length === 0 ? null : (
        <ByName chart={chart} before={before} view={view} lines={lines} onView={onView} />
      )}
    </section>
  );
}

/** What the sums leave out. */
function Notes({ chart }: { readonly chart: UsageChart }) {
  const { t } = useFrame();
  const models = chart.unpriced.map(({ model }) => model || t("usage.nameless.model"));
  return (
    <div class="muted small">
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

function ownZone(): string {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone;
}

interface Figure {
  readonly id: "cost" | "requests" | "errors" | "tokens" | "cache" | "first-byte";
  /** null: unknown, or there is none. */
  readonly value: (sums: UsageSums) => number | null;
  readonly text: (value: number, sums: UsageSums) => string;
}

const FIGURES: readonly Figure[] = [
  { id: "cost", value: (sums) => sums.cost_microdollars, text: (_, sums) => costOf(sums) },
  { id: "requests", value: (sums) => sums.requests, text: exact },
  { id: "errors", value: errorRate, text: percent },
  { id: "tokens", value: (sums) => sums.tokens, text: short },
  { id: "cache", value: (sums) => sums.cache_share, text: percent },
  { id: "first-byte", value: (sums) => sums.first_byte_p50_ms, text: duration },
];

/** What the period comes to, beside the one before. */
function Figures({ total, before }: { readonly total: UsageSums; readonly before: UsageSums | null }) {
  const { t } = useFrame();
  const said = (figure: Figure, sums: UsageSums) => {
    const value = figure.value(sums);
    return value === null ? "–" : figure.text(value, sums);
  };
  return (
    <dl class="figures versus">
      {FIGURES.map((figure) => (
        <div key={figure.id}>
          <dt>{t(`usage.figure.${figure.id}`)}</dt>
          <dd>
            {said(figure, total)}{" "}
            <small>{before === null ? null : versus(figure, total, said(figure, before), before, t)}</small>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** +12%, before $3.20 */
function versus(figure: Figure, total: UsageSums, text: string, before: UsageSums, t: Translate): string {
  // A percentage of a percentage would be read as its change in points.
  const isShare = figure.text === percent;
  const change = isShare ? null : changeInWords(figure.value(total) ?? 0, figure.value(before) ?? 0);
  const was = t("usage.before", { text });
  return change === null ? was : `${change}${t("frame.comma")}${was}`;
}

/** More rows than this are folded. */
const FIRST = 10;

/** The chart's legend and its numbers: one line for each name. */
function ByName({ chart, before, view, lines, onView }: SumsProps & { readonly lines: readonly Line[] }) {
  const { t } = useFrame();
  const [all, setAll] = useState(false);
  const { by } = chart;
  const columns = useMemo(() => columnsFor(chart, before, lines, t), [chart, before, lines, t]);
  const sorted = sortRows(chart.rows, columns, view.sort);
  const more = sorted.length - FIRST;
  return (
    <>
      <Table
        caption={t("usage.table", { by: t(`usage.by.${by}`) })}
        columns={columns}
        rows={all ? sorted : sorted.slice(0, FIRST)}
        keyOf={({ name }) => name ?? ""}
        sort={view.sort}
        onSort={(sort) => onView(changed(view, { sort }))}
        hrefOf={({ name }) => hrefTo(withFilter(view, by, name ?? ""))}
      />
      {more <= 0 ? null : (
        <button type="button" class="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? t("usage.table.fewer") : t("usage.table.more", { n: more })}
        </button>
      )}
    </>
  );
}

function columnsFor(
  { by, first_byte_exact }: UsageChart,
  before: UsageChart | null,
  lines: readonly Line[],
  t: Translate,
): readonly Column<UsageRow>[] {
  const paints = new Map(layersOf(lines).map(({ name, paint, folded }) => [folded ? "" : name, paint]));
  const costs = new Map(before?.rows.map(({ name, cost_microdollars: cost }) => [name, cost]));
  const number = (
    id: "cost" | "billed" | "requests" | "refused" | "errors" | "input" | "cache" | "output" | "p50" | "p95",
    numberOf: (row: UsageRow) => number | null,
    text: (value: number, row: UsageRow) => string,
  ): Column<UsageRow> => ({
    id,
    title: t(`usage.table.${id}`),
    isNumber: true,
    sortBy: numberOf,
    cell: (row) => {
      const value = numberOf(row);
      return value === null ? "–" : text(value, row);
    },
  });
  const time = (ms: number) => `${first_byte_exact ? "" : "≈ "}${duration(ms)}`;
  return [
    {
      id: "name",
      title: t(`usage.by.${by}`),
      sortBy: ({ name }) => name,
      cell: ({ name }) => (
        <span class="usage-name" data-nameless={name === null}>
          <Swatch paint={paints.get(name) ?? OTHER} /> {nameInWords(name, by, t)}
        </span>
      ),
    },
    number(
      "cost",
      (row) => row.cost_microdollars,
      (_, row) => costOf(row),
    ),
    {
      id: "change",
      title: t("usage.table.change"),
      isNumber: true,
      sortBy: ({ name, cost_microdollars: cost }) => cost - (costs.get(name) ?? 0),
      cell: ({ name, cost_microdollars: cost }) => changeInWords(cost, costs.get(name) ?? 0) ?? "–",
    },
    number(
      "billed",
      (row) => row.billed_microdollars,
      (value) => dollars(value),
    ),
    number("requests", (row) => row.requests, exact),
    number("refused", (row) => row.refused || null, exact),
    number("errors", (row) => errorRate(row) || null, percent),
    number("input", inputOf, short),
    number("cache", (row) => row.cache_share, percent),
    number("output", (row) => row.output_tokens, short),
    number("p50", (row) => row.first_byte_p50_ms, time),
    number("p95", (row) => row.first_byte_p95_ms, time),
  ];
}

/** What the chart has folded together. */
const OTHER = "--series-8";

function inputOf({ input_tokens, cache_read_tokens, cache_write_tokens }: UsageSums): number {
  return input_tokens + cache_read_tokens + cache_write_tokens;
}

function costOf({ cost_microdollars: cost, unpriced, unmetered }: UsageSums): string {
  return costInWords(cost, unpriced + unmetered);
}
