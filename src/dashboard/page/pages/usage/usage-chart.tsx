import { useMemo, useRef, useState } from "preact/hooks";
import { costInWords, dollars, duration, exact } from "../../../../core/units.ts";
import { percent, short } from "../../../../usage/reports/format.ts";
import type { UsageChart, UsageRow, UsageSums } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import { framed, spread } from "../../components/chart-calendar.ts";
import {
  addedUnknown,
  type Colours,
  coloursFor,
  type Layer,
  layersOf,
  OTHER_COLOUR,
  sum,
} from "../../components/chart-stack.ts";
import { Swatch } from "../../components/chart-swatch.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { amountIn, binWords, nameInWords, ownZone, valuesIn } from "./usage-labels.ts";
import { UsageNumbers } from "./usage-numbers.tsx";
import { datesOf, type Span } from "./usage-period.ts";
import { DIMENSIONS, type Dimension, type View, withBar, withFilter } from "./usage-view.ts";

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
  const { bins, layers, colours, unknown } = useStack(chart, view);
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
            unknown={unknown}
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
          unknown={unknown}
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
      ...(measure === "money" ? { unknown: spread(series.unknown_cost, frame) } : {}),
    }));
    const names = lines.toSorted((a, b) => sum(b.values) - sum(a.values)).map(({ name }) => name);
    before.current = coloursFor(names, before.current);
    const layers = layersOf(lines, before.current);
    const colours = new Map(
      layers.filter(({ folded }) => folded.length === 0).map(({ name, colour }) => [name, colour]),
    );
    return { bins: frame.bins, layers, colours, unknown: addedUnknown(lines) };
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

/** What the sums leave out. */
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

/** What the period comes to, in a few large numbers. */
function UsageFigures({ total }: { readonly total: UsageSums }) {
  const { t } = useFrame();
  const { billed_microdollars: billed, first_byte_p50_ms: p50, first_byte_p95_ms: p95 } = total;
  return (
    <dl class="figures">
      <div>
        <dt>{t("usage.figure.cost")}</dt>
        <dd>
          {costOf(total)}{" "}
          {billed === null ? null : <small>{t("usage.figure.billed", { money: dollars(billed) })}</small>}
        </dd>
      </div>
      <div>
        <dt>{t("usage.figure.tokens")}</dt>
        <dd title={exact(total.tokens)}>{short(total.tokens)}</dd>
      </div>
      <div>
        <dt>{t("usage.figure.requests")}</dt>
        <dd>
          {exact(total.requests)}{" "}
          {total.refused === 0 ? null : (
            <small>{t("usage.figure.refused", { n: exact(total.refused) })}</small>
          )}
        </dd>
      </div>
      <div>
        <dt>{t("usage.figure.cache")}</dt>
        <dd>{total.cache_share === null ? "–" : percent(total.cache_share)}</dd>
      </div>
      <div>
        <dt>{t("usage.figure.first-byte")}</dt>
        <dd>
          {p50 === null ? "–" : duration(p50)} <small>{p95 === null ? null : duration(p95)}</small>
        </dd>
      </div>
    </dl>
  );
}

interface TableProps {
  readonly chart: UsageChart;
  readonly by: Dimension;
  /** The colour of each name that has one in the chart. */
  readonly colours: ReadonlyMap<string | null, number>;
  readonly onName: (name: string) => void;
}

/** More rows than this are folded. */
const FIRST = 10;

/** The chart's legend and its numbers: one line for each name, and all of them together. */
function UsageTable({ chart, by, colours, onName }: TableProps) {
  const { t } = useFrame();
  const [all, setAll] = useState(false);
  const rows = all ? chart.rows : chart.rows.slice(0, FIRST);
  const more = chart.rows.length - FIRST;
  return (
    <>
      <div class="table-wrap">
        <table class="data usage-table">
          <caption class="visually-hidden">{t("usage.table", { by: t(`usage.by.${by}`) })}</caption>
          <thead>
            <tr>
              <th scope="col">{t(`usage.by.${by}`)}</th>
              <Heads exactly={chart.first_byte_exact} />
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name ?? ""}>
                <th scope="row">
                  <NameButton row={row} by={by} colours={colours} onName={onName} />
                </th>
                <Cells sums={row} />
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{t("usage.table.total")}</th>
              <Cells sums={chart.total} />
            </tr>
          </tfoot>
        </table>
      </div>
      {more <= 0 ? null : (
        <button type="button" class="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? t("usage.table.fewer") : t("usage.table.more", { n: more })}
        </button>
      )}
    </>
  );
}

function NameButton({ row, by, colours, onName }: Omit<TableProps, "chart"> & { readonly row: UsageRow }) {
  const { t } = useFrame();
  const name = nameInWords(row.name, by, t);
  return (
    <button
      type="button"
      class="name"
      title={t("usage.filter.only", { name })}
      onClick={() => onName(row.name ?? "")}
    >
      <Swatch paint={`--series-${colours.get(row.name) ?? OTHER_COLOUR}`} />
      <span data-nameless={row.name === null}>{name}</span>
    </button>
  );
}

function Heads({ exactly }: { readonly exactly: boolean }) {
  const { t } = useFrame();
  const about = exactly ? undefined : t("usage.table.about");
  return (
    <>
      <th scope="col" class="num">
        {t("usage.table.cost")}
      </th>
      <th scope="col" class="num" title={t("usage.table.billed.title")}>
        {t("usage.table.billed")}
      </th>
      <th scope="col" class="num">
        {t("usage.table.requests")}
      </th>
      <th scope="col" class="num">
        {t("usage.table.refused")}
      </th>
      <th scope="col" class="num">
        {t("usage.table.failed")}
      </th>
      <th scope="col" class="num">
        {t("usage.table.input")}
      </th>
      <th scope="col" class="num" title={t("usage.table.cache.title")}>
        {t("usage.table.cache")}
      </th>
      <th scope="col" class="num">
        {t("usage.table.output")}
      </th>
      <th scope="col" class="num" title={about}>
        {t("usage.table.p50")}
      </th>
      <th scope="col" class="num" title={about}>
        {t("usage.table.p95")}
      </th>
    </>
  );
}

function Cells({ sums }: { readonly sums: UsageSums }) {
  const input = sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens;
  const cells: readonly (readonly [text: string, title?: string])[] = [
    [costOf(sums)],
    [sums.billed_microdollars === null ? "–" : dollars(sums.billed_microdollars)],
    [exact(sums.requests)],
    [someOf(sums.refused)],
    [someOf(sums.failed + sums.interrupted)],
    [short(input), exact(input)],
    [sums.cache_share === null ? "–" : percent(sums.cache_share)],
    [short(sums.output_tokens), exact(sums.output_tokens)],
    [timeOf(sums.first_byte_p50_ms)],
    [timeOf(sums.first_byte_p95_ms)],
  ];
  return (
    <>
      {cells.map(([text, title], at) => (
        // The columns are fixed: a place is a name here.
        <td key={COLUMNS[at]} class="num" title={title}>
          {text}
        </td>
      ))}
    </>
  );
}

const COLUMNS = ["cost", "billed", "requests", "refused", "failed", "input", "cache", "output", "p50", "p95"];

function someOf(count: number): string {
  return count === 0 ? "–" : exact(count);
}

function timeOf(ms: number | null): string {
  return ms === null ? "–" : duration(ms);
}

function costOf({ cost_microdollars: cost, unpriced, unmetered }: UsageSums): string {
  return costInWords(cost, unpriced + unmetered);
}
