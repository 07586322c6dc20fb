import { cpus, platform, release, totalmem } from "node:os";
import { SCRAPE_SHARE, WATCHED } from "./measures.ts";
import { type Results, type Series, type Spread, spreadOf } from "./results.ts";

/** Prints what was measured, as tables or as JSON, and compares it with the targets. */

export interface Setting {
  readonly date: string;
  readonly quick: boolean;
  /** Share of all cores that other programs used meanwhile, from 0 to 1. */
  readonly othersShare: number;
  readonly candidates: readonly { readonly name: string; readonly version: string }[];
  readonly leftOut: readonly { readonly name: string; readonly why: string }[];
}

/** What keybearer with everything on must reach. */
interface Target {
  readonly measure: string;
  /** keybearer's value is divided by this candidate's, or its difference is taken; null takes the value itself. */
  readonly against: string | null;
  readonly by: "ratio" | "difference";
  /** null when nothing was decided, and the figure is only shown. */
  readonly atMost: number | null;
}

function against(candidate: string, measure: string, atMost: number | null): Target {
  return { measure, against: candidate, by: "ratio", atMost };
}

const TARGETS: readonly Target[] = [
  against("http-proxy-3", "CPU µs per request, 1 KB", 1.9),
  against("http-proxy-3", "CPU µs per request, 20 KB", 1.9),
  against("http-proxy-3", "CPU µs per request, 100 KB", 1.8),
  against("http-proxy-3", "CPU µs per request, 500 KB", 1.8),
  against("http-proxy-3", "CPU µs per request, 1 KB, main thread", null),
  against("http-proxy-3", "CPU µs per request, 1 KB, new connection", null),
  against("http-proxy-3", WATCHED, 1.9),
  against("http-proxy-3", "CPU ms per stream, 1 client", 1.3),
  against("http-proxy-3", "CPU ms per stream, 32 clients", 1.3),
  against("http-proxy-3", "CPU ms per stream, 200 clients", 1.4),
  against("http-proxy-3", "CPU ms per stream, 32 clients, at once", null),
  against("http-proxy-3", "CPU ms per messages stream, 32 clients", 1.3),
  { measure: "latency p50 ms, 1 KB", against: "http-proxy-3", by: "difference", atMost: 0.25 },
  { measure: "latency p50 ms, 20 KB", against: "http-proxy-3", by: "difference", atMost: null },
  { measure: "latency p50 ms, 100 KB", against: "http-proxy-3", by: "difference", atMost: null },
  { measure: "latency p50 ms, 500 KB", against: "http-proxy-3", by: "difference", atMost: null },
  against("http-proxy-3", "late p99 ms, 200 clients", 1.3),
  against("http-proxy-3", "event-loop delay p99.9 ms", 1.5),
  { measure: SCRAPE_SHARE, against: null, by: "ratio", atMost: 1 },
  against("node:http", "idle MB", 1.6),
  against("http-proxy-3", "most MB over 100,000 requests", 1.7),
  { measure: "memory growth over 100,000 requests", against: null, by: "ratio", atMost: 1.1 },
];

interface Compared extends Target {
  /** null when it was not measured in this run. */
  readonly value: Spread | null;
  /** null without a value or a target. */
  readonly met: boolean | null;
}

/** Compares the values of the same round, so that a slow minute of the machine counts for both sides. */
export function compareWithTargets(results: Results): Compared[] {
  return TARGETS.map((target) => {
    const ours = results.rounds(target.measure, "keybearer");
    const theirs = target.against === null ? null : results.rounds(target.measure, target.against);
    const values: number[] = [];
    for (const [round, our] of ours.entries()) {
      const their = theirs === null ? 1 : theirs[round];
      if (their === undefined) continue;
      values.push(target.by === "ratio" ? our / their : our - their);
    }
    const value = spreadOf(values.filter(Number.isFinite));
    const met = value === null || target.atMost === null ? null : value.median <= target.atMost;
    return { ...target, value, met };
  });
}

/** Raise it when a field changes its name or meaning. */
const FORMAT_VERSION = 1;

/** The same fields in the same order in every run. */
export function toJson(setting: Setting, results: Results): string {
  const report = {
    version: FORMAT_VERSION,
    date: setting.date,
    quick: setting.quick,
    machine: describeMachine(),
    others_cpu_share: rounded(setting.othersShare),
    candidates: setting.candidates,
    left_out: setting.leftOut,
    measures: results.all().map(({ measure, candidate, rounds, failed }) => ({
      measure,
      candidate,
      ...jsonSpread(spreadOf(rounds)),
      rounds: rounds.map(rounded),
      failed,
    })),
    targets: compareWithTargets(results).map((target) => ({
      measure: target.measure,
      against: target.against,
      by: target.by,
      ...jsonSpread(target.value),
      at_most: target.atMost,
      met: target.met,
    })),
  };
  return JSON.stringify(report, null, 2);
}

export function toText(setting: Setting, results: Results): string {
  const { processor, cores, memory_gb, system, node } = describeMachine();
  const lines = [
    `${processor}, ${cores} cores, ${memory_gb} GB, ${system}, node ${node}; ${setting.date}`,
    "Medians of all rounds; in brackets the smallest and the largest round.",
  ];
  if (setting.othersShare > 0.05) {
    const percent = (setting.othersShare * 100).toFixed(0);
    lines.push(`Other programs used ${percent} % of the CPU meanwhile. Trust ratios more than times.`);
  }
  for (const { name, why } of setting.leftOut) lines.push(`Left out: ${name} (${why})`);
  lines.push("", ...measureTable(setting, results), "", ...targetTable(results));
  return lines.join("\n");
}

/** One row for each measure, one column for each candidate. */
function measureTable(setting: Setting, results: Results): string[] {
  const all = results.all();
  const measures = [...new Set(all.map(({ measure }) => measure))];
  const candidates = [...new Set(all.map(({ candidate }) => candidate))];
  const versionOf = (name: string) => setting.candidates.find((one) => one.name === name)?.version ?? "";
  const head = ["", ...candidates.map((name) => `${name} ${versionOf(name)}`)];
  const rows = measures.map((measure) => {
    const cells = candidates.map((candidate) =>
      cell(all.find((series) => series.measure === measure && series.candidate === candidate)),
    );
    return [measure, ...cells];
  });
  return alignColumns([head, ...rows]);
}

function cell(series: Series | undefined): string {
  if (series === undefined) return "";
  const failed = series.failed === 0 ? "" : `, ${series.failed} failed`;
  return `${inBrackets(spreadOf(series.rounds))}${failed}`;
}

function targetTable(results: Results): string[] {
  const rows = [["keybearer with everything on", "", "", "target", ""]];
  for (const { measure, value, against, by, atMost, met } of compareWithTargets(results)) {
    if (value === null) continue;
    const to = against === null ? "" : `${by === "ratio" ? "times" : "over"} ${against}`;
    const verdict = met === null ? "" : met ? "pass" : "miss";
    rows.push([measure, inBrackets(value), to, atMost === null ? "" : `at most ${atMost}`, verdict]);
  }
  return alignColumns(rows);
}

function describeMachine() {
  const all = cpus();
  return {
    processor: (all[0]?.model ?? "").trim(),
    cores: all.length,
    memory_gb: Math.round(totalmem() / 1024 ** 3),
    // Some systems append the name of their builder to the version.
    system: `${platform()} ${release().split("-")[0]}`,
    node: process.versions.node,
  };
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function jsonSpread(spread: Spread | null): {
  median: number | null;
  min: number | null;
  max: number | null;
} {
  if (spread === null) return { median: null, min: null, max: null };
  return { median: rounded(spread.median), min: rounded(spread.min), max: rounded(spread.max) };
}

function inBrackets(spread: Spread | null): string {
  if (spread === null) return "";
  if (spread.min === spread.max) return short(spread.median);
  return `${short(spread.median)} (${short(spread.min)} to ${short(spread.max)})`;
}

/** Three digits are more than two runs agree on. */
function short(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const columns = rows[0] ?? [];
  const widths = columns.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}
