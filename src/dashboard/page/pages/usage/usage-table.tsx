import { useState } from "preact/hooks";
import { dollars, duration, exact, percent, short } from "../../../../usage/reports/format.ts";
import type { UsageChart, UsageRow, UsageSums } from "../../../api.ts";
import { OTHER_COLOUR } from "../../components/chart-stack.ts";
import { Swatch } from "../../components/chart-swatch.tsx";
import { useFrame } from "../../frame.tsx";
import { nameInWords } from "./usage-labels.ts";
import type { Dimension } from "./usage-view.ts";

interface TableProps {
  readonly chart: UsageChart;
  readonly by: Dimension;
  /** The colour of each name that has one in the chart. */
  readonly colours: ReadonlyMap<string | null, number>;
  readonly onName: (name: string) => void;
}

/** Beyond so many, the rest is unfolded when asked for. */
const FIRST = 10;

/** The chart's legend and its numbers: one line for each name, and all of them together. */
export function UsageTable({ chart, by, colours, onName }: TableProps) {
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

/** Nothing of it has a price: then its sum is no zero. */
function costOf(sums: UsageSums): string {
  const unknown = sums.unpriced + sums.unmetered;
  if (sums.cost_microdollars === 0 && unknown > 0) return "?";
  return `${dollars(sums.cost_microdollars)}${unknown > 0 ? " + ?" : ""}`;
}
