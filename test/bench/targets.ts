import type { DelaySeries, LatencySeries, RequestSeries, StreamSeries } from "./load-measures.ts";
import { type MemorySeries, memoryGrowth, type StartSeries } from "./process-measures.ts";
import { pairRounds, type Spread, spreadOf } from "./statistics.ts";
import type { UsageLogResult } from "./usage-log.ts";

/** Everything one run measured. */
export interface Measured {
  readonly requests: readonly RequestSeries[];
  readonly latency: readonly LatencySeries[];
  readonly streams: readonly StreamSeries[];
  readonly delay: readonly DelaySeries[];
  readonly starts: readonly StartSeries[];
  readonly memory: readonly MemorySeries[];
  /** null when it was not measured. */
  readonly usageLog: UsageLogResult | null;
}

/** keybearer with everything on against a bare proxy. */
export interface Target {
  readonly name: string;
  /** null when it was not measured in this run. */
  readonly value: Spread | null;
  /** null when no target is set. */
  readonly atMost: number | null;
  /** null without a value or a target. */
  readonly met: boolean | null;
}

const OURS = "keybearer";
const BARE = "http-proxy-3";

/** Always the same targets in the same order, measured or not. */
export function targetsOf(measured: Measured): Target[] {
  return [
    ...requestTargets(measured.requests),
    ...streamTargets(measured.streams),
    ...latencyTargets(measured.latency),
    target("late p99, 200 clients, ratio", 1.3, lateness(measured.streams)),
    target("event-loop delay p99.9, ratio", 1.5, delay(measured.delay)),
    target("idle memory, ratio to node:http", 1.6, idleMemory(measured.starts)),
    target("memory over all requests, last to first", 1.1, growth(measured.memory)),
  ];
}

function target(name: string, atMost: number | null, values: readonly number[]): Target {
  const value = spreadOf(values);
  const met = value === null || atMost === null ? null : value.median <= atMost;
  return { name, value, atMost, met };
}

function ratio(our: number, their: number): number {
  return our / their;
}

function requestTargets(requests: readonly RequestSeries[]): Target[] {
  const limits = [
    { promptKb: 1, reconnect: false, atMost: 1.2 },
    { promptKb: 20, reconnect: false, atMost: 1.6 },
    { promptKb: 100, reconnect: false, atMost: 1.6 },
    { promptKb: 500, reconnect: false, atMost: null },
    { promptKb: 1, reconnect: true, atMost: null },
  ];
  return limits.map(({ promptKb, reconnect, atMost }) => {
    const cpu = (name: string) =>
      requests.find(
        ({ candidate, slice }) =>
          candidate === name && slice.promptKb === promptKb && slice.reconnect === reconnect,
      )?.cpuMicroseconds ?? [];
    const connection = reconnect ? ", new connections" : "";
    return target(
      `CPU per request, ${promptKb} KB${connection}, ratio`,
      atMost,
      pairRounds(cpu(OURS), cpu(BARE), ratio),
    );
  });
}

function streamTargets(streams: readonly StreamSeries[]): Target[] {
  const limits = [
    { protocol: "chat", clients: 1, paced: true },
    { protocol: "chat", clients: 32, paced: true },
    { protocol: "chat", clients: 200, paced: true },
    { protocol: "messages", clients: 32, paced: true },
    { protocol: "chat", clients: 32, paced: false },
  ];
  return limits.map(({ protocol, clients, paced }) => {
    const cpu = (name: string) =>
      streams.find(
        ({ candidate, slice }) =>
          candidate === name &&
          slice.protocol === protocol &&
          slice.clients === clients &&
          slice.paceMs > 0 === paced,
      )?.cpuMilliseconds ?? [];
    const pace = paced ? "" : ", events at once";
    const name = `CPU per ${protocol} stream, ${clients} clients${pace}, ratio`;
    return target(name, 1.3, pairRounds(cpu(OURS), cpu(BARE), ratio));
  });
}

function latencyTargets(latency: readonly LatencySeries[]): Target[] {
  const limits = [
    { promptKb: 1, atMost: 0.1 },
    { promptKb: 20, atMost: 0.1 },
    { promptKb: 100, atMost: 0.1 },
    { promptKb: 500, atMost: null },
  ];
  return limits.map(({ promptKb, atMost }) => {
    const p50 = (name: string) =>
      latency.find(({ candidate, slice }) => candidate === name && slice.promptKb === promptKb)?.p50Ms ?? [];
    const over = pairRounds(p50(OURS), p50(BARE), (our, their) => our - their);
    return target(`p50 over http-proxy-3, ${promptKb} KB, ms`, atMost, over);
  });
}

function lateness(streams: readonly StreamSeries[]): number[] {
  const late = (name: string) =>
    streams.find(({ candidate, slice }) => candidate === name && slice.clients === 200 && slice.paceMs > 0)
      ?.lateP99Ms ?? [];
  return pairRounds(late(OURS), late(BARE), ratio);
}

function delay(series: readonly DelaySeries[]): number[] {
  const p999 = (name: string) => series.find(({ candidate }) => candidate === name)?.p999Ms ?? [];
  return pairRounds(p999(OURS), p999(BARE), ratio);
}

function idleMemory(starts: readonly StartSeries[]): number[] {
  const bytes = (name: string) => starts.find(({ candidate }) => candidate === name)?.idleBytes ?? [];
  return pairRounds(bytes(OURS), bytes("node:http"), ratio);
}

function growth(memory: readonly MemorySeries[]): number[] {
  return memory.filter(({ candidate }) => candidate === OURS).map(memoryGrowth);
}
