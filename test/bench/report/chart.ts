import type { CandidateName } from "../candidates/candidate.ts";
import { LATENCY_LOAD, RATIO_LOAD, RATIO_STREAMS } from "../plan.ts";
import { machineInWords } from "./machine.ts";
import type { Measured, Setting } from "./result.ts";
import { added, slicesOf } from "./slices.ts";
import { type Spread, spread } from "./statistics.ts";

interface Bar {
  readonly name: CandidateName;
  readonly value: Spread;
}

interface Panel {
  readonly title: string;
  readonly digits: number;
  readonly bars: readonly Bar[];
}

const WIDTH = 760;
const NAMES = 110;
const NUMBERS = 90;
const ROW = 24;
const HEAD = 34;
const ORDER: readonly CandidateName[] = ["direct", "nginx", "http-proxy-3", "httpxy", "keybearer", "portkey"];

/** For the README: bars with their spread, readable on a light page and on a dark one. */
export function inSvg(setting: Setting, measured: Measured): string {
  const parts: string[] = [];
  let top = 8;
  for (const panel of panelsOf(measured).filter(({ bars }) => bars.length > 0)) {
    parts.push(...drawn(panel, top));
    top += HEAD + panel.bars.length * ROW + 14;
  }
  for (const line of footLines(setting)) {
    parts.push(text(8, top + 12, line, "foot"));
    top += 16;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${top + 8}" width="${WIDTH}" height="${top + 8}" role="img">
<title>keybearer with everything on, beside others</title>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .foot { font-size: 11px; fill: #59636e }
.other { fill: #8c959f } .ours { fill: #1a7f37 } .spread { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .foot { fill: #9198a1 } .other { fill: #656c76 } .ours { fill: #3fb950 } .spread { stroke: #f0f6fc }
}
</style>
${parts.join("\n")}
</svg>
`;
}

function panelsOf({ loads, streams }: Measured): Panel[] {
  const bars = (rounds: (name: CandidateName) => number[]): Bar[] =>
    ORDER.flatMap((name) => {
      const value = spread(rounds(name));
      return value === null ? [] : [{ name, value }];
    });
  const over = (name: CandidateName) =>
    added(slicesOf(loads, name, LATENCY_LOAD), slicesOf(loads, "direct", LATENCY_LOAD), "p50Ms");
  return [
    {
      title: "requests per second, 16 connections, 800-byte body (more is better)",
      digits: 0,
      bars: bars((name) => slicesOf(loads, name, RATIO_LOAD).map(({ rps }) => rps)),
    },
    {
      title: "milliseconds added to a request, median, 1 connection (less is better)",
      digits: 2,
      bars: bars((name) => (name === "direct" ? [] : over(name))),
    },
    {
      title: `milliseconds an event of a stream is late, 99th of 100, ${RATIO_STREAMS} streams (less is better)`,
      digits: 2,
      bars: bars(
        (name) =>
          streams
            .find(({ candidate, streams }) => candidate === name && streams === RATIO_STREAMS)
            ?.rounds.map(({ delayP99Ms }) => delayP99Ms) ?? [],
      ),
    },
  ];
}

function drawn({ title, digits, bars }: Panel, top: number): string[] {
  const longest = Math.max(...bars.map(({ value }) => value.most), Number.MIN_VALUE);
  const scale = (value: number) => (Math.max(0, value) / longest) * (WIDTH - NAMES - NUMBERS);
  const lines = [text(8, top + 16, title, "title")];
  bars.forEach(({ name, value }, at) => {
    const y = top + HEAD + at * ROW;
    const [least, most] = [NAMES + scale(value.least), NAMES + scale(value.most)];
    lines.push(
      text(8, y + 12, name, ""),
      `<rect class="${name === "keybearer" ? "ours" : "other"}" x="${NAMES}" y="${y}" width="${scale(value.median).toFixed(1)}" height="16" rx="2"/>`,
      `<line class="spread" x1="${least.toFixed(1)}" x2="${most.toFixed(1)}" y1="${y + 8}" y2="${y + 8}"/>`,
      text(most + 8, y + 12, value.median.toFixed(digits), ""),
    );
  });
  return lines;
}

function footLines({ machine, date, contenders, loadGenerator, upstream, rounds }: Setting): string[] {
  const versions = contenders
    .filter(({ version }) => version !== "")
    .map(({ name, version }) => `${name} ${version}`);
  return [
    `bars: medians of ${rounds} rounds; lines: least to most. load by ${loadGenerator}, upstream ${upstream}, all on one machine`,
    `${machineInWords(machine)}; ${date.slice(0, 10)}`,
    versions.join(", "),
  ];
}

function text(x: number, y: number, words: string, kind: string): string {
  const escaped = words.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  return `<text x="${x.toFixed(1)}" y="${y}"${kind === "" ? "" : ` class="${kind}"`}>${escaped}</text>`;
}
