import type { Child, Command } from "../processes/children.ts";
import { untilListening } from "../processes/listening.ts";
import type { Scene } from "../processes/scene.ts";
import type { Upstreams } from "../upstream/upstreams.ts";

export type CandidateName = "direct" | "nginx" | "http-proxy-3" | "httpxy" | "keybearer" | "portkey" | "node";

/** One way to ask it: the address, and the headers that belong to it. */
export interface Way {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Ways {
  readonly plain: Way;
  readonly stream: Way;
  readonly download: Way;
}

/** Ready to be started: everything it needs lies in its folder. */
export interface Prepared {
  /** null: nothing is started, requests go to the upstream itself. */
  readonly command: Command | null;
  readonly port: number;
  readonly ways: Ways;
}

/** Something to be measured. */
export interface Kind {
  readonly name: CandidateName;
  /** What it is and how it is set up, for the table. */
  readonly title: string;
  /** null: it is not to be had here, and `missing` says why. */
  version(): string | null;
  readonly missing: string;
  prepare(scene: Scene, upstreams: Upstreams): Promise<Prepared>;
}

/** One that runs. */
export interface Candidate {
  readonly name: CandidateName;
  readonly title: string;
  readonly version: string;
  readonly ways: Ways;
  /** null: it is the upstream itself. */
  readonly child: Child | null;
  /** From the start of its process until its port accepted. */
  readonly startMs: number;
}

export async function startCandidate(kind: Kind, scene: Scene, upstreams: Upstreams): Promise<Candidate> {
  const { command, port, ways } = await kind.prepare(scene, upstreams);
  const { name, title } = kind;
  const shown = { name, title, version: kind.version() ?? "", ways };
  if (command === null) return { ...shown, child: null, startMs: 0 };
  const began = performance.now();
  const child = scene.children.start(command);
  await untilListening(child, port).catch((error: Error) => {
    throw new Error(`${name} could not be started: ${error.message}`);
  });
  return { ...shown, child, startMs: performance.now() - began };
}
