import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { UsageChart } from "../../api.ts";
import { escaped } from "../escape-control-chars.ts";
import { useFrame } from "../frame.tsx";
import {
  added,
  amountIn,
  type BarNames,
  barNames,
  type Layer,
  type Line,
  layersOf,
  linesOf,
  type Measure,
  nameInWords,
  sum,
  topsOf,
} from "./chart-layers.ts";
import { Fold } from "./panel.tsx";
import { column, numberColumn, Table } from "./table.tsx";

interface ChartProps {
  /** What it shows. */
  readonly label: string;
  readonly chart: UsageChart;
  readonly measure: Measure;
  /** The number of a bar; null: none is chosen. */
  readonly chosen?: number | null;
  readonly onChoose?: (bar: number) => void;
}

interface Drawn {
  readonly names: BarNames;
  readonly layers: readonly (Layer & { readonly title: string })[];
  readonly total: Line & { readonly title: string };
  /** `unknown`: how many requests the value lacks. */
  readonly amount: (value: number, unknown?: number) => string;
}

/** Stacked bars, and the same as a table for the keyboard and for who does not see them. */
export function Chart({ label, chart, measure, chosen = null, onChoose }: ChartProps) {
  const { t } = useFrame();
  const drawn = useMemo((): Drawn => {
    const { bins, bin, zone, by } = chart;
    const layers = layersOf(linesOf(chart, measure));
    return {
      names: barNames(bins, bin, zone),
      layers: layers.map((layer) => {
        const { name, folded } = layer;
        const title = folded === undefined ? nameInWords(name, by, t) : t("chart.others", { n: folded });
        return { ...layer, title };
      }),
      total: { ...added(layers), title: t("chart.total") },
      amount: amountIn(measure),
    };
  }, [chart, measure, t]);
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // A canvas keeps the colors it was drawn with, until the next time that the page is rendered.
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  useLayoutEffect(() => {
    const element = place.current;
    if (element === null) return;
    const bars = chart.bins.map((_, bar) => bar);
    // The top layer is drawn first. Each following one covers it except for its end.
    const tops = topsOf(drawn.layers).toReversed();
    const made = new uPlot(optionsFor(drawn, bars.length, chosen, element), [bars, ...tops], element);
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height: HEIGHT_PX });
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [drawn, chosen, isDark]);
  const { layers, total, names, amount } = drawn;
  const isSome = ({ values, unknown }: Line, bar: number) => (values[bar] ?? 0) + (unknown[bar] ?? 0) > 0;
  const numbers = (line: Drawn["total"]) =>
    numberColumn<number>(line.title, (bar) =>
      isSome(line, bar) ? amount(line.values[bar] ?? 0, line.unknown[bar]) : "–",
    );
  const nameOf = (bar: number) =>
    onChoose === undefined ? (
      names.title(bar)
    ) : (
      <button type="button" class="sort" onClick={() => onChoose(bar)}>
        {names.title(bar)}
      </button>
    );
  return (
    <>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the table below has a button for each bar */}
      <div
        class="chart"
        role="img"
        aria-label={label}
        data-choosable={onChoose !== undefined}
        ref={place}
        onClick={({ target, offsetX }) => {
          if (target === plot.current?.over) onChoose?.(plot.current.posToIdx(offsetX));
        }}
      />
      <Fold name="chart-numbers muted small" title={t("chart.numbers")}>
        {() => (
          <Table
            caption={label}
            rows={chart.bins.map((_, bar) => bar).filter((bar) => isSome(total, bar))}
            keyOf={String}
            columns={[column(t("word.time"), nameOf), ...[...layers, total].map(numbers)]}
          />
        )}
      </Fold>
    </>
  );
}

const HEIGHT_PX = 240;
/** Room for a label of a bar below the axis, and for the numbers beside it. */
const LABEL_PX = 58;
const SCALE_PX = 62;
/** Thinner bars have no gaps between their parts. */
const MAX_BARS_WITH_GAPS = 200;

/** Bars have equal widths, although months and the days of a clock change differ in length. */
function optionsFor(
  { layers, names, total, amount }: Drawn,
  count: number,
  chosen: number | null,
  element: HTMLElement,
): uPlot.Options {
  const color = (variable: string) => {
    element.style.color = `var(${variable})`;
    const { color } = getComputedStyle(element);
    element.style.color = "";
    return color;
  };
  const paths = uPlot.paths.bars?.({ size: [0.78, 56], align: 0 }) ?? (() => null);
  const chosenColor = color("--accent-soft");
  const axis = { stroke: color("--soft"), font: "12px system-ui, sans-serif", ticks: { show: false } };
  /** In the legend: of the bar under the pointer, otherwise of all. */
  const said = ({ values, unknown, total }: Line, bar: number | null) =>
    bar === null ? amount(total, sum(unknown)) : amount(values[bar] ?? 0, unknown[bar]);
  const drawChosen = ({ ctx, bbox: { left, top, width, height } }: uPlot) => {
    if (chosen === null) return;
    ctx.fillStyle = chosenColor;
    ctx.fillRect(left + (chosen / count) * width, top, width / count, height);
  };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [10, 4, 0, 0],
    cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false } },
    scales: {
      x: { time: false, range: [-0.5, count - 0.5] },
      // Only zeros still have a scale, and zero is its lower end.
      y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.05 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 28,
        gap: 6,
        grid: { show: false },
        space: LABEL_PX,
        incrs: [1, 2, 6, 7, 12, 14, 24, 28, 48, 84, 168],
        values: (_plot, at) => at.map(names.tick),
      },
      {
        ...axis,
        size: SCALE_PX,
        gap: 8,
        grid: { stroke: color("--line"), width: 1 },
        space: 44,
        values: (_plot, values) => values.map((value) => amount(value)),
      },
    ],
    series: [
      {
        label: total.title,
        value: (_plot, _value, _series, bar) =>
          bar === null ? said(total, bar) : `${said(total, bar)} (${names.title(bar)})`,
      },
      ...layers.toReversed().map((layer) => ({
        label: escaped(layer.title),
        value: (_plot: uPlot, _value: number, _series: number, bar: number | null) => said(layer, bar),
        fill: color(layer.paint),
        // A gap between two layers, for people who cannot distinguish their colors.
        stroke: color("--panel"),
        width: count > MAX_BARS_WITH_GAPS ? 0 : 1,
        points: { show: false },
        paths,
      })),
    ],
    legend: { markers: { width: 0 } },
    hooks: { drawClear: [drawChosen] },
  };
}
