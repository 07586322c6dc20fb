import type { Candidate, CandidateName } from "../candidates/candidate.ts";
import type { StreamsRead } from "../load/read-streams.ts";
import { readStreams } from "../load/scripts.ts";
import type { Plan, StreamPlan } from "../plan.ts";
import { footprintOf } from "../processes/footprint.ts";
import type { Scene } from "../processes/scene.ts";
import { streamBody } from "../upstream/bodies.ts";
import { inTurn, pause } from "./rounds.ts";

export interface StreamRound extends StreamsRead {
  /** The most memory its process held meanwhile, and a moment later; null of the upstream itself. */
  readonly rssDuring: number | null;
  readonly rssAfter: number | null;
}

export interface StreamSeries {
  readonly candidate: CandidateName;
  readonly streams: number;
  readonly rounds: readonly StreamRound[];
}

/**
 * Between the openings of two streams. A thousand a second is about what a proxy in Node can open: whether a queue builds up
 * then depends on how fast the machine is at the moment, and the 99th of 100 of all events was the length of that queue.
 */
const APART_MS = 3;
const AFTER_SECONDS = 0.2;
/** Short streams close together, since opening and ending one is what most of the code is for; as many for every plan. */
const WARM = { rounds: 1, streams: 200, events: 5, apartMs: 1 };

/** On the processes that served requests before: as warm as one that is in use. */
export async function measureStreams(
  scene: Scene,
  candidates: readonly Candidate[],
  { streams: plans, streamRounds }: Plan,
): Promise<StreamSeries[]> {
  const all: StreamSeries[] = [];
  for (const plan of streamRounds === 0 ? [] : plans) {
    const asked = candidates.filter(({ name }) => plan.only?.includes(name) ?? true);
    const series = await measureOnePlan(scene, asked, plan, streamRounds);
    all.push(
      ...series.map(({ candidate, rounds }) => ({
        ...{ candidate: candidate.name, streams: plan.streams, rounds },
      })),
    );
  }
  return all;
}

interface OfOne {
  readonly candidate: Candidate;
  readonly rounds: StreamRound[];
}

async function measureOnePlan(
  scene: Scene,
  candidates: readonly Candidate[],
  { streams, events, again = [] }: StreamPlan,
  rounds: number,
): Promise<OfOne[]> {
  const series: OfOne[] = candidates.map((candidate) => ({ candidate, rounds: [] }));
  const read = ({ candidate }: OfOne, wanted: { streams: number; events: number; apartMs: number }) =>
    readStreams(scene, { ...wanted, way: candidate.ways.stream, body: streamBody(wanted.events) });
  scene.say(`${streams} streams: warming up`);
  for (let round = 0; round < WARM.rounds; round += 1) for (const one of series) await read(one, WARM);
  for (let round = 0; round < rounds; round += 1) {
    scene.say(`${streams} streams: round ${round + 1} of ${rounds}`);
    const onceMore = again.flatMap((name) => series.filter(({ candidate }) => candidate.name === name));
    for (const one of [...inTurn(series, round), ...onceMore])
      one.rounds.push(await watched(one.candidate, () => read(one, { streams, events, apartMs: APART_MS })));
  }
  return series;
}

async function watched({ child }: Candidate, read: () => Promise<StreamsRead>): Promise<StreamRound> {
  if (child === null) return { ...(await read()), rssDuring: null, rssAfter: null };
  let most = 0;
  const look = () => {
    most = Math.max(most, footprintOf(child.pid).rssBytes);
  };
  const timer = setInterval(look, 100);
  try {
    const done = await read();
    await pause(AFTER_SECONDS);
    return { ...done, rssDuring: most, rssAfter: footprintOf(child.pid).rssBytes };
  } finally {
    clearInterval(timer);
  }
}
