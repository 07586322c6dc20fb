import type { Candidate, CandidateName } from "../candidates/candidate.ts";
import type { Load, Loaded, LoadGenerator } from "../load/load.ts";
import type { Plan } from "../plan.ts";
import { footprintOf } from "../processes/footprint.ts";
import type { Scene } from "../processes/scene.ts";
import { BODY_SIZES, type BodySize, requestBody } from "../upstream/bodies.ts";
import { alternating, pause } from "./rounds.ts";

export interface LoadSlice extends Loaded {
  readonly round: number;
  /** Its number in the whole run: slices that follow each other were measured right after each other. */
  readonly slice: number;
  /**
   * Time its process spent on a processor for each request: what others on the machine do changes it least. null of the
   * upstream itself, and where nothing was answered.
   */
  readonly cpuMicroseconds: number | null;
}

/** What one candidate did under one load. */
export interface LoadSeries {
  readonly candidate: CandidateName;
  readonly connections: number;
  readonly body: BodySize;
  readonly slices: readonly LoadSlice[];
}

/** What a candidate still has to write when its load ends is not to be paid for by the next one. */
const BREATH_SECONDS = 0.05;

/**
 * Before anything counts: code is compiled, connections are made, caches are filled. By requests, not by time: on a busy
 * machine a second is too few of them for whoever does most. In turn, so that nobody is warmed long before the others.
 */
export async function warmUp(
  scene: Scene,
  generator: LoadGenerator,
  candidates: readonly Candidate[],
  { seconds, warmRequests, warmParts }: Plan,
): Promise<void> {
  const body = requestBody(BODY_SIZES.small);
  const answered = new Map<CandidateName, number>();
  const cold = () => candidates.filter(({ name }) => (answered.get(name) ?? 0) < warmRequests);
  scene.say(`warming up: ${candidates.map(({ name }) => name).join(", ")}`);
  for (let part = 0; part < warmParts; part += 1) {
    for (const { name, ways } of cold()) {
      const loaded = await generator.run(scene, { way: ways.plain, body, connections: 16, seconds });
      answered.set(name, (answered.get(name) ?? 0) + loaded.requests);
    }
  }
}

export async function measureRequests(
  scene: Scene,
  generator: LoadGenerator,
  candidates: readonly Candidate[],
  plan: Plan,
): Promise<LoadSeries[]> {
  const series = new Map<string, LoadSeries & { slices: LoadSlice[] }>();
  let slice = 0;
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const { connections, body, rivals } of plan.loads) {
      scene.say(`round ${round + 1} of ${plan.rounds}: ${connections} connections, ${body} body`);
      for (const candidate of alternating(candidates, round, rivals)) {
        const { name, ways } = candidate;
        const asked = { way: ways.plain, body: requestBody(BODY_SIZES[body]), connections };
        const measured = await measureSlice(scene, generator, candidate, { ...asked, seconds: plan.seconds });
        const key = `${name} ${connections} ${body}`;
        const known = series.get(key) ?? { candidate: name, connections, body, slices: [] };
        known.slices.push({ ...measured, round, slice });
        series.set(key, known);
        slice += 1;
        await pause(BREATH_SECONDS);
      }
    }
  }
  return [...series.values()];
}

async function measureSlice(
  scene: Scene,
  generator: LoadGenerator,
  { child }: Candidate,
  load: Load,
): Promise<Omit<LoadSlice, "round" | "slice">> {
  const used = () => (child === null ? 0 : footprintOf(child.pid).cpuMs);
  const before = used();
  const loaded = await generator.run(scene, load);
  const told = child !== null && loaded.requests > 0;
  return { ...loaded, cpuMicroseconds: told ? ((used() - before) * 1000) / loaded.requests : null };
}
