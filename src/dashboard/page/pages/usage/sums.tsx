import { useMemo } from "preact/hooks";
import { dollars, duration, exact } from "../../../../core/units.ts";
import { percent, short } from "../../../../usage/reports/format.ts";
import type { UsageChart, UsageRow, UsageSums } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import { nameInWords } from "../../components/chart-layers.ts";
import { wholeInput } from "../../components/compared.ts";
import { type Figure, Figures } from "../../components/panel.tsx";
import { type Column, column, numberColumn, Table } from "../../components/table.tsx";
import { Text } from "../../components/text.tsx";
import { joined, orDash } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { datesOf } from "./period.ts";
import { type Change, hrefTo, type View } from "./view.ts";
import { changeInWords, costOfSums, errorRate } from "./words.ts";

interface SumsProps {
  readonly chart: UsageChart;
  /** Of the period before; null: there is nothing to compare with. */
  readonly before: UsageChart | null;
  readonly view: View;
  readonly onChange: (change: Change) => void;
}

/** As many names are listed at first. */
const FIRST = 10;

/** What the period comes to, bar by bar and name by name. */
export function Sums({ chart, before, view, onChange }: SumsProps) {
  const { t } = useFrame();
  // While something else is asked for, what is shown is what was: not the old numbers under new names.
  const { by, bin, bins } = chart;
  const { measure } = view;
  const columns = useMemo(() => columnsFor(chart, before, t), [chart, before, t]);
  const dates = datesOf({ since: chart.since ?? 0, until: chart.until ?? 0 });
  const label = t("usage.chart.label", {
    measure: t(`usage.show.${measure}`),
    bin: t(`usage.bin.${bin}`),
    by: t(`usage.by.${by}`),
    ...dates,
  });
  const choose = (bar: number) => {
    const since = bins[bar] ?? 0;
    const until = bins[bar + 1] ?? chart.bins_end ?? since;
    onChange({ bar: view.bar?.since === since ? null : `${since}..${until}` });
  };
  const chosen = view.bar === null ? -1 : bins.indexOf(view.bar.since);
  return (
    <section class="panel" aria-label={label}>
      <div class="body stack">
        <Figures figures={figuresOf(chart.total, before?.total ?? null, t)} />
        {chart.total.requests === 0 ? (
          <p class="empty">{t("usage.chart.empty")}</p>
        ) : (
          <Chart
            label={label}
            chart={chart}
            measure={measure}
            chosen={chosen === -1 ? null : chosen}
            onChoose={choose}
          />
        )}
        <Notes chart={chart} />
      </div>
      {chart.rows.length === 0 ? null : (
        <Table
          // Other names are folded again.
          key={by}
          caption={t("usage.table", { by: t(`usage.by.${by}`) })}
          columns={columns}
          rows={chart.rows}
          first={FIRST}
          keyOf={({ name }) => name ?? ""}
          sort={view.sort}
          onSort={(sort) => onChange({ sort })}
          hrefOf={({ name }) => hrefTo(view, { [by]: name ?? "" })}
        />
      )}
    </section>
  );
}

/** What the sums leave out. */
function Notes({ chart }: { readonly chart: UsageChart }) {
  const { t } = useFrame();
  const models = chart.unpriced.map(({ model }) => model || t("usage.nameless.model"));
  const listed = chart.rows.length;
  const names = chart.series.length + (chart.others?.names ?? 0);
  return (
    <div class="muted small">
      {listed === names ? null : <p>{t("usage.first", { n: exact(listed), total: exact(names) })}</p>}
      {models.length === 0 ? null : (
        <p>
          <Text id="usage.unpriced" values={{ models: models.join(", ") }} />
        </p>
      )}
      {chart.total.unmetered === 0 ? null : <p>{t("usage.unmetered", { n: chart.total.unmetered })}</p>}
      <p>{t("usage.chart.zone", { zone: chart.zone })}</p>
    </div>
  );
}

interface Quantity {
  /** null: unknown, or there is none. */
  readonly of: (sums: UsageSums) => number | null;
  readonly text: (value: number, sums: UsageSums) => string;
}

const QUANTITIES = {
  cost: { of: (sums) => sums.cost_microdollars, text: (_, sums) => costOfSums(sums) },
  billed: { of: (sums) => sums.billed_microdollars, text: (value) => dollars(value) },
  requests: { of: (sums) => sums.requests, text: exact },
  refused: { of: (sums) => sums.refused || null, text: exact },
  errors: { of: errorRate, text: percent },
  tokens: { of: (sums) => sums.tokens, text: short },
  input: { of: wholeInput, text: short },
  cache: { of: (sums) => sums.cache_share, text: percent },
  output: { of: (sums) => sums.output_tokens, text: short },
  p50: { of: (sums) => sums.first_byte_p50_ms, text: duration },
  p95: { of: (sums) => sums.first_byte_p95_ms, text: duration },
} as const satisfies Readonly<Record<string, Quantity>>;

function inWords({ of, text }: Quantity, sums: UsageSums): string {
  return orDash(of(sums), (value) => text(value, sums));
}

const FIGURES = ["cost", "requests", "errors", "tokens", "cache", "p50"] as const;

/** What the period comes to, beside the one before. */
function figuresOf(total: UsageSums, before: UsageSums | null, t: Translate): readonly Figure[] {
  return FIGURES.map((id) => {
    const quantity: Quantity = QUANTITIES[id];
    const figure = { name: t(`usage.sum.${id}`), value: inWords(quantity, total) };
    if (before === null) return { ...figure, note: "" };
    const was = t("usage.before", { text: inWords(quantity, before) });
    // A percentage of a percentage would be read as its change in points.
    const isShare = quantity.text === percent;
    const change = isShare ? null : changeInWords(quantity.of(total) ?? 0, quantity.of(before) ?? 0);
    return { ...figure, note: joined([change, was], t) };
  });
}

function columnsFor(chart: UsageChart, before: UsageChart | null, t: Translate): readonly Column<UsageRow>[] {
  const { by, first_byte_exact } = chart;
  const costs = new Map(before?.rows.map(({ name, cost_microdollars: cost }) => [name, cost]));
  const costBefore = ({ name }: UsageRow) => costs.get(name) ?? 0;
  const number = (id: keyof typeof QUANTITIES, about = "") =>
    numberColumn<UsageRow>(t(`usage.sum.${id}`), (row) => `${about}${inWords(QUANTITIES[id], row)}`, {
      id,
      sortBy: QUANTITIES[id].of,
    });
  const about = first_byte_exact ? "" : "≈ ";
  const name = ({ name }: UsageRow) => (
    <span class={name === null ? "usage-name muted" : "usage-name"}>{nameInWords(name, by, t)}</span>
  );
  const change = (row: UsageRow) => changeInWords(row.cost_microdollars, costBefore(row)) ?? "–";
  return [
    column(t(`usage.by.${by}`), name, { id: "name", sortBy: ({ name }) => name }),
    number("cost"),
    numberColumn(t("usage.sum.change"), change, {
      id: "change",
      sortBy: (row) => row.cost_microdollars - costBefore(row),
    }),
    ...(["billed", "requests", "refused", "errors", "input", "cache", "output"] as const).map((id) =>
      number(id),
    ),
    number("p50", about),
    number("p95", about),
  ];
}
