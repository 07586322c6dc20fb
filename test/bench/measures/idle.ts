import { type CandidateName, type Kind, startCandidate } from "../candidates/candidate.ts";
import type { Plan } from "../plan.ts";
import { footprintOf } from "../processes/footprint.ts";
import type { Scene } from "../processes/scene.ts";
import type { Upstreams } from "../upstream/upstreams.ts";
import { pause } from "./rounds.ts";

export interface Idle {
  readonly candidate: CandidateName;
  readonly rssBytes: number;
  readonly seconds: number;
  readonly cpuMs: number;
  /** null where the system does not tell. */
  readonly wakeUpsPerSecond: number | null;
}

/** Fresh processes that nobody asked anything yet, all watched over the same time. */
export async function measureIdle(
  scene: Scene,
  kinds: readonly Kind[],
  upstreams: Upstreams,
  { settleSeconds, idleSeconds }: Plan,
): Promise<Idle[]> {
  scene.say(`idle for ${idleSeconds} s`);
  const started = [];
  for (const kind of kinds) started.push(await startCandidate(kind, scene, upstreams));
  const watched = started.flatMap(({ name, child }) => (child === null ? [] : [{ name, child }]));
  await pause(settleSeconds);
  const before = watched.map(({ child }) => footprintOf(child.pid));
  await pause(idleSeconds);
  const idle = watched.map(({ name, child }, at): Idle => {
    const [from, to] = [before[at], footprintOf(child.pid)];
    const woken = to.wakeUps === null ? null : (to.wakeUps - (from?.wakeUps ?? 0)) / idleSeconds;
    return {
      candidate: name,
      rssBytes: to.rssBytes,
      seconds: idleSeconds,
      cpuMs: to.cpuMs - (from?.cpuMs ?? 0),
      wakeUpsPerSecond: woken,
    };
  });
  for (const { child } of watched) await scene.children.end(child);
  return idle;
}
