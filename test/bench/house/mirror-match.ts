import { judge } from "../../../src/mirror/match/judge.ts";
import { makeDay, sceneOf, theirsOf } from "../../doubles/mirror-day.ts";
import { median } from "../report/statistics.ts";

/*
 * What comparing a day takes, in milliseconds of the processor, so that others on the machine do not count, and what it
 * leaves on the heap.
 *   node --expose-gc mirror-match.js <requests>
 */

export interface MatchTimes {
  readonly ids: boolean;
  readonly requests: number;
  readonly rows: number;
  readonly cpuMs: number;
  /** On the heap for all verdicts, once the rest was collected. */
  readonly keptBytes: number;
}

const ROUNDS = 5;
const requests = Number(process.argv[2] ?? 20_000);
const collect = () => (globalThis as { gc?: () => void }).gc?.();

function match(ids: boolean): MatchTimes {
  const day = makeDay({ requests, ids });
  const [theirs, scene] = [theirsOf(day), sceneOf(day)];
  const cpu: number[] = [];
  const kept: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    collect();
    const heap = process.memoryUsage().heapUsed;
    const began = process.cpuUsage();
    const judged = judge(day.ours, theirs, scene);
    const { user, system } = process.cpuUsage(began);
    cpu.push((user + system) / 1000);
    collect();
    const verdicts = judged.rows.length + judged.records.length;
    if (verdicts > 0) kept.push(process.memoryUsage().heapUsed - heap);
  }
  const rows = theirs.length;
  return { ids, requests: day.ours.length, rows, cpuMs: median(cpu), keptBytes: median(kept) };
}

process.stdout.write(`${JSON.stringify([match(true), match(false)])}\n`);
