import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";

/** What one process takes from the machine. */
export interface Footprint {
  readonly rssBytes: number;
  /** Time on a processor since its start, all threads. */
  readonly cpuMs: number;
  /** How often its first thread, which runs the event loop, woke up; null where the system does not tell. */
  readonly wakeUps: number | null;
}

export function footprintOf(pid: number): Footprint {
  return existsSync(`/proc/${pid}/task`) ? fromProc(pid) : fromPs(pid);
}

function fromProc(pid: number): Footprint {
  const field = (file: string, name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(readFileSync(file, "utf8"))?.[1] ?? Number.NaN);
  const threads = readdirSync(`/proc/${pid}/task`);
  // Nanoseconds; the ticks of /proc/PID/stat are too coarse for an idle process.
  const onProcessor = (thread: string) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
  return {
    rssBytes: field(`/proc/${pid}/status`, "VmRSS") * 1024,
    cpuMs: threads.reduce((sum, thread) => sum + onProcessor(thread) / 1e6, 0),
    wakeUps: field(`/proc/${pid}/task/${pid}/status`, "voluntary_ctxt_switches"),
  };
}

function fromPs(pid: number): Footprint {
  const words = execFileSync("ps", ["-o", "rss=,time=", "-p", String(pid)], { encoding: "utf8" }).trim();
  const [rss = "", time = ""] = words.split(/\s+/);
  const seconds = time.split(/[:-]/).reduce((sum, part) => sum * 60 + Number(part), 0);
  return { rssBytes: Number(rss) * 1024, cpuMs: seconds * 1000, wakeUps: null };
}
