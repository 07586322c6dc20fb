import { setTimeout as sleep } from "node:timers/promises";
import { Connection, requestBytes, type Target } from "./connection.ts";
import { PATHS, type Protocol, promptBody } from "./prompts.ts";
import { percentile } from "./results.ts";

/*
 * The load generator, in a process of its own. The bench sends it jobs over IPC; each job is answered with its result.
 */

/** POST requests on some connections; each sends its next request after the answer. */
export interface RequestsJob {
  readonly kind: "requests";
  readonly target: Target;
  readonly promptKb: number;
  readonly connections: number;
  readonly reconnect: boolean;
  readonly requests: number;
}

/** Each client reads some streams, one after the other. */
export interface StreamsJob {
  readonly kind: "streams";
  readonly target: Target;
  readonly protocol: Protocol;
  readonly clients: number;
  readonly streamsPerClient: number;
  readonly events: number;
  readonly paceMs: number;
}

/** Small GET requests at a steady pace, to see how long a new request waits for a busy process. */
export interface ProbeJob {
  readonly kind: "probe";
  readonly target: Target;
  readonly path: string;
  readonly everyMs: number;
  readonly probes: number;
}

export type Job = RequestsJob | StreamsJob | ProbeJob;

/**
 * Times are those of answers, or for streams those from the upstream writing an event until the client reads it. They are NaN
 * for streams without a pace.
 */
export interface LoadResult {
  readonly completed: number;
  readonly failed: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly p999Ms: number;
}

const KB = 1000;
const STREAM_PROMPT_KB = 100;

function resultOf(completed: number, failed: number, times: readonly number[]): LoadResult {
  return {
    completed,
    failed,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
    p999Ms: percentile(times, 0.999),
  };
}

async function sendRequests(job: RequestsJob): Promise<LoadResult> {
  const prompt = { protocol: "chat", bytes: job.promptKb * KB, stream: null } as const;
  const modelFirst = requestBytes(job.target, PATHS.chat, promptBody({ ...prompt, modelLast: false }));
  const modelLast = requestBytes(job.target, PATHS.chat, promptBody({ ...prompt, modelLast: true }));
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
  return resultOf(times.length, failed, times);
}

const TIMESTAMP = /t=(\d{18}) /g;
/** Longer than a timestamp and than the last event. */
const TAIL_LENGTH = 40;
/** Between the starts of two paced streams: opening one takes CPU, and 200 at once would be a queue. */
const START_EVERY_MS = 10;

async function readStreams(job: StreamsJob): Promise<LoadResult> {
  const { protocol, events, paceMs } = job;
  const bytes = STREAM_PROMPT_KB * KB;
  const body = promptBody({ protocol, bytes, modelLast: false, stream: { events, paceMs } });
  const request = requestBytes(job.target, PATHS[protocol], body);
  const late: number[] = [];
  let completed = 0;
  let failed = 0;

  /** Returns whether the stream was complete. */
  async function readStream(connection: Connection): Promise<boolean> {
    let tail = "";
    const status = await connection.exchange(request, (chunk) => {
      const now = process.hrtime.bigint();
      const text = tail + chunk.toString("latin1");
      let end = 0;
      for (const match of text.matchAll(TIMESTAMP)) {
        late.push(Number(now - BigInt(match[1] ?? 0)) / 1e6);
        end = match.index + match[0].length;
      }
      // A chunk may end within a timestamp.
      tail = text.slice(Math.max(end, text.length - TAIL_LENGTH));
    });
    return status === 200 && /\[DONE\]|message_stop/.test(tail);
  }

  async function runClient(_: unknown, client: number): Promise<void> {
    if (paceMs > 0) await sleep(client * START_EVERY_MS);
    const connection = new Connection(job.target.port);
    for (let stream = 0; stream < job.streamsPerClient; stream += 1) {
      if (await readStream(connection).catch(() => false)) completed += 1;
      else failed += 1;
    }
    connection.close();
  }

  await Promise.all(Array.from({ length: job.clients }, runClient));
  return resultOf(completed, failed, late);
}

async function probe(job: ProbeJob): Promise<LoadResult> {
  const request = requestBytes(job.target, job.path, null);
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
  return resultOf(times.length, job.probes - times.length, times);
}

async function run(job: Job): Promise<LoadResult> {
  switch (job.kind) {
    case "requests":
      return await sendRequests(job);
    case "streams":
      return await readStreams(job);
    case "probe":
      return await probe(job);
  }
}

process.on("message", async (job: Job) => {
  process.send?.(await run(job));
});
process.once("disconnect", () => process.exit());
