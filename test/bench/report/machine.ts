import { cpus, loadavg, platform, release, totalmem } from "node:os";

/** What the numbers were measured on. */
export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly system: string;
  readonly node: string;
  /** How many others wanted a processor in the minute before. */
  readonly loadBefore: number;
}

export function describeMachine(): Machine {
  const all = cpus();
  return {
    processor: (all[0]?.model ?? "unknown processor").trim(),
    cores: all.length,
    memoryBytes: totalmem(),
    // Not what follows the version: builds of a system name their builder.
    system: `${platform()} ${release().split("-")[0]}`,
    node: process.versions.node,
    loadBefore: loadavg()[0] ?? 0,
  };
}

export function machineInWords({ processor, cores, memoryBytes, system, node }: Machine): string {
  const memory = `${Math.round(memoryBytes / 1024 ** 3)} GB`;
  return `${processor}, ${cores} cores, ${memory}, ${system}, node ${node}`;
}
