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
import { type Channels, contrast, difference, lightOf, SIGHTS, seen } from "../doubles/colour-sight.ts";
import { ROOT } from "../doubles/paths.ts";

const css = readFileSync(join(ROOT, "src/dashboard/page/components/chart.css"), "utf8");

/** The colours of one theme, as the browser reads them. */
function palette(theme: "light" | "dark"): Channels[] {
  const [light = "", dark = ""] = css.split("@media (prefers-color-scheme: dark)");
  const found = [...(theme === "light" ? light : dark).matchAll(/--series-\d: (#[0-9a-f]{6});/g)];
  return found.map(([, hex = ""]) => lightOf(hex));
}

/** What charts lie on. */
const GROUNDS = { light: "#ffffff", dark: "#161b1e" } as const;

t.test("the colours of a chart are told apart by everybody, on both themes", (t) => {
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

t.test("charts lie on the ground that was reckoned with", (t) => {
  const ground = readFileSync(join(ROOT, "src/dashboard/page/css/ground.css"), "utf8");
  t.same(
    [...ground.matchAll(/--panel: (#[0-9a-f]{6});/g)].map(([, hex]) => hex),
    [GROUNDS.light, GROUNDS.dark],
  );
  t.end();
});

t.test("two colours that a colour-blind person takes for one are noticed", (t) => {
  const [red, green] = [lightOf("#b8442c"), lightOf("#6f7d1f")];
  t.ok(difference(red, green) > 0.15);
  t.ok(difference(seen(red, "no green"), seen(green, "no green")) < 0.07);
  t.end();
});

const line = (name: string | null, ...values: number[]) => ({ name, values });

t.test("the largest lies at the bottom of the stack, and nothing is lost", (t) => {
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

t.test("beyond eight, the rest is folded into one that says what is in it", (t) => {
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
  t.equal(new Set([...crowd.values()]).size, crowd.size, "who is gone makes room");
  t.end();
});

t.test("one among hundreds is tall enough to be seen, and what is not there stays away", (t) => {
  const lines = [line("matched", 396, 100), line("foreign", 4, 0), line("differs", 0, 300)];
  t.same(raised(lines, 0.025), [line("matched", 396, 100), line("foreign", 10, 0), line("differs", 0, 300)]);
  t.same(raised(lines, 0), lines, "unless nobody asks for it");
  t.same(raised([line("none", 0, 0)], 0.025), [line("none", 0, 0)]);
  t.same(raised([], 0.025), []);
  t.same(lines[1]?.values, [4, 0], "nothing is changed in place");
  t.end();
});

t.test("a point in a bar belongs to the part it lies in", (t) => {
  const heights = tops([line("a", 2, 0), line("b", 0, 3), line("c", 4, 1)]);
  t.equal(layerAt(heights, 0, 1), 0);
  t.equal(layerAt(heights, 0, 3), 2, "b has nothing there");
  t.equal(layerAt(heights, 1, 0.5), 1);
  t.equal(layerAt(heights, 0, 7), null, "above the bar");
  t.equal(layerAt(heights, 9, 1), null, "beside the bars");
  t.end();
});
