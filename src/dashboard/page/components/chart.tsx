import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { UsageChart } from "../../api.ts";
import { useFrame, useResize } from "../frame.tsx";
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
  topsOf,
} from "./chart-layers.ts";
import { Fold, type Pair, Pairs } from "./panel.tsx";
import { column, numberColumn, Table } from "./table.tsx";

interface ChartProps {
  /** What it shows. */
  readonly label: string;
  readonly chart: UsageChart;
  readonly measure: Measure;
  readonly hasLegend?: boolean;
  /** The number of a bar; null: none is chosen. */
  readonly chosen?: number | null;
  readonly onChoose?: (bar: number) => void;
}

/** Stacked bars, and the same as a table for the keyboard and for who does not see them. */
export function Chart({ label, chart, measure, hasLegend = false, chosen = null, onChoose }: ChartProps) {
  const { t } = useFrame();
  const { bins, bin, zone, by } = chart;
  const names = useMemo(() => barNames(bins, bin, zone), [chart]);
  const layers = useMemo(() => layersOf(linesOf(chart, measure)), [chart, measure]);
  const drawn: Drawn = {
    label,
    bins,
    names,
    layers,
    amount: amountIn(measure),
    nameOf: ({ name, folded }) =>
      folded === undefined ? nameInWords(name, by, t) : t("chart.others", { n: folded }),
    chosen,
    onChoose,
  };
  return (
    <>
      <Bars {...drawn} />
      {hasLegend ? <Legend {...drawn} /> : null}
      <Numbers {...drawn} />
    </>
  );
}

interface Drawn {
  readonly label: string;
  /** Where each bar begins, milliseconds UTC. */
  readonly bins: readonly number[];
  readonly names: BarNames;
  readonly layers: readonly Layer[];
  /** `unknown`: how many requests the value lacks. */
  readonly amount: (value: number, unknown?: number) => string;
  readonly nameOf: (layer: Layer) => string;
  readonly chosen: number | null;
  readonly onChoose: ((bar: number) => void) | undefined;
}

function Bars(drawn: Drawn) {
  const { label, bins, chosen, onChoose } = drawn;
  const canvas = useRef<HTMLDivElement>(null);
  const place = useDrawing(canvas, drawn);
  const [pointed, setPointed] = useState<number | null>(null);
  const barAt = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    if (box === undefined || place === null) return null;
    const bar = Math.floor(((event.clientX - box.left - place.left) / place.width) * bins.length);
    return bar >= 0 && bar < bins.length ? bar : null;
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the table below has a button for each bar
    <div
      class="chart"
      role="img"
      aria-label={label}
      data-choosable={onChoose !== undefined}
      onPointerMove={(event) => setPointed(barAt(event))}
      onPointerLeave={() => setPointed(null)}
      onClick={(event) => {
        const bar = barAt(event);
        if (bar !== null) onChoose?.(bar);
      }}
    >
      {place === null ? null : (
        <>
          <Band kind="chosen" bar={chosen} count={bins.length} place={place} />
          <Band kind="pointed" bar={pointed === chosen ? null : pointed} count={bins.length} place={place} />
        </>
      )}
      <div class="chart-canvas" ref={canvas} />
      {pointed === null || place === null ? null : <Bubble {...drawn} bar={pointed} place={place} />}
    </div>
  );
}

/** Where the bars are within the chart, in pixels. */
interface Place {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

interface BandProps {
  readonly kind: "chosen" | "pointed";
  readonly bar: number | null;
  readonly count: number;
  readonly place: Place;
}

/** The ground behind one bar. */
function Band({ kind, bar, count, place }: BandProps) {
  if (bar === null) return null;
  const width = place.width / count;
  const box = { left: place.left + bar * width, top: place.top, width, height: place.height };
  return <div class="chart-band" data-kind={kind} style={box} />;
}

/** The parts of one bar, from top to bottom. */
function Bubble(drawn: Drawn & { readonly bar: number; readonly place: Place }) {
  const { t } = useFrame();
  const { bar, place, bins, layers, names, nameOf, amount } = drawn;
  const parts = layers.filter(({ values }) => (values[bar] ?? 0) > 0).toReversed();
  const middle = place.left + ((bar + 0.5) / bins.length) * place.width;
  const side =
    bar * 2 >= bins.length ? { right: `calc(100% - ${middle - 14}px)` } : { left: `${middle + 14}px` };
  const pair = (name: ComponentChildren, { values, unknown }: Line): Pair => [
    name,
    amount(values[bar] ?? 0, unknown?.[bar]),
  ];
  return (
    <div class="chart-bubble" style={{ ...side, top: `${place.top}px` }}>
      <strong>{names.title(bar)}</strong>
      <Pairs
        pairs={[
          ...parts.map((layer) => pair([<Swatch paint={layer.paint} />, " ", nameOf(layer)], layer)),
          pair(<b>{t("chart.total")}</b>, added(layers)),
        ]}
      />
    </div>
  );
}

function Legend({ layers, nameOf, amount }: Drawn) {
  return (
    <ul class="row small">
      {layers.map((layer) => (
        <li key={layer.paint}>
          <Swatch paint={layer.paint} /> {nameOf(layer)} {amount(layer.total)}
        </li>
      ))}
    </ul>
  );
}

/** A small square of a layer's color: beside its name, never instead of it. */
export function Swatch({ paint }: { readonly paint: string }) {
  return (
    <svg class="swatch" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
      <rect width="10" height="10" rx="2" style={{ fill: `var(${paint})` }} />
    </svg>
  );
}

/** The chart for the keyboard and the ear. */
function Numbers({ label, bins, layers, names, nameOf, amount, onChoose }: Drawn) {
  const { t } = useFrame();
  const all = added(layers);
  const numbers = (title: string, line: Line) =>
    numberColumn<number>(title, (bar) =>
      isSome(line, bar) ? amount(line.values[bar] ?? 0, line.unknown?.[bar]) : "–",
    );
  const time = (bar: number) =>
    onChoose === undefined ? (
      names.title(bar)
    ) : (
      <button type="button" class="sort" onClick={() => onChoose(bar)}>
        {names.title(bar)}
      </button>
    );
  return (
    <Fold name="chart-numbers muted small" title={t("chart.numbers")}>
      {() => (
        <Table
          caption={label}
          rows={bins.map((_, bar) => bar).filter((bar) => isSome(all, bar))}
          keyOf={String}
          columns={[
            column(t("word.time"), time),
            ...layers.map((layer) => numbers(nameOf(layer), layer)),
            numbers(t("chart.total"), all),
          ]}
        />
      )}
    </Fold>
  );
}

function isSome({ values, unknown }: Line, bar: number): boolean {
  return (values[bar] ?? 0) + (unknown?.[bar] ?? 0) > 0;
}

/** Draws again when the data, the theme or the width changes. */
function useDrawing(canvas: { readonly current: HTMLDivElement | null }, drawn: Drawn): Place | null {
  const { layers, names, amount, bins } = drawn;
  const theme = useSystemTheme();
  const [width, setWidth] = useState(0);
  const [place, setPlace] = useState<Place | null>(null);
  useResize(canvas, ({ clientWidth }) => setWidth(Math.floor(clientWidth)));
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null || width === 0) return;
    const onReady = ({ over: { offsetLeft: left, offsetTop: top, offsetWidth, offsetHeight } }: uPlot) =>
      setPlace({ left, top, width: offsetWidth, height: offsetHeight });
    const options = { ...optionsFor(drawn, element), hooks: { ready: [onReady] } };
    const bars = bins.map((_, bar) => bar);
    // The top layer is drawn first. Each following one covers it except for its end.
    const plot = new uPlot(options, [bars, ...topsOf(layers).toReversed()], element);
    return () => plot.destroy();
  }, [canvas, layers, names, amount, width, theme]);
  return place;
}

/** A canvas keeps the colors it was drawn with, so a chart must know when the system's theme changes. */
function useSystemTheme(): boolean {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(dark.matches);
  useEffect(() => {
    const read = () => setDark(dark.matches);
    dark.addEventListener("change", read);
    return () => dark.removeEventListener("change", read);
  }, []);
  return isDark;
}

/** Room for a label of a bar below the axis, and for the numbers beside it. */
const LABEL_PX = 58;
const SCALE_PX = 62;
const FONT = "12px system-ui, sans-serif";
/** Thinner bars have no gaps between their parts. */
const MAX_BARS_WITH_GAPS = 200;

/** Bars have equal widths, although months and the days of a clock change differ in length. */
function optionsFor({ bins, layers, names, amount }: Drawn, element: HTMLElement): uPlot.Options {
  const { clientWidth: width, clientHeight: height } = element;
  const color = (variable: string) => {
    element.style.color = `var(${variable})`;
    return getComputedStyle(element).color;
  };
  const bars = uPlot.paths.bars?.({ size: [0.78, 56], align: 0 });
  return {
    width,
    height,
    padding: [10, 4, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, range: [-0.5, bins.length - 0.5] },
      // Only zeros still have a scale, and zero is its lower end.
      y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.05 : 1] },
    },
    axes: [
      {
        stroke: color("--soft"),
        font: FONT,
        size: 28,
        gap: 6,
        grid: { show: false },
        ticks: { show: false },
        space: LABEL_PX,
        incrs: [1, 2, 6, 7, 12, 14, 24, 28, 48, 84, 168],
        values: (_plot, at) => at.map(names.tick),
      },
      {
        stroke: color("--soft"),
        font: FONT,
        size: SCALE_PX,
        gap: 8,
        grid: { stroke: color("--line"), width: 1 },
        ticks: { show: false },
        space: 44,
        values: (_plot, values) => values.map((value) => amount(value)),
      },
    ],
    series: [
      {},
      ...layers.toReversed().map(({ paint }) => ({
        fill: color(paint),
        // A gap between two layers, for people who cannot distinguish their colors.
        stroke: color("--panel"),
        width: bins.length > MAX_BARS_WITH_GAPS ? 0 : 1,
        points: { show: false },
        ...(bars === undefined ? {} : { paths: bars }),
      })),
    ],
  };
}
