import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** CPU time and memory of a process and all its descendants, from /proc (Linux only). */

/** CPU time so far. */
export interface CpuReading {
  /** Nanoseconds of each thread that runs, by thread id. */
  readonly threads: ReadonlyMap<string, number>;
  /** User and system time of all threads, ended ones included, and of ended children, in steps of 10 ms. */
  readonly coarseMs: number;
}

/** USER_HZ is 100 on every Linux that Node supports. */
const TICK_MS = 10;

export function readCpu(pid: number): CpuReading {
  const threads = new Map<string, number>();
  let ticks = 0;
  for (const process of processTree(pid)) {
    // utime, stime, cutime, cstime: proc_pid_stat(5), fields 14 to 17.
    for (const field of process.stat.slice(11, 15)) ticks += Number(field);
    for (const thread of unlessEnded(() => readdirSync(`/proc/${process.pid}/task`)) ?? []) {
      const text = tryRead(`/proc/${process.pid}/task/${thread}/schedstat`);
      if (text !== null) threads.set(thread, Number(text.split(" ")[0]));
    }
  }
  return { threads, coarseMs: ticks * TICK_MS };
}

/** Milliseconds of user and system time between two readings. */
export function cpuBetween(before: CpuReading, after: CpuReading): number {
  let nanoseconds = 0;
  for (const [thread, time] of after.threads) nanoseconds += time - (before.threads.get(thread) ?? 0);
  // A thread that ended took its exact time with it. Only the coarse figure still has it.
  const threadEnded = [...before.threads.keys()].some((thread) => !after.threads.has(thread));
  return threadEnded ? after.coarseMs - before.coarseMs : nanoseconds / 1e6;
}

/** The same of one thread. The main thread of a process has the process's number. */
export function cpuOfThread(before: CpuReading, after: CpuReading, thread: number): number {
  const timeIn = ({ threads }: CpuReading) => threads.get(String(thread)) ?? 0;
  return (timeIn(after) - timeIn(before)) / 1e6;
}

const QUIET_CHECK_MS = 25;
const QUIET_CPU_MS = 0.5;
const MAX_CHECKS = 40;

/** Waits until the work that follows a load is done (log lines, the usage index), so that it counts for that load. */
export async function untilQuiet(pid: number): Promise<CpuReading> {
  let last = readCpu(pid);
  for (let check = 0; check < MAX_CHECKS; check += 1) {
    await sleep(QUIET_CHECK_MS);
    const now = readCpu(pid);
    const spent = cpuBetween(last, now);
    last = now;
    if (spent < QUIET_CPU_MS) break;
  }
  return last;
}

export function readMemory(pid: number): number {
  let kilobytes = 0;
  for (const process of processTree(pid)) {
    const status = tryRead(`/proc/${process.pid}/status`) ?? "";
    kilobytes += Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0);
  }
  return kilobytes * 1024;
}

interface ProcessEntry {
  readonly pid: string;
  readonly parent: string;
  /** The fields of /proc/PID/stat from the third on. The second is a name that may contain spaces. */
  readonly stat: readonly string[];
}

function processTree(pid: number): ProcessEntry[] {
  const all: ProcessEntry[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const text = tryRead(`/proc/${name}/stat`);
    if (text === null) continue;
    const stat = text.slice(text.lastIndexOf(")") + 2).split(" ");
    all.push({ pid: name, parent: stat[1] ?? "", stat });
  }
  const tree = all.filter((process) => process.pid === String(pid));
  for (const parent of tree) tree.push(...all.filter((process) => process.parent === parent.pid));
  return tree;
}

/** null when the process or thread ended meanwhile. */
function unlessEnded<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    // That a process ended between two reads is no failure.
    return null;
  }
}

function tryRead(file: string): string | null {
  return unlessEnded(() => readFileSync(file, "utf8"));
}
