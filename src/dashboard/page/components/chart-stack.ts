/** One name's values, one for each bin. */
export interface Line {
  /** null: it has none, such as the requests of unknown callers. */
  readonly name: string | null;
  readonly values: readonly number[];
  /** How many requests each value lacks, because their cost is unknown. */
  readonly unknown?: readonly number[];
}

/** One colour of the stack. */
export interface Layer extends Line {
  readonly total: number;
  /** From 0; the last of all is that of what was folded together. */
  readonly colour: number;
  /** What was folded into it, by size; none: it is one name. */
  readonly folded: readonly Line[];
}

/** People cannot distinguish more colors than this. */
export const MOST_COLOURS = 8;
/** The colour of what was folded together. */
export const OTHER_COLOUR = MOST_COLOURS;

/** Which name has which colour. It goes on having it while filters and periods change, for as long as there is room. */
export type Colours = ReadonlyMap<string | null, number>;

/** The largest is first, at the bottom. What does not fit is summed up in one. */
export function layersOf(lines: readonly Line[], colours: Colours): Layer[] {
  const sized = lines
    .map((line) => ({ line, total: sum(line.values) }))
    .filter(({ total }) => total > 0)
    .sort((a, b) => b.total - a.total || compare(a.line.name ?? "", b.line.name ?? ""));
  const single = sized.length <= MOST_COLOURS ? sized : sized.slice(0, MOST_COLOURS - 1);
  const rest = sized.slice(single.length).map(({ line }) => line);
  const layers = single.map(({ line, total }) => ({
    ...line,
    total,
    colour: colours.get(line.name) ?? OTHER_COLOUR,
    folded: [],
  }));
  if (rest.length === 0) return layers;
  const values = added(rest);
  const unknown = addedUnknown(rest);
  return [...layers, { name: null, values, unknown, total: sum(values), colour: OTHER_COLOUR, folded: rest }];
}

/** Who is shown keeps their colour, who is new takes the first free one, and who is gone makes room where there is none. */
export function coloursFor(names: readonly (string | null)[], before: Colours): Colours {
  const shown = names.slice(0, MOST_COLOURS);
  const colours = new Map<string | null, number>();
  for (const name of shown) {
    const had = before.get(name);
    if (had !== undefined) colours.set(name, had);
  }
  const remembered = [...before].filter(([name]) => !colours.has(name));
  for (const name of shown) {
    if (colours.has(name)) continue;
    const taken = new Set([...colours.values(), ...remembered.map(([, colour]) => colour)]);
    const free = first((colour) => !taken.has(colour));
    colours.set(name, free ?? first((colour) => ![...colours.values()].includes(colour)) ?? OTHER_COLOUR);
  }
  const used = new Set(colours.values());
  for (const [name, colour] of remembered) if (!used.has(colour)) colours.set(name, colour);
  return colours;
}

function first(holds: (colour: number) => boolean): number | null {
  for (let colour = 0; colour < MOST_COLOURS; colour += 1) if (holds(colour)) return colour;
  return null;
}

/** The same with every part that is there at least so tall, as a share of the tallest bar: one among hundreds is seen. */
export function raised(layers: readonly Line[], least: number): Line[] {
  const floor = Math.max(0, ...added(layers)) * least;
  return layers.map((line) => ({
    ...line,
    values: line.values.map((value) => (value > 0 ? Math.max(value, floor) : value)),
  }));
}

/** For each layer the height of its top, with all layers below it. */
export function tops(layers: readonly Line[]): number[][] {
  const below: number[] = [];
  return layers.map(({ values }) =>
    values.map((value, at) => {
      const top = (below[at] ?? 0) + value;
      below[at] = top;
      return top;
    }),
  );
}

/** The layer at a height of a bar; null: above all of them. */
export function layerAt(heights: readonly (readonly number[])[], bin: number, value: number): number | null {
  const found = heights.findIndex((layer, at) => {
    const below = at === 0 ? 0 : (heights[at - 1]?.[bin] ?? 0);
    return value <= (layer[bin] ?? 0) && (layer[bin] ?? 0) > below;
  });
  return value < 0 || found === -1 ? null : found;
}

export function added(lines: readonly Line[]): number[] {
  const length = Math.max(0, ...lines.map(({ values }) => values.length));
  return Array.from({ length }, (_, at) => sum(lines.map(({ values }) => values[at] ?? 0)));
}

export function addedUnknown(lines: readonly Line[]): number[] {
  return added(lines.map(({ name, unknown = [] }) => ({ name, values: unknown })));
}

export function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
