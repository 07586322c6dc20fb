import { setTimeout as sleep } from "node:timers/promises";
import { Connection, requestBytes, type Target } from "./connection.ts";
import { PATHS, type Protocol, promptBody } from "./prompts.ts";
import { percentile } from "./statistics.ts";

/*
 * The load generator, in a process of its own. The bench sends it jobs over IPC; each job is answered with its result.
 */

/** A fixed number of POST requests over some connections, each of which sends its next request after the answer. */
export interface RequestsJob {
  readonly kind: "requests";
  readonly target: Target;
  readonly promptBytes: number;
  readonly connections: number;
  /** Opens a new connection for every request, as short-lived tools do. */
  readonly reconnect: boolean;
  readonly requests: number;
}

export interface RequestsResult {
  readonly completed: number;
  readonly failed: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Each client reads some streams, one after the other. */
export interface StreamsJob {
  readonly kind: "streams";
  readonly target: Target;
  readonly protocol: Protocol;
  readonly promptBytes: number;
  readonly clients: number;
  readonly streamsPerClient: number;
  readonly events: number;
  readonly paceMs: number;
  /** Between the starts of two clients, so that their events do not arrive in one block. */
  readonly startEveryMs: number;
}

export interface StreamsResult {
  readonly completed: number;
  readonly failed: number;
  /** Time from the upstream writing an event until the client reads it; null for streams without a pace. */
  readonly lateP50Ms: number | null;
  readonly lateP99Ms: number | null;
}

/** Small GET requests at a steady pace, to see how long a new request waits for a busy process. */
export interface ProbeJob {
  readonly kind: "probe";
  readonly target: Target;
  readonly path: string;
  readonly everyMs: number;
  readonly probes: number;
}

export interface ProbeResult {
  readonly answered: number;
  readonly p50Ms: number;
  readonly p999Ms: number;
}

export type Job = RequestsJob | StreamsJob | ProbeJob;

async function sendRequests(job: RequestsJob): Promise<RequestsResult> {
  const prompt = { protocol: "chat", bytes: job.promptBytes, stream: null } as const;
  const modelFirst = requestBytes(
    job.target,
    "POST",
    PATHS.chat,
    promptBody({ ...prompt, modelLast: false }),
  );
  const modelLast = requestBytes(job.target, "POST", PATHS.chat, promptBody({ ...prompt, modelLast: true }));
  const times: number[] = [];
  let sent = 0;
  let failed = 0;

  async function runConnection(): Promise<void> {
    const connection = new Connection(job.target.port);
    while (sent < job.requests) {
      sent += 1;
      const began = performance.now();
      // Most clients write the model first.
      const request = sent % 4 === 0 ? modelLast : modelFirst;
      const status = await connection.exchange(request, () => {}).catch(() => 0);
      if (status === 200) times.push(performance.now() - began);
      else failed += 1;
      if (job.reconnect) connection.close();
    }
    connection.close();
  }

  await Promise.all(Array.from({ length: job.connections }, runConnection));
  return {
    completed: times.length,
    failed,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
  };
}

const STAMP = /t=(\d{18}) /g;
/** Longer than the longest part of a stamp or of the last event that one chunk can end with. */
const TAIL_LENGTH = 40;

/** Finds the events' timestamps in the chunks of one stream. */
class StreamObserver {
  readonly #late: number[];
  #tail = "";

  constructor(late: number[]) {
    this.#late = late;
  }

  read(chunk: Buffer): void {
    const now = process.hrtime.bigint();
    const text = this.#tail + chunk.toString("latin1");
    let end = 0;
    for (const match of text.matchAll(STAMP)) {
      this.#late.push(Number(now - BigInt(match[1] ?? 0)) / 1e6);
      end = match.index + match[0].length;
    }
    this.#tail = text.slice(Math.max(end, text.length - TAIL_LENGTH));
  }

  get sawEnd(): boolean {
    return this.#tail.includes("[DONE]") || this.#tail.includes("message_stop");
  }
}

async function readStreams(job: StreamsJob): Promise<StreamsResult> {
  const body = promptBody({
    protocol: job.protocol,
    bytes: job.promptBytes,
    modelLast: false,
    stream: { events: job.events, paceMs: job.paceMs },
  });
  const request = requestBytes(job.target, "POST", PATHS[job.protocol], body);
  const late: number[] = [];
  let completed = 0;
  let failed = 0;

  async function runClient(_: unknown, client: number): Promise<void> {
    await sleep(client * job.startEveryMs);
    const connection = new Connection(job.target.port);
    for (let stream = 0; stream < job.streamsPerClient; stream += 1) {
      const observer = new StreamObserver(late);
      const status = await connection.exchange(request, (chunk) => observer.read(chunk)).catch(() => 0);
      if (status === 200 && observer.sawEnd) completed += 1;
      else failed += 1;
    }
    connection.close();
  }

  await Promise.all(Array.from({ length: job.clients }, runClient));
  const isPaced = late.length > 0;
  return {
    completed,
    failed,
    lateP50Ms: isPaced ? percentile(late, 0.5) : null,
    lateP99Ms: isPaced ? percentile(late, 0.99) : null,
  };
}

async function probe(job: ProbeJob): Promise<ProbeResult> {
  const request = requestBytes(job.target, "GET", job.path, Buffer.alloc(0));
  const connection = new Connection(job.target.port);
  const times: number[] = [];
  const start = performance.now();
  for (let sent = 0; sent < job.probes; sent += 1) {
    const due = start + sent * job.everyMs;
    const wait = due - performance.now();
    if (wait > 0) await sleep(wait);
    // A probe that is due while the one before it still waits has been waiting, too.
    const began = wait > 0 ? performance.now() : due;
    const status = await connection.exchange(request, () => {}).catch(() => 0);
    if (status === 200) times.push(performance.now() - began);
  }
  connection.close();
  return { answered: times.length, p50Ms: percentile(times, 0.5), p999Ms: percentile(times, 0.999) };
}

async function run(job: Job): Promise<RequestsResult | StreamsResult | ProbeResult> {
  switch (job.kind) {
    case "requests":
      return await sendRequests(job);
    case "streams":
      return await readStreams(job);
    case "probe":
      return await probe(job);
  }
}

process.on("message", ({ id, job }: { id: number; job: Job }) => {
  run(job).then(
    (result) => process.send?.({ id, result }),
    (error: Error) => process.send?.({ id, error: error.message }),
  );
});
process.once("disconnect", () => process.exit());
