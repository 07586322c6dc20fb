import { existsSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import type { Children } from "./children.ts";
import { footprintOf } from "./footprint.ts";

/** Time on processors so far: of everybody, and of the bench with all it started. */
interface Spent {
  readonly atMs: number;
  readonly everybodyMs: number;
  readonly oursMs: number;
}

/**
 * Watches what others take of the machine's processors from now on: it is why two runs disagree. Returns a function that
 * tells the share, from 0 to 1; null where the system does not tell what ended processes took.
 */
export function watchOthers(children: Children): () => number | null {
  if (!existsSync("/proc/self/stat")) return () => null;
  const before = spent(children);
  return () => {
    const after = spent(children);
    const others = after.everybodyMs - before.everybodyMs - (after.oursMs - before.oursMs);
    return Math.max(0, others) / ((after.atMs - before.atMs) * cpus().length);
  };
}

/** What /proc counts in is a hundredth of a second on every Linux that Node runs on. */
const TICK_MS = 10;

function spent(children: Children): Spent {
  const everybodyMs = cpus().reduce(
    (sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq,
    0,
  );
  // The name, in brackets, may hold spaces; utime, stime, and both of the children that ended, are fields 14 to 17.
  const fields = readFileSync("/proc/self/stat", "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  const ended = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * TICK_MS, 0);
  const running = children.running().reduce((sum, pid) => sum + footprintOf(pid).cpuMs, 0);
  return { atMs: performance.now(), everybodyMs, oursMs: ended + running };
}
