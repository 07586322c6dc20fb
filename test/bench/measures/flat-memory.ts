import { type Candidate, type CandidateName, type Kind, startCandidate } from "../candidates/candidate.ts";
import type { LoadGenerator } from "../load/load.ts";
import { footprintOf } from "../processes/footprint.ts";
import type { Scene } from "../processes/scene.ts";
import { BODY_SIZES, requestBody } from "../upstream/bodies.ts";
import type { Upstreams } from "../upstream/upstreams.ts";

export interface FlatMemory {
  readonly candidate: CandidateName;
  readonly requests: number;
  /** Memory after each part of the requests, beginning when a fifth of them was through. */
  readonly rssBytes: readonly number[];
  /** The mean of the last third over that of the first. */
  readonly growth: number;
}

const MOST_PARTS = 200;

/** So many requests to a fresh process, and its memory on the way. */
export async function measureFlatMemory(
  scene: Scene,
  generator: LoadGenerator,
  kinds: readonly Kind[],
  upstreams: Upstreams,
  requests: number,
): Promise<FlatMemory[]> {
  const all: FlatMemory[] = [];
  for (const kind of requests === 0 ? [] : kinds) {
    scene.say(`${requests} requests to ${kind.name}`);
    const candidate = await startCandidate(kind, scene, upstreams);
    if (candidate.child === null) continue;
    all.push(await grown(scene, generator, candidate, candidate.child.pid, requests));
    await scene.children.end(candidate.child);
  }
  return all;
}

async function grown(
  scene: Scene,
  generator: LoadGenerator,
  { name, ways }: Candidate,
  pid: number,
  wanted: number,
): Promise<FlatMemory> {
  const load = { way: ways.plain, body: requestBody(BODY_SIZES.small), connections: 16, seconds: 1 };
  const rssBytes: number[] = [];
  let requests = 0;
  for (let part = 0; requests < wanted && part < MOST_PARTS; part += 1) {
    requests += (await generator.run(scene, load)).requests;
    // Until then a heap grows to the size it works at.
    if (requests > wanted / 5) rssBytes.push(footprintOf(pid).rssBytes);
  }
  const third = Math.max(1, Math.floor(rssBytes.length / 3));
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    candidate: name,
    requests,
    rssBytes,
    growth: mean(rssBytes.slice(-third)) / mean(rssBytes.slice(0, third)),
  };
}
