import type { ChildProcess } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Candidate } from "./candidates.ts";
import type { Target } from "./connection.ts";
import type { Job, LoadResult } from "./load.ts";
import { type Child, freePort, nextMessage, type Processes } from "./processes.ts";
import { UPSTREAM_KEY } from "./prompts.ts";

/** A candidate that runs. */
export interface Running extends Candidate {
  readonly folder: string;
  readonly target: Target;
  readonly secondPort: number;
  readonly child: Child;
  /** From the start of the process until its port accepted a connection. */
  readonly startMs: number;
}

/** The processes of one run: the upstream, two load processes and the candidates. */
export class Session {
  readonly #processes: Processes;
  readonly #folder: string;
  readonly #generator: ChildProcess;
  /** Probes come from a process of their own, so that the delays of the busy generator are not measured. */
  readonly #prober: ChildProcess;
  /** Requests and streams sent to each port, for the check of the usage log. */
  readonly #sent = new Map<number, number>();
  #started = 0;
  /** The upstream itself, for what a request takes without any candidate. */
  readonly upstream: Target;
  readonly log: (text: string) => void;

  constructor(processes: Processes, folder: string, upstreamPort: number, log: (text: string) => void) {
    this.#processes = processes;
    this.#folder = folder;
    this.#generator = processes.fork("load.js");
    this.#prober = processes.fork("load.js");
    const headers = { authorization: `Bearer ${UPSTREAM_KEY}` };
    this.upstream = { port: upstreamPort, basePath: "", headers };
    this.log = log;
  }

  async start(candidate: Candidate): Promise<Running> {
    this.#started += 1;
    // A short name, because the path of keybearer's unix socket is limited.
    const folder = join(this.#folder, String(this.#started));
    mkdirSync(folder, { mode: 0o700, recursive: true });
    const port = await freePort();
    const secondPort = await freePort();
    const prepared = candidate.prepare({ folder, port, secondPort, upstreamPort: this.upstream.port });
    const { beside } = prepared;
    // It runs until the bench ends.
    if (beside) await this.#processes.start(`${candidate.name}, store`, beside).listensOn(beside.port);
    const target = { port, basePath: prepared.basePath ?? "", headers: prepared.headers };
    const began = performance.now();
    const child = this.#processes.start(candidate.name, prepared);
    await child.listensOn(port);
    return { ...candidate, folder, target, secondPort, child, startMs: performance.now() - began };
  }

  /** Runs a Node program to its end and returns how many milliseconds that took. */
  async runToEnd(
    name: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
  ): Promise<number> {
    const began = performance.now();
    const child = this.#processes.start(name, { file: process.execPath, args, env });
    const code = await child.exited;
    if (code !== 0) throw new Error(`${name} failed: ${child.logEnd()}`);
    return performance.now() - began;
  }

  /** One job at a time, and one probe beside it. */
  async run(job: Job): Promise<LoadResult> {
    const worker = job.kind === "probe" ? this.#prober : this.#generator;
    worker.send(job);
    const result = (await nextMessage(worker)) as LoadResult;
    if (job.kind !== "probe") this.countSent(job.target, result.completed + result.failed);
    return result;
  }

  countSent(target: Target, requests: number): void {
    this.#sent.set(target.port, this.sentTo(target) + requests);
  }

  sentTo(target: Target): number {
    return this.#sent.get(target.port) ?? 0;
  }
}
