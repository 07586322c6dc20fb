import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { type Candidate, type CandidateKind, candidateFolder } from "./candidates.ts";
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

/** The processes of one run: the upstream, two load generators and the candidates. */
export class Session {
  readonly #processes: Processes;
  readonly #folder: string;
  readonly #upstreamPort: number;
  /** Makes the load. */
  readonly generator: LoadProcess;
  /** Probes while the generator is busy, so that the generator's own delays are not measured. */
  readonly prober: LoadProcess;
  #started = 0;

  private constructor(processes: Processes, folder: string, upstreamPort: number) {
    this.#processes = processes;
    this.#folder = folder;
    this.#upstreamPort = upstreamPort;
    this.generator = new LoadProcess(processes.fork("load.js"));
    this.prober = new LoadProcess(processes.fork("load.js"));
  }

  static async open(processes: Processes, folder: string): Promise<Session> {
    const [{ port }] = (await once(processes.fork("upstream.js"), "message")) as [{ port: number }];
    return new Session(processes, folder, port);
  }

  /** The upstream itself, for what a request takes without any candidate. */
  get upstream(): Target {
    return { port: this.#upstreamPort, headers: { authorization: `Bearer ${UPSTREAM_KEY}` } };
  }

  async start(kind: CandidateKind): Promise<Running> {
    this.#started += 1;
    const folder = candidateFolder(this.#folder, `${kind.name}${this.#started}`);
    const candidate = await kind.prepare({ folder, upstreamPort: this.#upstreamPort });
    const began = performance.now();
    const child = this.#processes.start(kind.name, candidate.command);
    await child.listensOn(candidate.target.port);
    return { ...candidate, kind, child, startMs: performance.now() - began };
  }
}

/** A load process, and the jobs it works on. */
export class LoadProcess {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #lastId = 0;
  /** Requests and streams sent to each port so far, for the check of the usage log. */
  readonly #sent = new Map<number, number>();

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

  async requests(job: Omit<RequestsJob, "kind">): Promise<RequestsResult> {
    const result = (await this.#run({ kind: "requests", ...job })) as RequestsResult;
    this.#count(job.target, result.completed + result.failed);
    return result;
  }

  async streams(job: Omit<StreamsJob, "kind">): Promise<StreamsResult> {
    const result = (await this.#run({ kind: "streams", ...job })) as StreamsResult;
    this.#count(job.target, result.completed + result.failed);
    return result;
  }

  async probe(job: Omit<ProbeJob, "kind">): Promise<ProbeResult> {
    return (await this.#run({ kind: "probe", ...job })) as ProbeResult;
  }

  sentTo(target: Target): number {
    return this.#sent.get(target.port) ?? 0;
  }

  #count(target: Target, requests: number): void {
    this.#sent.set(target.port, this.sentTo(target) + requests);
  }

  async #run(job: Job): Promise<unknown> {
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

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}
