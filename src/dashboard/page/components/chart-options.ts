import uPlot from "uplot";
import { labelled } from "./chart-calendar.ts";
import type { Layer } from "./chart-stack.ts";
import { colourOf } from "./chart-theme.ts";

export interface Drawing {
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

export function paintOf({ colour }: Layer): string {
  return `--series-${colour}`;
}

/** Room for a label below the axis. */
const LABEL_PX = 58;
const SCALE_PX = 62;
const FONT = "12px system-ui, sans-serif";

/** Bars stand side by side whatever time they stand for: months and the days of a clock change are not all as long. */
export function chartOptions(drawing: Drawing): uPlot.Options {
  const { width, height, count, layers, tick, amount, paint, onReady } = drawing;
  const [soft, line, ground] = [colourOf("--soft"), colourOf("--line"), colourOf("--panel")];
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
      // Nothing but zeros still has a scale, of which zero is the lower end.
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
        values: (_plot, values) => values.map(amount),
      },
    ],
    series: [
      {},
      ...layers.toReversed().map((layer) => ({
        fill: colourOf(paint(layer)),
        // A gap between two parts of a bar, for those who do not tell their colours apart.
        stroke: ground,
        width: count > 200 ? 0 : 1,
        points: { show: false },
        ...(bars === undefined ? {} : { paths: bars }),
      })),
    ],
  };
}
