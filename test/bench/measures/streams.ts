import type { Candidate, CandidateName } from "../candidates/candidate.ts";
import type { StreamsRead } from "../load/read-streams.ts";
import { readStreams } from "../load/scripts.ts";
import type { Plan } from "../plan.ts";
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

const APART_MS = 1;
const AFTER_SECONDS = 0.5;

export async function measureStreams(
  scene: Scene,
  candidates: readonly Candidate[],
  plan: Plan,
): Promise<StreamSeries[]> {
  const series = new Map<string, StreamSeries & { rounds: StreamRound[] }>();
  for (let round = 0; round < plan.streamRounds; round += 1) {
    for (const { streams, events, only } of plan.streams) {
      scene.say(`round ${round + 1} of ${plan.streamRounds}: ${streams} streams`);
      for (const candidate of inTurn(candidates, round, only)) {
        const read = await watched(candidate, () =>
          readStreams(scene, {
            way: candidate.ways.stream,
            body: streamBody(events),
            streams,
            apartMs: APART_MS,
          }),
        );
        const key = `${candidate.name} ${streams}`;
        const known = series.get(key) ?? { candidate: candidate.name, streams, rounds: [] };
        known.rounds.push(read);
        series.set(key, known);
      }
    }
  }
  return [...series.values()];
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
