import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Bin } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import {
  added,
  type BarNames,
  barNames,
  type Layer,
  type Line,
  labeled,
  layersOf,
  paintedLayers,
  topsOf,
} from "./chart-layers.ts";
import { Swatch } from "./swatch.tsx";
import { TableWrap } from "./table-wrap.tsx";

export interface ChartProps {
  /** What it shows. */
  readonly label: string;
  /** Where each bar begins, milliseconds UTC. */
  readonly bins: readonly number[];
  readonly bin: Bin;
  /** In which the bars begin; without it, the browser's own. */
  readonly zone?: string;
  readonly lines: readonly Line[];
  readonly nameOf: (name: string | null) => string;
  /** `unknown`: how many requests the value lacks. */
  readonly amount: (value: number, unknown?: number) => string;
  /** The CSS variable of a name's color, for lines that stay in their order. Without it, one of eight. */
  readonly paintOf?: (name: string | null) => string;
  /** No part is drawn lower than this share of the tallest bar. */
  readonly least?: number;
  readonly hasLegend?: boolean;
  /** The number of a bar; null: none is chosen. */
  readonly chosen?: number | null;
  readonly onChoose?: (bar: number) => void;
}

/** Stacked bars, and the same as a table for the keyboard and for who does not see them. */
export function Chart(props: ChartProps) {
  const { t } = useFrame();
  const { bins, bin, zone, lines, nameOf, paintOf, chosen = null } = props;
  const names = useMemo(() => barNames(bins, bin, zone), [bins, bin, zone]);
  const layers = useMemo(
    () => (paintOf === undefined ? layersOf(lines) : paintedLayers(lines, paintOf)),
    [lines, paintOf],
  );
  const drawn: Drawn = {
    ...props,
    names,
    layers,
    chosen: chosen !== null && chosen < bins.length ? chosen : null,
    nameOfLayer: ({ name, folded }) =>
      folded !== undefined ? t("chart.others", { n: folded }) : nameOf(name),
  };
  return (
    <>
      <Bars {...drawn} />
      {props.hasLegend === true ? <Legend {...drawn} /> : null}
      <Numbers {...drawn} />
    </>
  );
}

interface Drawn extends ChartProps {
  readonly names: BarNames;
  readonly layers: readonly Layer[];
  readonly nameOfLayer: (layer: Layer) => string;
}

function Bars(drawn: Drawn) {
  const { label, bins, chosen = null, onChoose } = drawn;
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
function Band({ kind, bar, count, place: { left, top, width, height } }: BandProps) {
  if (bar === null) return null;
  const each = width / count;
  return (
    <div
      class="chart-band"
      data-kind={kind}
      style={{
        left: `${left + bar * each}px`,
        top: `${top}px`,
        width: `${each}px`,
        height: `${height}px`,
      }}
    />
  );
}

/** The parts of one bar, from top to bottom. */
function Bubble(drawn: Drawn & { readonly bar: number; readonly place: Place }) {
  const { t } = useFrame();
  const { bar, place, bins, layers, names, nameOfLayer, amount } = drawn;
  const parts = layers.filter(({ values }) => (values[bar] ?? 0) > 0).toReversed();
  const all = added(layers);
  const middle = place.left + ((bar + 0.5) / bins.length) * place.width;
  const side =
    bar * 2 >= bins.length ? { right: `calc(100% - ${middle - 14}px)` } : { left: `${middle + 14}px` };
  return (
    <div class="chart-bubble" style={{ ...side, top: `${place.top}px` }}>
      <strong>{names.title(bar)}</strong>
      <table>
        <tbody>
          {parts.map((layer) => (
            <tr key={layer.paint}>
              <td>
                <Swatch paint={layer.paint} /> {nameOfLayer(layer)}
              </td>
              <td class="num">{amount(layer.values[bar] ?? 0, layer.unknown?.[bar])}</td>
            </tr>
          ))}
          <tr class="total">
            <td>{t("chart.total")}</td>
            <td class="num">{amount(all.values[bar] ?? 0, all.unknown?.[bar])}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

function Legend({ layers, nameOfLayer, amount }: Drawn) {
  return (
    <ul class="legend">
      {layers.map((layer) => (
        <li key={layer.paint}>
          <Swatch paint={layer.paint} /> {nameOfLayer(layer)} {amount(layer.total)}
        </li>
      ))}
    </ul>
  );
}

/** Made only when it is opened, because there may be hundreds of bars. */
function Numbers(drawn: Drawn) {
  const { t } = useFrame();
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="chart-numbers" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("chart.numbers")}</summary>
      {isOpen ? <NumbersTable {...drawn} /> : null}
    </details>
  );
}

function NumbersTable({ label, bins, layers, names, nameOfLayer, amount, onChoose }: Drawn) {
  const { t } = useFrame();
  const all = added(layers);
  const some = bins.map((_, bar) => bar).filter((bar) => isSome(all, bar));
  const cell = (line: Line, bar: number) =>
    isSome(line, bar) ? amount(line.values[bar] ?? 0, line.unknown?.[bar]) : "–";
  return (
    <TableWrap>
      <table class="data">
        <caption class="visually-hidden">{label}</caption>
        <thead>
          <tr>
            <th scope="col">{t("chart.time")}</th>
            {layers.map((layer) => (
              <th key={layer.paint} scope="col" class="num">
                {nameOfLayer(layer)}
              </th>
            ))}
            <th scope="col" class="num">
              {t("chart.total")}
            </th>
          </tr>
        </thead>
        <tbody>
          {some.map((bar) => (
            <tr key={bar}>
              <th scope="row">
                {onChoose === undefined ? (
                  names.title(bar)
                ) : (
                  <button type="button" class="sort" onClick={() => onChoose(bar)}>
                    {names.title(bar)}
                  </button>
                )}
              </th>
              {layers.map((layer) => (
                <td key={layer.paint} class="num">
                  {cell(layer, bar)}
                </td>
              ))}
              <td class="num">{cell(all, bar)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}

function isSome({ values, unknown }: Line, bar: number): boolean {
  return (values[bar] ?? 0) + (unknown?.[bar] ?? 0) > 0;
}

/** Draws again when the data, the theme or the width changes. */
function useDrawing(canvas: { readonly current: HTMLDivElement | null }, drawn: Drawn): Place | null {
  const { layers, names, amount, least = 0, bins } = drawn;
  const theme = useTheme();
  const [width, setWidth] = useState(0);
  const [place, setPlace] = useState<Place | null>(null);
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    watch.observe(element);
    return () => watch.disconnect();
  }, [canvas]);
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null || width === 0) return;
    const onReady = ({ over }: uPlot) =>
      setPlace({
        left: over.offsetLeft,
        top: over.offsetTop,
        width: over.offsetWidth,
        height: over.offsetHeight,
      });
    const options = { ...optionsFor(drawn, width, element.clientHeight), hooks: { ready: [onReady] } };
    const bars = bins.map((_, bar) => bar);
    // The top layer is drawn first. Each following one covers it except for its end.
    const plot = new uPlot(options, [bars, ...topsOf(layers, least).toReversed()], element);
    return () => plot.destroy();
  }, [canvas, layers, names, amount, least, width, theme]);
  return place;
}

/** A canvas keeps the colors it was drawn with, so a chart must know when the theme changes. */
function useTheme(): string | undefined {
  const { dataset } = document.documentElement;
  const [theme, setTheme] = useState(dataset.theme);
  useEffect(() => {
    const watch = new MutationObserver(() => setTheme(dataset.theme));
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => watch.disconnect();
  }, [dataset]);
  return theme;
}

/** Room for a label below the axis, and for the numbers beside it. */
const LABEL_PX = 58;
const SCALE_PX = 62;
const FONT = "12px system-ui, sans-serif";
/** Thinner bars have no gaps between their parts. */
const MAX_BARS_WITH_GAPS = 200;

/** Bars have equal widths, although months and the days of a clock change differ in length. */
function optionsFor({ bins, layers, names, amount }: Drawn, width: number, height: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (variable: string) => style.getPropertyValue(variable).trim();
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
        splits: () => labeled(bins.length, width - SCALE_PX, LABEL_PX),
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
