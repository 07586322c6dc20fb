import type { Target } from "./connection.ts";
import { type CpuReading, cpuBetween, untilQuiet } from "./footprint.ts";
import type { StreamsJob } from "./load.ts";
import {
  EVENTS_PER_STREAM,
  type Plan,
  type RequestSlice,
  STREAM_PROMPT_KB,
  type StreamSlice,
} from "./plan.ts";
import type { Running, Session } from "./session.ts";

/** What one candidate did under one load, one entry a round. */
export interface RequestSeries {
  readonly candidate: string;
  readonly slice: RequestSlice;
  readonly cpuMicroseconds: number[];
  failed: number;
}

export interface StreamSeries {
  readonly candidate: string;
  readonly slice: StreamSlice;
  readonly cpuMilliseconds: number[];
  readonly lateP50Ms: number[];
  readonly lateP99Ms: number[];
  failed: number;
}

const KB = 1000;

/** Each round begins with another candidate, so that none is always first. */
export function rotated<T>(all: readonly T[], round: number): T[] {
  const first = all.length === 0 ? 0 : round % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

/** Compiles the code and opens connections before anything counts. */
export async function warmUp(session: Session, candidates: readonly Running[], plan: Plan): Promise<void> {
  for (const { target } of candidates) {
    const { smallRequests, largeRequests, streams } = plan.warmUp;
    const load = session.generator;
    await load.requests({ target, promptBytes: KB, connections: 16, requests: smallRequests });
    await load.requests({ target, promptBytes: 100 * KB, connections: 8, requests: largeRequests });
    await load.streams(
      streamsJob({ protocol: "chat", clients: streams, streamsPerClient: 1, paceMs: 0 }, target),
    );
  }
}

export async function measureRequests(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
  log: (text: string) => void,
): Promise<RequestSeries[]> {
  const all: RequestSeries[] = [];
  for (const slice of plan.requests) {
    for (const { name } of candidates) all.push({ candidate: name, slice, cpuMicroseconds: [], failed: 0 });
  }
  for (let round = 0; round < plan.requestRounds; round += 1) {
    log(`CPU per request, round ${round + 1} of ${plan.requestRounds}`);
    for (const slice of plan.requests) {
      for (const { name, target, child } of rotated(candidates, round)) {
        const series = all.find((one) => one.slice === slice && one.candidate === name);
        if (series === undefined) continue;
        const before = await untilReady(session, target, child.pid);
        const result = await session.generator.requests({
          target,
          promptBytes: slice.promptKb * KB,
          connections: slice.connections,
          requests: slice.requests,
        });
        const after = await untilQuiet(child.pid);
        series.cpuMicroseconds.push((cpuBetween(before, after) * 1000) / result.completed);
        series.failed += result.failed;
      }
    }
  }
  return all;
}

export async function measureStreams(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
  log: (text: string) => void,
): Promise<StreamSeries[]> {
  const all: StreamSeries[] = [];
  for (const slice of plan.streams) {
    const compared = candidates.filter(({ kind }) => slice.protocol === "chat" || !kind.converts);
    const ofSlice: StreamSeries[] = compared.map(({ name }) => ({
      candidate: name,
      slice,
      cpuMilliseconds: [],
      lateP50Ms: [],
      lateP99Ms: [],
      failed: 0,
    }));
    all.push(...ofSlice);
    for (let round = 0; round < plan.streamRounds; round += 1) {
      log(`streams, ${slice.clients} clients, round ${round + 1} of ${plan.streamRounds}`);
      for (const { name, target, child } of rotated(compared, round)) {
        const series = ofSlice.find((one) => one.candidate === name);
        if (series === undefined) continue;
        const before = await untilReady(session, target, child.pid);
        const result = await session.generator.streams(streamsJob(slice, target));
        const after = await untilQuiet(child.pid);
        series.cpuMilliseconds.push(cpuBetween(before, after) / result.completed);
        if (result.lateP50Ms !== null) series.lateP50Ms.push(result.lateP50Ms);
        if (result.lateP99Ms !== null) series.lateP99Ms.push(result.lateP99Ms);
        series.failed += result.failed;
      }
    }
  }
  return all;
}

/**
 * keybearer ends the thread of its usage index after five idle seconds. These requests start it again before the reading,
 * or the start of a thread would count for a few hundred requests.
 */
async function untilReady(session: Session, target: Target, pid: number): Promise<CpuReading> {
  await session.generator.requests({ target, promptBytes: KB, connections: 8, requests: 200 });
  return await untilQuiet(pid);
}

const START_EVERY_MS = 10;

function streamsJob(slice: StreamSlice, target: Target): Omit<StreamsJob, "kind"> {
  return {
    target,
    protocol: slice.protocol,
    promptBytes: STREAM_PROMPT_KB * KB,
    clients: slice.clients,
    streamsPerClient: slice.streamsPerClient,
    events: EVENTS_PER_STREAM,
    paceMs: slice.paceMs,
    startEveryMs: slice.paceMs === 0 ? 0 : START_EVERY_MS,
  };
}
