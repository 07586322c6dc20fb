import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import {
  coloursFor,
  type Layer,
  layerAt,
  layersOf,
  MOST_COLOURS,
  OTHER_COLOUR,
  raised,
  sum,
  tops,
} from "../../src/dashboard/page/components/chart-stack.ts";
import { ROOT } from "../doubles/paths.ts";

/** Linear light of red, green and blue, 0 to 1. */
type Channels = readonly [number, number, number];

const SIGHTS = ["all colours", "no red", "no green", "no blue"] as const;
type Sight = (typeof SIGHTS)[number];

/** Machado, Oliveira and Fernandes 2009, full severity. */
const LOSS: Readonly<Record<Exclude<Sight, "all colours">, readonly Channels[]>> = {
  "no red": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "no green": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  "no blue": [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function lightOf(hex: string): Channels {
  const channel = (at: number) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

function seen(light: Channels, sight: Sight): Channels {
  if (sight === "all colours") return light;
  const [red, green, blue] = LOSS[sight].map((row) => Math.min(1, Math.max(0, dot(row, light))));
  return [red ?? 0, green ?? 0, blue ?? 0];
}

/** WCAG 2: 1 to 21. */
function contrast(one: Channels, other: Channels): number {
  const [dark = 0, bright = 0] = [one, other]
    .map((light) => dot([0.2126, 0.7152, 0.0722], light))
    .sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

/** In OKLab, where equal steps look equal; 1 is from black to white. */
function difference(one: Channels, other: Channels): number {
  const [a, b] = [oklab(one), oklab(other)];
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

function oklab(light: Channels): Channels {
  const cones: Channels = [
    Math.cbrt(dot([0.4122214708, 0.5363325363, 0.0514459929], light)),
    Math.cbrt(dot([0.2119034982, 0.6806995451, 0.1073969566], light)),
    Math.cbrt(dot([0.0883024619, 0.2817188376, 0.6299787005], light)),
  ];
  return [
    dot([0.2104542553, 0.793617785, -0.0040720468], cones),
    dot([1.9779984951, -2.428592205, 0.4505937099], cones),
    dot([0.0259040371, 0.7827717662, -0.808675766], cones),
  ];
}

function dot(a: Channels, b: Channels): number {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

const css = readFileSync(join(ROOT, "src/dashboard/page/components/chart.css"), "utf8");

/** The colours of one theme, as the browser reads them. */
function palette(theme: "light" | "dark"): Channels[] {
  const [light = "", dark = ""] = css.split("@media (prefers-color-scheme: dark)");
  const found = [...(theme === "light" ? light : dark).matchAll(/--series-\d: (#[0-9a-f]{6});/g)];
  return found.map(([, hex = ""]) => lightOf(hex));
}

/** What charts lie on. */
const GROUNDS = { light: "#ffffff", dark: "#161b1e" } as const;

t.test("the colours of a chart can be distinguished on both themes", (t) => {
  for (const theme of ["light", "dark"] as const) {
    const colours = palette(theme);
    t.equal(colours.length, MOST_COLOURS + 1, `${theme}: eight and a grey`);
    t.ok(
      colours.every((colour) => contrast(colour, lightOf(GROUNDS[theme])) >= 3),
      `${theme}: each stands out from its ground`,
    );
    for (const sight of SIGHTS) {
      const least = Math.min(
        ...colours.flatMap((one, at) =>
          colours.slice(0, at).map((other) => difference(seen(one, sight), seen(other, sight))),
        ),
      );
      t.ok(least >= 0.07, `${theme}, ${sight}: the nearest two are ${least.toFixed(3)} apart`);
    }
  }
  t.end();
});

t.test("the background of charts is the one the colours were chosen for", (t) => {
  const ground = readFileSync(join(ROOT, "src/dashboard/page/css/ground.css"), "utf8");
  t.same(
    [...ground.matchAll(/--panel: (#[0-9a-f]{6});/g)].map(([, hex]) => hex),
    [GROUNDS.light, GROUNDS.dark],
  );
  t.end();
});

t.test("two colours that look the same to a colour-blind person are found", (t) => {
  const [red, green] = [lightOf("#b8442c"), lightOf("#6f7d1f")];
  t.ok(difference(red, green) > 0.15);
  t.ok(difference(seen(red, "no green"), seen(green, "no green")) < 0.07);
  t.end();
});

const line = (name: string | null, ...values: number[]) => ({ name, values });

t.test("the largest layer is at the bottom of the stack, and no layer is lost", (t) => {
  const lines = [line("a", 1, 0), line("b", 2, 5), line(null, 0, 3), line("none", 0, 0)];
  const layers = layersOf(lines, coloursFor(["a", "b", null], new Map()));
  t.same(
    layers.map(({ name }) => name),
    ["b", null, "a"],
  );
  t.same(tops(layers), [
    [2, 5],
    [2, 8],
    [3, 8],
  ]);
  t.end();
});

t.test("more than eight names are folded into one layer that lists them", (t) => {
  const lines = Array.from({ length: 12 }, (_, at) => line(`m${String(at).padStart(2, "0")}`, 12 - at, 1));
  const layers = layersOf(
    lines,
    coloursFor(
      lines.map(({ name }) => name),
      new Map(),
    ),
  );
  t.equal(layers.length, MOST_COLOURS);
  const other = layers.at(-1) as Layer;
  t.equal(other.colour, OTHER_COLOUR);
  t.same(
    other.folded.map(({ name }) => name),
    ["m07", "m08", "m09", "m10", "m11"],
  );
  t.equal(sum(tops(layers).at(-1) ?? []), sum(lines.flatMap(({ values }) => values)), "no value is lost");
  t.equal(new Set(layers.map(({ colour }) => colour)).size, MOST_COLOURS, "no colour twice");
  t.end();
});

t.test("eight names are eight layers", (t) => {
  const lines = Array.from({ length: 8 }, (_, at) => line(`m${at}`, 8 - at));
  const names = lines.map(({ name }) => name);
  t.ok(layersOf(lines, coloursFor(names, new Map())).every(({ folded }) => folded.length === 0));
  t.end();
});

t.test("a name keeps its colour while the filter changes", (t) => {
  const first = coloursFor(["a", "b", "c"], new Map());
  t.equal(new Set(first.values()).size, 3);
  const filtered = coloursFor(["c"], first);
  t.equal(filtered.get("c"), first.get("c"));
  const back = coloursFor(["c", "b", "d"], filtered);
  t.equal(back.get("b"), first.get("b"), "also when it was away");
  t.notOk([...first.values()].includes(back.get("d") ?? -1), "a new one takes none that was had");
  const crowd = coloursFor(["e", "f", "g", "h", "i", "j", "k", "c"], back);
  t.equal(crowd.get("c"), first.get("c"));
  t.equal(new Set([...crowd.values()]).size, crowd.size, "a name that is gone frees its colour");
  t.end();
});

t.test("a small part of a bar stays visible, and an empty part is not drawn", (t) => {
  const lines = [line("matched", 396, 100), line("foreign", 4, 0), line("differs", 0, 300)];
  t.same(raised(lines, 0.025), [line("matched", 396, 100), line("foreign", 10, 0), line("differs", 0, 300)]);
  t.same(raised(lines, 0), lines, "unless it is not asked for");
  t.same(raised([line("none", 0, 0)], 0.025), [line("none", 0, 0)]);
  t.same(raised([], 0.025), []);
  t.same(lines[1]?.values, [4, 0], "nothing is changed in place");
  t.end();
});

t.test("a point in a bar belongs to the part it is in", (t) => {
  const heights = tops([line("a", 2, 0), line("b", 0, 3), line("c", 4, 1)]);
  t.equal(layerAt(heights, 0, 1), 0);
  t.equal(layerAt(heights, 0, 3), 2, "b has nothing there");
  t.equal(layerAt(heights, 1, 0.5), 1);
  t.equal(layerAt(heights, 0, 7), null, "above the bar");
  t.equal(layerAt(heights, 9, 1), null, "beside the bars");
  t.end();
});
