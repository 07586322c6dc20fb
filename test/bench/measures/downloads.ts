import type { Candidate, CandidateName } from "../candidates/candidate.ts";
import { download } from "../load/scripts.ts";
import type { Plan } from "../plan.ts";
import type { Scene } from "../processes/scene.ts";
import { DOWNLOAD_BYTES } from "../upstream/bodies.ts";
import { inTurn } from "./rounds.ts";

export interface DownloadSeries {
  readonly candidate: CandidateName;
  /** Bytes of the body a second, one entry a round. */
  readonly rounds: readonly number[];
}

export async function measureDownloads(
  scene: Scene,
  candidates: readonly Candidate[],
  plan: Plan,
): Promise<DownloadSeries[]> {
  const series = new Map<CandidateName, number[]>();
  for (let round = 0; round < plan.downloadRounds; round += 1) {
    scene.say(`round ${round + 1} of ${plan.downloadRounds}: an answer of 100 MB`);
    for (const { name, ways } of inTurn(candidates, round)) {
      const { ok, bytes, seconds } = await download(scene, ways.download);
      if (!ok || bytes < DOWNLOAD_BYTES) throw new Error(`${name} cut the large answer after ${bytes} bytes`);
      const rounds = series.get(name) ?? [];
      rounds.push(DOWNLOAD_BYTES / seconds);
      series.set(name, rounds);
    }
  }
  return [...series].map(([candidate, rounds]) => ({ candidate, rounds }));
}
