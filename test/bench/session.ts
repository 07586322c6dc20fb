import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Candidate, CandidateKind } from "./candidates.ts";
import type { Target } from "./connection.ts";
import type {
  Job,
  ProbeJob,
  ProbeResult,
  RequestsJob,
  RequestsResult,
  StreamsJob,
  StreamsResult,
} from "./load.ts";
import type { Child, Processes } from "./processes.ts";
import { UPSTREAM_KEY } from "./prompts.ts";

/** A candidate that runs. */
export interface Running extends Candidate {
  readonly kind: CandidateKind;
  readonly child: Child;
  /** From the start of the process until its port accepted a connection. */
  readonly startMs: number;
}

/** The processes of one run: the upstream, two load processes and the candidates. */
export class Session {
  readonly #processes: Processes;
  readonly #folder: string;
  readonly #generator: LoadProcess;
  /** A process of its own, so that the delays of the busy generator are not measured. */
  readonly #prober: LoadProcess;
  /** Requests and streams sent to each port, for the check of the usage log. */
  readonly #sent = new Map<number, number>();
  #started = 0;
  /** The upstream itself, for what a request takes without any candidate. */
  readonly upstream: Target;
  readonly log: (text: string) => void;

  private constructor(
    processes: Processes,
    folder: string,
    upstreamPort: number,
    log: (text: string) => void,
  ) {
    this.#processes = processes;
    this.#folder = folder;
    this.#generator = new LoadProcess(processes.fork("load.js"));
    this.#prober = new LoadProcess(processes.fork("load.js"));
    const headers = { authorization: `Bearer ${UPSTREAM_KEY}` };
    this.upstream = { port: upstreamPort, basePath: "", headers };
    this.log = log;
  }

  static async open(processes: Processes, folder: string, log: (text: string) => void): Promise<Session> {
    const [{ port }] = (await once(processes.fork("upstream.js"), "message")) as [{ port: number }];
    return new Session(processes, folder, port, log);
  }

  async start(kind: CandidateKind): Promise<Running> {
    this.#started += 1;
    // A short name, because keybearer's unix socket is below it.
    const folder = join(this.#folder, String(this.#started));
    mkdirSync(folder, { mode: 0o700 });
    const candidate = await kind.prepare({ folder, upstreamPort: this.upstream.port });
    const began = performance.now();
    const child = this.#processes.start(kind.name, candidate.command);
    await child.listensOn(candidate.target.port);
    return { ...candidate, kind, child, startMs: performance.now() - began };
  }

  async requests(job: Omit<RequestsJob, "kind">): Promise<RequestsResult> {
    const result = (await this.#generator.run({ kind: "requests", ...job })) as RequestsResult;
    this.countSent(job.target, result.completed + result.failed);
    return result;
  }

  async streams(job: Omit<StreamsJob, "kind">): Promise<StreamsResult> {
    const result = (await this.#generator.run({ kind: "streams", ...job })) as StreamsResult;
    this.countSent(job.target, result.completed + result.failed);
    return result;
  }

  async probe(job: Omit<ProbeJob, "kind">): Promise<ProbeResult> {
    return (await this.#prober.run({ kind: "probe", ...job })) as ProbeResult;
  }

  countSent(target: Target, requests: number): void {
    this.#sent.set(target.port, this.sentTo(target) + requests);
  }

  sentTo(target: Target): number {
    return this.#sent.get(target.port) ?? 0;
  }
}

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}

/** A load process, and the jobs it works on. */
class LoadProcess {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #lastId = 0;

  constructor(process: ChildProcess) {
    this.#process = process;
    process.on("message", (answer: Answer) => {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
    process.once("exit", () => {
      for (const [id, resolve] of this.#waiting) resolve({ id, error: "the load process ended" });
    });
  }

  async run(job: Job): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    const answer = await new Promise<Answer>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#process.send({ id, job });
    });
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer.result;
  }
}
