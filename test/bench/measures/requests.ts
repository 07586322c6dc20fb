import type { Candidate, CandidateName } from "../candidates/candidate.ts";
import type { Loaded, LoadGenerator } from "../load/load.ts";
import type { Plan } from "../plan.ts";
import { footprintOf } from "../processes/footprint.ts";
import type { Scene } from "../processes/scene.ts";
import { BODY_SIZES, type BodySize, requestBody } from "../upstream/bodies.ts";
import { inTurn } from "./rounds.ts";

export interface LoadRound extends Loaded {
  /**
   * Time its process spent on a processor for each request: what others on the machine do changes it least. null of the
   * upstream itself.
   */
  readonly cpuMicroseconds: number | null;
}

/** What one candidate did under one load: one entry a round. */
export interface LoadSeries {
  readonly candidate: CandidateName;
  readonly connections: number;
  readonly body: BodySize;
  readonly rounds: readonly LoadRound[];
}

/**
 * Before anything counts: code is compiled, connections are made, caches are filled. By requests, not by time: on a busy
 * machine a second is too few of them for whoever does most.
 */
export async function warmUp(
  scene: Scene,
  generator: LoadGenerator,
  candidates: readonly Candidate[],
  { seconds, warmRequests, warmParts }: Plan,
): Promise<void> {
  const body = requestBody(BODY_SIZES.small);
  for (const { name, ways } of candidates) {
    scene.say(`${name}: warming up`);
    let requests = 0;
    for (let part = 0; part < warmParts && requests < warmRequests; part += 1) {
      const loaded = await generator.run(scene, { way: ways.plain, body, connections: 16, seconds });
      requests += loaded.requests;
    }
  }
}

export async function measureRequests(
  scene: Scene,
  generator: LoadGenerator,
  candidates: readonly Candidate[],
  plan: Plan,
): Promise<LoadSeries[]> {
  const series = new Map<string, LoadSeries & { rounds: LoadRound[] }>();
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const { connections, body, only } of plan.loads) {
      scene.say(`round ${round + 1} of ${plan.rounds}: ${connections} connections, ${body} body`);
      for (const { name, ways, child } of inTurn(candidates, round, only)) {
        const asked = { way: ways.plain, body: requestBody(BODY_SIZES[body]), connections };
        const used = () => (child === null ? 0 : footprintOf(child.pid).cpuMs);
        const before = used();
        const loaded = await generator.run(scene, { ...asked, seconds: plan.seconds });
        const cpuMicroseconds = child === null ? null : ((used() - before) * 1000) / loaded.requests;
        const key = `${name} ${connections} ${body}`;
        const known = series.get(key) ?? { candidate: name, connections, body, rounds: [] };
        known.rounds.push({ ...loaded, cpuMicroseconds });
        series.set(key, known);
      }
    }
  }
  return [...series.values()];
}
