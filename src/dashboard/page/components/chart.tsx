import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { labelled } from "./chart-calendar.ts";
import { type Layer, raised, sum, tops } from "./chart-stack.ts";
import { Swatch } from "./chart-swatch.tsx";
import { colourOf, useTheme } from "./chart-theme.ts";
import { rowAfterKey } from "./record-window.ts";

export interface ChartProps {
  /** How many bars there are. */
  readonly count: number;
  /** The largest first. */
  readonly layers: readonly Layer[];
  /** What each bar lacks, see Line. Default nothing. */
  readonly unknown?: readonly number[];
  /** The bar that was chosen. */
  readonly chosen: number | null;
  /** What it shows and how to use it, for those who do not see it. */
  readonly label: string;
  /** Below a bar, and where there is room to say it all. */
  readonly tick: (bar: number) => string;
  readonly title: (bar: number) => string;
  readonly amount: (value: number, unknown?: number) => string;
  readonly nameOf: (layer: Layer) => string;
  /** The CSS variable of its colour. */
  readonly paint?: (layer: Layer) => string;
  readonly total: string;
  /** No part is drawn lower than this share of the tallest bar. Default 0. */
  readonly least?: number;
  /** null: a bar cannot be chosen. */
  readonly onChoose: ((bar: number) => void) | null;
}

/** Where the bars lie within the chart, in pixels. */
interface Place {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Stacked bars, which a pointer and the keyboard go along one by one. */
export function Chart(props: ChartProps) {
  const { count, layers, chosen, label, title, amount, nameOf, total, onChoose, paint = paintOf } = props;
  const canvas = useRef<HTMLDivElement>(null);
  const place = useDrawn(canvas, props);
  const [pointed, setPointed] = useState<number | null>(null);
  const [active, setActive] = useState<number | null>(null);
  const [focused, setFocused] = useState(false);
  const id = useId();
  const shown = pointed ?? (focused ? active : null);
  // The bars may have become fewer.
  const current = Math.min(active ?? chosen ?? count - 1, count - 1);

  const barAt = (event: PointerEvent | MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    if (box === undefined || place === null || count === 0) return null;
    const bar = Math.floor(((event.clientX - box.left - place.left) / place.width) * count);
    return bar >= 0 && bar < count ? bar : null;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const key = event.key.replace("ArrowRight", "ArrowDown").replace("ArrowLeft", "ArrowUp");
    const next = rowAfterKey(key, current, count, 7);
    if (next !== null) setActive(next);
    else if ((key === "Enter" || key === " ") && onChoose !== null) onChoose(current);
    else return;
    event.preventDefault();
  };

  return (
    <div
      class="chart"
      role="listbox"
      aria-label={label}
      tabIndex={0}
      data-choosable={onChoose !== null}
      aria-activedescendant={count > 0 ? id : undefined}
      onKeyDown={onKeyDown}
      onFocus={() => {
        setFocused(true);
        setActive(current);
      }}
      onBlur={() => setFocused(false)}
      onPointerMove={(event) => setPointed(barAt(event))}
      onPointerLeave={() => setPointed(null)}
      onClick={(event) => {
        const bar = barAt(event);
        if (bar === null || onChoose === null) return;
        setActive(bar);
        onChoose(bar);
      }}
    >
      {place === null ? null : <Band kind="chosen" bar={chosen} count={count} place={place} />}
      {place === null ? null : (
        <Band kind="pointed" bar={shown === chosen ? null : shown} count={count} place={place} />
      )}
      <div class="chart-canvas" ref={canvas} aria-hidden="true" />
      {count === 0 ? null : <CurrentBar id={id} bar={current} chart={props} />}
      {shown === null || place === null ? null : (
        <ChartBubble
          bar={shown}
          count={count}
          layers={layers}
          unknown={props.unknown?.[shown]}
          place={place}
          words={{ title: title(shown), total, amount, nameOf, paint }}
        />
      )}
    </div>
  );
}

interface CurrentProps {
  readonly id: string;
  readonly bar: number;
  readonly chart: ChartProps;
}

/** Describes the bar that is selected with the keyboard. */
function CurrentBar({ id, bar, chart }: CurrentProps) {
  const { count, layers, chosen, title, amount, nameOf } = chart;
  const parts = layers.filter(({ values }) => (values[bar] ?? 0) > 0);
  const all = sum(parts.map(({ values }) => values[bar] ?? 0));
  return (
    <div
      id={id}
      class="visually-hidden"
      role="option"
      tabIndex={-1}
      aria-selected={chosen === bar}
      aria-setsize={count}
      aria-posinset={bar + 1}
    >
      {[
        `${title(bar)}: ${amount(all, chart.unknown?.[bar])}`,
        ...parts.map((layer) => `${nameOf(layer)} ${amount(layer.values[bar] ?? 0, layer.unknown?.[bar])}`),
      ].join("; ")}
    </div>
  );
}

interface BandProps {
  readonly kind: "chosen" | "pointed";
  readonly bar: number | null;
  readonly count: number;
  readonly place: Place;
}

/** The ground behind one bar. */
function Band({ kind, bar, count, place }: BandProps) {
  if (bar === null || bar >= count) return null;
  const width = place.width / count;
  return (
    <div
      class="chart-band"
      data-kind={kind}
      style={{
        left: `${place.left + bar * width}px`,
        top: `${place.top}px`,
        width: `${width}px`,
        height: `${place.height}px`,
      }}
    />
  );
}

/** Draws again when the data, the theme or the width changes. */
function useDrawn(canvas: { readonly current: HTMLDivElement | null }, props: ChartProps): Place | null {
  const { layers, count, tick, amount, least = 0, paint = paintOf } = props;
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
    // A part that is not there is not drawn: its edge would cut through the line below it.
    const heights = tops(raised(layers, least)).map((layer, at) =>
      layer.map((top, bar) => ((layers[at]?.values[bar] ?? 0) > 0 ? top : null)),
    );
    const onReady = ({ over }: uPlot) =>
      setPlace({
        left: over.offsetLeft,
        top: over.offsetTop,
        width: over.offsetWidth,
        height: over.offsetHeight,
      });
    const drawing = { width, height: element.clientHeight, count, layers, tick, amount, paint, onReady };
    const bars = Array.from({ length: count }, (_, at) => at);
    // The top layer is drawn first. Each following bar covers it except for its end.
    const plot = new uPlot(chartOptions(drawing), [bars, ...heights.toReversed()], element);
    return () => plot.destroy();
  }, [canvas, layers, count, tick, amount, least, paint, width, theme]);
  return place;
}

interface BubbleProps {
  readonly bar: number;
  readonly count: number;
  readonly layers: readonly Layer[];
  readonly unknown: number | undefined;
  readonly place: Place;
  readonly words: {
    readonly title: string;
    readonly total: string;
    readonly amount: (value: number, unknown?: number) => string;
    readonly nameOf: (layer: Layer) => string;
    readonly paint: (layer: Layer) => string;
  };
}

/** The layers of one bar, from top to bottom. Hidden from screen readers, because the table says the same. */
function ChartBubble({ bar, count, layers, unknown, place, words }: BubbleProps) {
  const parts = layers.filter(({ values }) => (values[bar] ?? 0) > 0).toReversed();
  const middle = place.left + ((bar + 0.5) / count) * place.width;
  const isRight = bar * 2 >= count;
  const side = isRight
    ? { right: `calc(100% - ${middle - 14}px)`, left: "auto" }
    : { left: `${middle + 14}px`, right: "auto" };
  const all = sum(parts.map(({ values }) => values[bar] ?? 0));
  return (
    <div class="chart-bubble" aria-hidden="true" style={{ ...side, top: `${place.top}px` }}>
      <strong>{words.title}</strong>
      <table>
        <tbody>
          {parts.map((layer) => (
            <tr key={layer.name ?? ""}>
              <td>
                <Swatch paint={words.paint(layer)} /> {words.nameOf(layer)}
              </td>
              <td class="num">{words.amount(layer.values[bar] ?? 0, layer.unknown?.[bar])}</td>
            </tr>
          ))}
          <tr class="total">
            <td>{words.total}</td>
            <td class="num">{words.amount(all, unknown)}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

interface Drawing {
  readonly width: number;
  readonly height: number;
  readonly count: number;
  readonly layers: readonly Layer[];
  readonly tick: (bar: number) => string;
  readonly amount: (value: number) => string;
  readonly paint: (layer: Layer) => string;
  /** It is laid out only after the turn in which it was made. */
  readonly onReady: (plot: uPlot) => void;
}

function paintOf({ colour }: Layer): string {
  return `--series-${colour}`;
}

/** Room for a label below the axis. */
const LABEL_PX = 58;
const SCALE_PX = 62;
const FONT = "12px system-ui, sans-serif";

/** Bars have equal widths, although months and the days of a clock change differ in length. */
function chartOptions(drawing: Drawing): uPlot.Options {
  const { width, height, count, layers, tick, amount, paint, onReady } = drawing;
  const soft = colourOf("--soft");
  const line = colourOf("--line");
  const ground = colourOf("--panel");
  const bars = uPlot.paths.bars?.({ size: [0.78, 56], align: 0 });
  return {
    width,
    height,
    padding: [10, 4, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    hooks: { ready: [onReady] },
    scales: {
      x: { time: false, range: [-0.5, count - 0.5] },
      // Only zeros still have a scale, and zero is its lower end.
      y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.05 : 1] },
    },
    axes: [
      {
        stroke: soft,
        font: FONT,
        size: 28,
        gap: 6,
        grid: { show: false },
        ticks: { show: false },
        splits: () => labelled(count, width - SCALE_PX, LABEL_PX),
        values: (_plot, paths) => paths.map(tick),
      },
      {
        stroke: soft,
        font: FONT,
        size: SCALE_PX,
        gap: 8,
        grid: { stroke: line, width: 1 },
        ticks: { show: false },
        space: 44,
        values: (_plot, values) => values.map((value) => amount(value)),
      },
    ],
    series: [
      {},
      ...layers.toReversed().map((layer) => ({
        fill: colourOf(paint(layer)),
        // A gap between two layers, for people who cannot distinguish their colors.
        stroke: ground,
        width: count > 200 ? 0 : 1,
        points: { show: false },
        ...(bars === undefined ? {} : { paths: bars }),
      })),
    ],
  };
}
