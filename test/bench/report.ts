import { cpus, platform, release, totalmem } from "node:os";
import { memoryGrowth } from "./process-measures.ts";
import { pairRounds, type Spread, spreadOf } from "./statistics.ts";
import { type Measured, type Target, targetsOf } from "./targets.ts";

/** What was measured, by whom and where. */
export interface Setting {
  readonly date: string;
  readonly quick: boolean;
  /** Share of all cores that other programs used meanwhile, from 0 to 1. */
  readonly othersShare: number;
  readonly candidates: readonly {
    readonly name: string;
    readonly version: string;
    readonly converts: boolean;
  }[];
  readonly leftOut: readonly { readonly name: string; readonly why: string }[];
}

/** Raise it when a field changes its name or meaning. */
const FORMAT_VERSION = 1;

/** Stable JSON: the same fields in the same order in every run. What was not measured is null or an empty list. */
export function toJson(setting: Setting, measured: Measured): string {
  const report = {
    version: FORMAT_VERSION,
    date: setting.date,
    quick: setting.quick,
    machine: describeMachine(),
    others_cpu_share: rounded(setting.othersShare),
    candidates: setting.candidates,
    left_out: setting.leftOut,
    requests: measured.requests.map(({ candidate, slice, cpuMicroseconds, failed }) => ({
      candidate,
      prompt_kb: slice.promptKb,
      connections: slice.connections,
      reconnect: slice.reconnect,
      cpu_us: jsonSpread(spreadOf(cpuMicroseconds)),
      failed,
    })),
    latency: measured.latency.map((series) => ({
      candidate: series.candidate,
      prompt_kb: series.slice.promptKb,
      p50_ms: jsonSpread(spreadOf(series.p50Ms)),
      p99_ms: jsonSpread(spreadOf(series.p99Ms)),
      added_p50_ms: jsonSpread(added(measured, series.candidate, series.slice.promptKb, "p50Ms")),
      added_p99_ms: jsonSpread(added(measured, series.candidate, series.slice.promptKb, "p99Ms")),
    })),
    streams: measured.streams.map((series) => ({
      candidate: series.candidate,
      protocol: series.slice.protocol,
      clients: series.slice.clients,
      pace_ms: series.slice.paceMs,
      cpu_ms: jsonSpread(spreadOf(series.cpuMilliseconds)),
      late_p50_ms: jsonSpread(spreadOf(series.lateP50Ms)),
      late_p99_ms: jsonSpread(spreadOf(series.lateP99Ms)),
      failed: series.failed,
    })),
    delay: measured.delay.map(({ candidate, p50Ms, p999Ms }) => ({
      candidate,
      p50_ms: jsonSpread(spreadOf(p50Ms)),
      p999_ms: jsonSpread(spreadOf(p999Ms)),
    })),
    starts: measured.starts.map(({ candidate, startMs, idleBytes }) => ({
      candidate,
      start_ms: jsonSpread(spreadOf(startMs)),
      idle_mb: jsonSpread(spreadOf(idleBytes.map(megabytes))),
    })),
    memory: measured.memory.map((series) => ({
      candidate: series.candidate,
      requests: series.requests,
      mb: series.bytes.map((bytes) => rounded(megabytes(bytes))),
      growth: rounded(memoryGrowth(series)),
    })),
    usage_log: usageLogJson(measured),
    targets: targetsOf(measured).map(({ name, value, atMost, met }) => ({
      name,
      value: jsonSpread(value),
      at_most: atMost,
      met,
    })),
  };
  return JSON.stringify(report, null, 2);
}

function usageLogJson({ usageLog }: Measured): object | null {
  if (usageLog === null) return null;
  return {
    records: usageLog.records,
    append_us: rounded(usageLog.appendMicroseconds),
    rebuild_ms: rounded(usageLog.rebuildMs),
    reports: usageLog.reports.map(({ name, ms }) => ({ name, ms: rounded(ms) })),
    console_rows: usageLog.consoleRows,
    reconcile_ms: rounded(usageLog.reconcileMs),
  };
}

/** For people: medians, with the smallest and largest round in brackets. */
export function toText(setting: Setting, measured: Measured): string {
  const { processor, cores, memory_gb, system, node } = describeMachine();
  const lines = [
    `${processor}, ${cores} cores, ${memory_gb} GB, ${system}, node ${node}; ${setting.date}`,
    "Medians of all rounds; in brackets the smallest and the largest round.",
  ];
  if (setting.othersShare > 0.05) {
    const percent = (setting.othersShare * 100).toFixed(0);
    lines.push(`Other programs used ${percent} % of the CPU meanwhile, so trust ratios more than times.`);
  }
  for (const { name, version, converts } of setting.candidates)
    lines.push(`  ${name} ${version}${converts ? " (converts requests and answers)" : ""}`);
  for (const { name, why } of setting.leftOut) lines.push(`  left out: ${name}, ${why}`);
  lines.push(...requestLines(measured), ...latencyLines(measured), ...streamLines(measured));
  lines.push(...delayLines(measured), ...processLines(measured), ...usageLogLines(measured));
  lines.push(...targetLines(targetsOf(measured)));
  return lines.join("\n");
}

function requestLines({ requests }: Measured): string[] {
  const rows = requests.map(({ candidate, slice, cpuMicroseconds, failed }) => [
    `${slice.promptKb} KB${slice.reconnect ? ", new connections" : ""}`,
    candidate,
    inBrackets(spreadOf(cpuMicroseconds), 0),
    failures(failed),
  ]);
  return table(["prompt", "", "CPU per request, µs", ""], rows);
}

function latencyLines(measured: Measured): string[] {
  const rows = measured.latency.map(({ candidate, slice, p50Ms, p99Ms }) => [
    `${slice.promptKb} KB`,
    candidate,
    inBrackets(spreadOf(p50Ms), 2),
    inBrackets(spreadOf(p99Ms), 2),
    inBrackets(added(measured, candidate, slice.promptKb, "p50Ms"), 2),
    inBrackets(added(measured, candidate, slice.promptKb, "p99Ms"), 2),
  ]);
  return table(["one connection", "", "p50 ms", "p99 ms", "added p50 ms", "added p99 ms"], rows);
}

function streamLines({ streams }: Measured): string[] {
  const rows = streams.map((series) => [
    `${series.slice.clients} ${series.slice.protocol}`,
    series.slice.paceMs === 0 ? "at once" : `every ${series.slice.paceMs} ms`,
    series.candidate,
    inBrackets(spreadOf(series.cpuMilliseconds), 1),
    inBrackets(spreadOf(series.lateP50Ms), 2),
    inBrackets(spreadOf(series.lateP99Ms), 2),
    failures(series.failed),
  ]);
  return table(["streams", "events", "", "CPU per stream, ms", "late p50 ms", "late p99 ms", ""], rows);
}

function delayLines({ delay }: Measured): string[] {
  const rows = delay.map(({ candidate, p50Ms, p999Ms }) => [
    candidate,
    inBrackets(spreadOf(p50Ms), 2),
    inBrackets(spreadOf(p999Ms), 2),
  ]);
  return table(["event-loop delay: answer time of GET /healthz under load", "p50 ms", "p99.9 ms"], rows);
}

function processLines({ starts, memory }: Measured): string[] {
  const startRows = starts.map(({ candidate, startMs, idleBytes }) => [
    candidate,
    inBrackets(spreadOf(startMs), 0),
    inBrackets(spreadOf(idleBytes.map(megabytes)), 0),
  ]);
  const memoryRows = memory.map((series) => [
    series.candidate,
    inBrackets(spreadOf(series.bytes.map(megabytes)), 0),
    memoryGrowth(series).toFixed(2),
  ]);
  const requests = memory[0]?.requests ?? 0;
  return [
    ...table(["fresh process", "start ms", "idle MB"], startRows),
    ...table([`memory over ${requests} requests`, "MB", "last to first"], memoryRows),
  ];
}

function usageLogLines({ usageLog }: Measured): string[] {
  if (usageLog === null) return [];
  const rows = [
    ["append one record (open, head, close)", `${usageLog.appendMicroseconds.toFixed(1)} µs`],
    [`rebuild the index of ${usageLog.records} records`, `${(usageLog.rebuildMs / 1000).toFixed(1)} s`],
    ...usageLog.reports.map(({ name, ms }) => [`report: ${name}`, `${ms.toFixed(0)} ms`]),
    [`reconcile ${usageLog.consoleRows} console rows`, `${usageLog.reconcileMs.toFixed(0)} ms`],
  ];
  return table(["usage log and mirror", "CPU time"], rows);
}

function targetLines(targets: readonly Target[]): string[] {
  const rows: string[][] = [];
  for (const { name, value, atMost, met } of targets) {
    if (value === null) continue;
    const limit = atMost === null ? "" : `≤ ${atMost}`;
    const verdict = met === null ? "" : met ? "pass" : "miss";
    rows.push([name, inBrackets(value, 2), limit, verdict]);
  }
  return table(["keybearer against bare http-proxy-3", "", "target", ""], rows);
}

/** Over the upstream itself, round by round. */
function added(
  { latency }: Measured,
  candidate: string,
  promptKb: number,
  field: "p50Ms" | "p99Ms",
): Spread | null {
  const find = (name: string) =>
    latency.find((series) => series.candidate === name && series.slice.promptKb === promptKb)?.[field] ?? [];
  if (candidate === "direct") return null;
  return spreadOf(pairRounds(find(candidate), find("direct"), (with_, without) => with_ - without));
}

function describeMachine() {
  const all = cpus();
  return {
    processor: (all[0]?.model ?? "").trim(),
    cores: all.length,
    memory_gb: Math.round(totalmem() / 1024 ** 3),
    // Some builds append a host name to the version.
    system: `${platform()} ${release().split("-")[0]}`,
    node: process.versions.node,
  };
}

function megabytes(bytes: number): number {
  return bytes / 1e6;
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function jsonSpread(spread: Spread | null): Spread | null {
  if (spread === null) return null;
  return { median: rounded(spread.median), min: rounded(spread.min), max: rounded(spread.max) };
}

function inBrackets(spread: Spread | null, digits: number): string {
  if (spread === null) return "";
  const { median, min, max } = spread;
  return `${median.toFixed(digits)} (${min.toFixed(digits)} to ${max.toFixed(digits)})`;
}

function failures(failed: number): string {
  return failed === 0 ? "" : `${failed} failed`;
}

/** Nothing for a table without rows. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  if (rows.length === 0) return [];
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  const lines = all.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  return ["", ...lines.map((line) => line.trimEnd())];
}
