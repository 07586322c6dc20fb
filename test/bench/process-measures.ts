import { setTimeout as sleep } from "node:timers/promises";
import type { CandidateKind } from "./candidates.ts";
import { readMemory } from "./footprint.ts";
import { rotate } from "./load-measures.ts";
import type { Plan } from "./plan.ts";
import type { Session } from "./session.ts";

/** Start time and memory of fresh processes. */

export interface StartSeries {
  readonly candidate: string;
  /** From the start of the process until its port accepts a connection. */
  readonly startMs: number[];
  /** Resident memory of the process tree, two seconds after the start, before any request. */
  readonly idleBytes: number[];
}

export interface MemorySeries {
  readonly candidate: string;
  readonly requests: number;
  /** After each twentieth of the requests. */
  readonly bytes: number[];
}

const IDLE_SECONDS = 2;

export async function measureStarts(
  session: Session,
  kinds: readonly CandidateKind[],
  plan: Plan,
): Promise<StartSeries[]> {
  const all = kinds.map((kind) => ({
    kind,
    series: { candidate: kind.name, startMs: [], idleBytes: [] } as StartSeries,
  }));
  for (let round = 0; round < plan.startRounds; round += 1) {
    session.log(`start time and idle memory, round ${round + 1} of ${plan.startRounds}`);
    const started = [];
    for (const { kind, series } of rotate(all, round)) {
      const running = await session.start(kind);
      series.startMs.push(running.startMs);
      started.push({ child: running.child, series });
    }
    await sleep(IDLE_SECONDS * 1000);
    for (const { child, series } of started) {
      series.idleBytes.push(readMemory(child.pid));
      await child.stop();
    }
  }
  return all.map(({ series }) => series);
}

const PARTS = 20;

/** Requests to a fresh process, and its memory on the way. */
export async function measureMemory(
  session: Session,
  kinds: readonly CandidateKind[],
  plan: Plan,
): Promise<MemorySeries[]> {
  const measured: MemorySeries[] = [];
  if (plan.flatRequests === 0) return measured;
  for (const kind of kinds) {
    session.log(`${kind.name}: memory over ${plan.flatRequests} requests`);
    const { target, child } = await session.start(kind);
    const bytes: number[] = [];
    const load = { target, promptBytes: 1000, connections: 16, reconnect: false };
    for (let part = 0; part < PARTS; part += 1) {
      await session.requests({ ...load, requests: plan.flatRequests / PARTS });
      bytes.push(readMemory(child.pid));
    }
    await child.stop();
    measured.push({ candidate: kind.name, requests: plan.flatRequests, bytes });
  }
  return measured;
}

/** The mean of the last fifth over the mean of the second fifth. In the first one the heap grows to its working size. */
export function memoryGrowth({ bytes }: MemorySeries): number {
  const fifth = Math.max(1, Math.floor(bytes.length / 5));
  return mean(bytes.slice(-fifth)) / mean(bytes.slice(fifth, 2 * fifth));
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
