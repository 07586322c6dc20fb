import { type CandidateName, type Kind, startCandidate } from "../candidates/candidate.ts";
import type { Scene } from "../processes/scene.ts";
import type { Upstreams } from "../upstream/upstreams.ts";

export interface StartSeries {
  readonly candidate: CandidateName | "node -e 0";
  /** Milliseconds from the start of the process until its port accepts; of `node -e 0`, until it has ended. */
  readonly rounds: readonly number[];
}

export async function measureStarts(
  scene: Scene,
  kinds: readonly Kind[],
  upstreams: Upstreams,
  rounds: number,
): Promise<StartSeries[]> {
  const series = new Map<StartSeries["candidate"], number[]>();
  const note = (name: StartSeries["candidate"], ms: number) =>
    series.set(name, [...(series.get(name) ?? []), ms]);
  for (let round = 0; round < rounds; round += 1) {
    scene.say(`round ${round + 1} of ${rounds}: starting`);
    note("node -e 0", await emptyNode(scene));
    for (const kind of kinds) {
      const { child, startMs } = await startCandidate(kind, scene, upstreams);
      if (child === null) continue;
      note(kind.name, startMs);
      await scene.children.end(child);
    }
  }
  return [...series].map(([candidate, times]) => ({ candidate, rounds: times }));
}

async function emptyNode({ children }: Scene): Promise<number> {
  const began = performance.now();
  await children.start({ file: process.execPath, args: ["-e", "0"] }).ended;
  return performance.now() - began;
}
