import type { Place } from "./chart.tsx";
import { type Layer, sum } from "./chart-stack.ts";
import { Swatch } from "./chart-swatch.tsx";

interface BubbleProps {
  readonly bar: number;
  readonly count: number;
  readonly layers: readonly Layer[];
  readonly place: Place;
  readonly words: {
    readonly title: string;
    readonly total: string;
    readonly amount: (value: number) => string;
    readonly nameOf: (layer: Layer) => string;
    readonly paint: (layer: Layer) => string;
  };
}

/** What one bar is made of, in the order in which it lies there. Only for the eye: the table says the same. */
export function ChartBubble({ bar, count, layers, place, words }: BubbleProps) {
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
              <td class="num">{words.amount(layer.values[bar] ?? 0)}</td>
            </tr>
          ))}
          <tr class="total">
            <td>{words.total}</td>
            <td class="num">{words.amount(all)}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}
