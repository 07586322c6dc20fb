import { useState } from "preact/hooks";
import { type Layer, tops } from "../../components/chart-stack.ts";
import { TableWrap } from "../../components/table-wrap.tsx";
import { useFrame } from "../../frame.tsx";

interface NumbersProps {
  readonly layers: readonly Layer[];
  /** What each bar lacks, see Line. Default nothing. */
  readonly unknown?: readonly number[];
  readonly count: number;
  readonly title: (bar: number) => string;
  readonly amount: (value: number, unknown?: number) => string;
  readonly nameOf: (layer: Layer) => string;
}

/** Every bar as a line of numbers: made only when it is opened, since there may be hundreds. */
export function UsageNumbers(props: NumbersProps) {
  const { t } = useFrame();
  const [open, setOpen] = useState(false);
  return (
    <details class="usage-numbers" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("usage.chart.numbers")}</summary>
      {open ? <Numbers {...props} /> : null}
    </details>
  );
}

function Numbers({ layers, unknown = [], count, title, amount, nameOf }: NumbersProps) {
  const { t } = useFrame();
  const sums = tops(layers).at(-1) ?? [];
  const bars = Array.from({ length: count }, (_, at) => at).filter(
    (bar) => (sums[bar] ?? 0) + (unknown[bar] ?? 0) > 0,
  );
  return (
    <TableWrap>
      <table class="data">
        <thead>
          <tr>
            <th scope="col">{t("usage.period")}</th>
            {layers.map((layer) => (
              <th key={`${layer.colour} ${layer.name}`} scope="col" class="num">
                {nameOf(layer)}
              </th>
            ))}
            <th scope="col" class="num">
              {t("usage.chart.total")}
            </th>
          </tr>
        </thead>
        <tbody>
          {bars.map((bar) => (
            <tr key={bar}>
              <th scope="row">{title(bar)}</th>
              {layers.map((layer) => (
                <td key={`${layer.colour} ${layer.name}`} class="num">
                  {hasNone(layer, bar) ? "–" : amount(layer.values[bar] ?? 0, layer.unknown?.[bar])}
                </td>
              ))}
              <td class="num">{amount(sums[bar] ?? 0, unknown[bar])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}

function hasNone({ values, unknown }: Layer, bar: number): boolean {
  return (values[bar] ?? 0) + (unknown?.[bar] ?? 0) === 0;
}
