import type { Target } from "./connection.ts";
import { type CpuReading, cpuBetween, untilQuiet } from "./footprint.ts";
import type { StreamsJob } from "./load.ts";
import {
  EVENTS_PER_STREAM,
  type LatencySlice,
  type Plan,
  type RequestSlice,
  STREAM_PROMPT_KB,
  type StreamSlice,
} from "./plan.ts";
import type { Running, Session } from "./session.ts";

/** What is measured under load. All lists have one entry a round, in the same order for every candidate. */

export interface RequestSeries {
  readonly candidate: string;
  readonly slice: RequestSlice;
  readonly cpuMicroseconds: number[];
  failed: number;
}

export interface LatencySeries {
  /** "direct" is the upstream without a candidate. */
  readonly candidate: string;
  readonly slice: LatencySlice;
  readonly p50Ms: number[];
  readonly p99Ms: number[];
}

export interface StreamSeries {
  readonly candidate: string;
  readonly slice: StreamSlice;
  readonly cpuMilliseconds: number[];
  /** Empty for streams without a pace. */
  readonly lateP50Ms: number[];
  readonly lateP99Ms: number[];
  failed: number;
}

/** How long a small request waits for a busy process: its event-loop delay, seen from outside. */
export interface DelaySeries {
  readonly candidate: string;
  readonly p50Ms: number[];
  readonly p999Ms: number[];
}

const KB = 1000;

/** Each round begins with another candidate, so that none is always first. */
export function rotate<T>(all: readonly T[], round: number): T[] {
  const first = all.length === 0 ? 0 : round % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

/** A gateway that converts takes 5 to 100 times as long for a request, so it gets fewer of them. */
function requestsFor({ kind }: Running, requests: number): number {
  return kind.converts ? Math.ceil(requests / 10) : requests;
}

export async function warmUp(session: Session, candidate: Running, plan: Plan): Promise<void> {
  const { target, name } = candidate;
  session.log(`${name}: warming up`);
  const small = requestsFor(candidate, plan.warmUpRequests);
  const large = requestsFor(candidate, 200);
  await session.requests({ target, promptBytes: KB, connections: 16, reconnect: false, requests: small });
  await session.requests({
    target,
    promptBytes: 100 * KB,
    connections: 8,
    reconnect: false,
    requests: large,
  });
  const streams: StreamSlice = { protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 0 };
  await session.streams(streamsJob(streams, target));
}

export async function measureRequests(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
): Promise<RequestSeries[]> {
  const all = plan.requests.flatMap((slice) =>
    candidates.map((candidate) => ({
      candidate,
      series: { candidate: candidate.name, slice, cpuMicroseconds: [], failed: 0 } as RequestSeries,
    })),
  );
  for (let round = 0; round < plan.rounds; round += 1) {
    session.log(`CPU per request, round ${round + 1} of ${plan.rounds}`);
    for (const slice of plan.requests) {
      const ofSlice = all.filter(({ series }) => series.slice === slice);
      for (const { candidate, series } of rotate(ofSlice, round)) {
        const { target, child } = candidate;
        const before = await readyForLoad(session, candidate);
        const promptBytes = slice.promptKb * KB;
        const requests = requestsFor(candidate, slice.requests);
        const result = await session.requests({ ...slice, target, promptBytes, requests });
        const after = await untilQuiet(child.pid);
        series.cpuMicroseconds.push((cpuBetween(before, after) * 1000) / result.completed);
        series.failed += result.failed;
      }
    }
  }
  return all.map(({ series }) => series);
}

export async function measureLatency(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
): Promise<LatencySeries[]> {
  const targets = [{ name: "direct", target: session.upstream }, ...candidates];
  const all = plan.latency.flatMap((slice) =>
    targets.map(({ name, target }) => ({
      target,
      series: { candidate: name, slice, p50Ms: [], p99Ms: [] } as LatencySeries,
    })),
  );
  for (let round = 0; round < plan.rounds; round += 1) {
    session.log(`latency on one connection, round ${round + 1} of ${plan.rounds}`);
    for (const slice of plan.latency) {
      const ofSlice = all.filter(({ series }) => series.slice === slice);
      for (const { target, series } of rotate(ofSlice, round)) {
        const load = { target, promptBytes: slice.promptKb * KB, connections: 1, reconnect: false };
        // The first requests wait for connections to be opened.
        await session.requests({ ...load, requests: 10 });
        const result = await session.requests({ ...load, requests: slice.requests });
        series.p50Ms.push(result.p50Ms);
        series.p99Ms.push(result.p99Ms);
      }
    }
  }
  return all.map(({ series }) => series);
}

export async function measureStreams(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
): Promise<StreamSeries[]> {
  const measured: StreamSeries[] = [];
  for (const slice of plan.streams) {
    // Gateways that convert know this protocol under other paths and names.
    const compared = candidates.filter(({ kind }) => slice.protocol === "chat" || !kind.converts);
    const all = compared.map((candidate) => ({
      candidate,
      series: {
        candidate: candidate.name,
        slice,
        cpuMilliseconds: [],
        lateP50Ms: [],
        lateP99Ms: [],
        failed: 0,
      } as StreamSeries,
    }));
    for (let round = 0; round < plan.streamRounds; round += 1) {
      const pace = slice.paceMs === 0 ? "at once" : `every ${slice.paceMs} ms`;
      const load = `${slice.protocol} streams, ${slice.clients} clients, events ${pace}`;
      session.log(`${load}, round ${round + 1} of ${plan.streamRounds}`);
      for (const { candidate, series } of rotate(all, round)) {
        const before = await readyForLoad(session, candidate);
        const result = await session.streams(streamsJob(slice, candidate.target));
        const after = await untilQuiet(candidate.child.pid);
        series.cpuMilliseconds.push(cpuBetween(before, after) / result.completed);
        if (result.lateP50Ms !== null) series.lateP50Ms.push(result.lateP50Ms);
        if (result.lateP99Ms !== null) series.lateP99Ms.push(result.lateP99Ms);
        series.failed += result.failed;
      }
    }
    measured.push(...all.map(({ series }) => series));
  }
  return measured;
}

/** 32 clients that read 6,400 events a second and send a new prompt of 100 KB after every hundred events. */
const DELAY_LOAD = { clients: 32, streamsPerClient: 8, events: 100, paceMs: 5, startEveryMs: 10 } as const;
/** Together shorter than that load. */
const PROBES = { everyMs: 2, probes: 2000 } as const;

/**
 * Node's own event-loop histogram would need code inside the process, and keybearer refuses options that load some. So a
 * second load process sends GET requests that the candidate answers by itself, at a steady pace.
 */
export async function measureDelay(
  session: Session,
  candidates: readonly Running[],
  plan: Plan,
): Promise<DelaySeries[]> {
  if (plan.delayRounds === 0) return [];
  const all = candidates
    .filter(({ kind }) => kind.healthPath !== null)
    .map((candidate) => ({
      candidate,
      series: { candidate: candidate.name, p50Ms: [], p999Ms: [] } as DelaySeries,
    }));
  for (let round = 0; round < plan.delayRounds; round += 1) {
    session.log(`event-loop delay under load, round ${round + 1} of ${plan.delayRounds}`);
    for (const { candidate, series } of rotate(all, round)) {
      const { target, kind } = candidate;
      await readyForLoad(session, candidate);
      const load = session.streams({
        ...DELAY_LOAD,
        target,
        protocol: "chat",
        promptBytes: STREAM_PROMPT_KB * KB,
      });
      const result = await session.probe({ ...PROBES, target, path: kind.healthPath ?? "" });
      await load;
      series.p50Ms.push(result.p50Ms);
      series.p999Ms.push(result.p999Ms);
    }
  }
  return all.map(({ series }) => series);
}

/**
 * keybearer ends the thread of its usage index after five idle seconds. These requests start it again before the reading,
 * or the start of a thread would count for a few hundred requests.
 */
async function readyForLoad(session: Session, { target, child, stateFolder }: Running): Promise<CpuReading> {
  if (stateFolder !== null)
    await session.requests({ target, promptBytes: KB, connections: 8, reconnect: false, requests: 200 });
  return await untilQuiet(child.pid);
}

/** Between the starts of two paced streams: opening one takes CPU, and 200 at once would be a queue. */
const START_EVERY_MS = 10;

function streamsJob(slice: StreamSlice, target: Target): Omit<StreamsJob, "kind"> {
  return {
    ...slice,
    target,
    promptBytes: STREAM_PROMPT_KB * KB,
    events: EVENTS_PER_STREAM,
    startEveryMs: slice.paceMs === 0 ? 0 : START_EVERY_MS,
  };
}
