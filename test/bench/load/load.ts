import type { Way } from "../candidates/candidate.ts";
import type { Scene } from "../processes/scene.ts";

export interface Load {
  readonly way: Way;
  readonly body: string;
  readonly connections: number;
  readonly seconds: number;
}

export interface Loaded {
  readonly rps: number;
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers other than 2xx, and connections that broke. */
  readonly errors: number;
}

/** Sends as many requests as the connections let through, from a process of its own. */
export interface LoadGenerator {
  /** Its name and version. */
  readonly name: string;
  run(scene: Scene, load: Load): Promise<Loaded>;
}
