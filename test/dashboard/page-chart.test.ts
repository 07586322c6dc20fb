import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import {
  added,
  barNames,
  layersOf,
  MAX_COLORS,
  sum,
  topsOf,
} from "../../src/dashboard/page/components/chart-layers.ts";
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

const css = readFileSync(join(ROOT, "src/dashboard/page/css/chart.css"), "utf8");

/** The colours of one theme, as the browser reads them. */
function palette(theme: "light" | "dark"): Channels[] {
  const found = [...css.matchAll(/--series-\d: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)];
  return found.map(([, light = "", dark = ""]) => lightOf(theme === "light" ? light : dark));
}

/** What charts lie on. */
const GROUNDS = { light: "#ffffff", dark: "#161b1e" } as const;

t.test("the colours of a chart can be distinguished on both themes", (t) => {
  for (const theme of ["light", "dark"] as const) {
    const colours = palette(theme);
    t.equal(colours.length, MAX_COLORS + 1, `${theme}: eight and a grey`);
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
    [...ground.matchAll(/--panel: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)].map((found) =>
      found.slice(1),
    ),
    [[GROUNDS.light, GROUNDS.dark]],
  );
  t.end();
});

t.test("two colours that look the same to a colour-blind person are found", (t) => {
  const [red, green] = [lightOf("#b8442c"), lightOf("#6f7d1f")];
  t.ok(difference(red, green) > 0.15);
  t.ok(difference(seen(red, "no green"), seen(green, "no green")) < 0.07);
  t.end();
});

const line = (name: string | null, ...values: number[]) => ({
  name,
  values,
  total: sum(values),
  unknown: [],
});

t.test("the largest layer is at the bottom of the bars, and no value is lost", (t) => {
  const layers = layersOf([line("a", 1, 0), line("b", 2, 5), line(null, 0, 3), line("none", 0, 0)]);
  t.same(
    layers.map(({ name }) => name),
    ["b", null, "a"],
  );
  t.same(topsOf(layers), [
    [2, 5],
    [null, 8],
    [3, null],
  ]);
  t.end();
});

t.test("more than eight names, and what the daemon has added up, are one gray layer", (t) => {
  const lines = Array.from({ length: 12 }, (_, at) => line(`m${at}`, 12 - at, 1));
  const others = { ...line(null, 100, 0), folded: 30 };
  const layers = layersOf([...lines, others]);
  t.equal(layers.length, MAX_COLORS);
  t.match(layers.at(-1), { folded: 5 + 30, paint: "--series-8" });
  t.equal(sum(added(layers).values), sum([...lines, others].flatMap(({ values }) => values)));
  t.equal(new Set(layers.map(({ paint }) => paint)).size, MAX_COLORS, "no color twice");
  const eight = layersOf(lines.slice(0, 8));
  t.ok(eight.every(({ folded }) => folded === undefined));
  t.end();
});

t.test("a name has the same color in any chart where no larger one has taken it", (t) => {
  const paintOf = (names: readonly string[], name: string) =>
    layersOf(names.map((each) => line(each, 1))).find((layer) => layer.name === name)?.paint;
  t.equal(paintOf(["codex"], "codex"), paintOf(["codex", "claude-code", "opencode"], "codex"));
  const own = layersOf([line("a", 2), line("i", 1)]);
  t.equal(paintOf(["i"], "i"), paintOf(["a"], "a"), "these two want the same");
  t.equal(new Set(own.map(({ paint }) => paint)).size, 2);
  t.end();
});

t.test("each layer stands on those below it, where it has something", (t) => {
  t.same(topsOf([line("codex", 396, 100), line("claude-code", 4, 0)]), [
    [396, 100],
    [400, null],
  ]);
  t.end();
});

t.test("bars are named by their time in the daemon's zone", (t) => {
  const at = Date.UTC(2026, 9, 24, 22);
  const hours = [at, at + 3_600_000, at + 23 * 3_600_000, at + 26 * 3_600_000];
  t.equal(barNames([at], "day", "Europe/Berlin").title(0), "2026-10-25");
  t.equal(barNames([at], "day", "Europe/Berlin").tick(0), "10-25");
  t.equal(barNames([at], "month", "Europe/Berlin").tick(0), "2026-10");
  const { tick, title } = barNames(hours, "hour", "Europe/Berlin");
  t.same(
    hours.map((_, bar) => tick(bar)),
    ["10-25", "01:00", "22:00", "01:00"],
  );
  t.equal(title(3), "2026-10-26 01:00");
  t.equal(barNames(hours.slice(0, 2), "hour", "Europe/Berlin").tick(0), "00:00", "hours of one day");
  for (const zone of ["Etc/Unknown", "Nowhere/Nothing"])
    t.match(barNames([at], "day", zone).title(0), /^2026-10-2[45]$/, "a zone that the browser does not know");
  t.end();
});
