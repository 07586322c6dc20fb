import { judge } from "../../src/mirror/match/judge.ts";
import { makeDay, sceneOf, theirsOf } from "../doubles/mirror-day.ts";

/**
 * What comparing a day takes, in milliseconds of the processor, so that others on the machine do not count, and what it
 * leaves on the heap.
 *   node --expose-gc test/bench/mirror-match.ts [requests]
 */
const requests = Number(process.argv[2] ?? 20_000);
const say = (text: string) => process.stdout.write(`${text}\n`);
const collect = () => (globalThis as { gc?: () => void }).gc?.();

for (const ids of [true, false]) {
  const day = makeDay({ requests, ids });
  const [theirs, scene] = [theirsOf(day), sceneOf(day)];
  say(`${day.ours.length} requests, ${theirs.length} rows, ${ids ? "with" : "without"} ids:`);
  for (let round = 0; round < 5; round += 1) {
    collect();
    const heap = process.memoryUsage().heapUsed;
    const began = process.cpuUsage();
    const { rows, records } = judge(day.ours, theirs, scene);
    const took = process.cpuUsage(began);
    const grown = process.memoryUsage().heapUsed - heap;
    collect();
    const kept = process.memoryUsage().heapUsed - heap;
    const milliseconds = Math.round((took.user + took.system) / 1000);
    const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
    say(
      `  ${milliseconds} ms, heap ${megabytes(grown)} more at its end, ${megabytes(kept)} for ${rows.length + records.length} verdicts`,
    );
  }
}
