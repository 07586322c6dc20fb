import { setTimeout as sleep } from "node:timers/promises";
import { askDaemon } from "../../src/control/client.ts";
import { findPaths, type Paths } from "../../src/core/paths.ts";
import { visit } from "../doubles/dashboard-visit.ts";
import {
  type Candidate,
  KEYBEARER,
  PROXIES,
  SCRAPED_MODELS,
  WITH_CONSOLE,
  WITH_METRICS,
} from "./candidates.ts";
import { cpuBetween, cpuOfThread, readMemory, untilQuiet } from "./footprint.ts";
import type { Job, LoadResult, RequestsJob, StreamsJob } from "./load.ts";
import type { Plan, StreamLoad } from "./plan.ts";
import type { Results } from "./results.ts";
import type { Running, Session } from "./session.ts";

/**
 * What is measured. Candidates take turns in every round, so that a noisy machine hits all of them alike. The names of the
 * measures are part of the JSON output.
 */

export interface Run {
  readonly session: Session;
  readonly candidates: readonly Running[];
  readonly plan: Plan;
  readonly results: Results;
}

const EVENTS_PER_STREAM = 300;

/** Each round begins with another candidate, so that none is always first. */
export function rotate<T>(all: readonly T[], round: number): T[] {
  const first = all.length === 0 ? 0 : round % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

/** A gateway that converts takes 5 to 100 times as long for a request, so it gets fewer of them. */
function requestsFor({ converts }: Running, requests: number): number {
  return converts ? Math.ceil(requests / 10) : requests;
}

/**
 * A daemon runs for days, so what V8 does in its first seconds is not measured. Each load that will be measured comes once before:
 * without that, V8 still compiled for a tenth of the CPU time of a request of 500 KB.
 */
export async function warmUp({ session, plan }: Run, candidate: Running): Promise<void> {
  session.log(`${candidate.name}: warming up`);
  const load = { kind: "requests", target: candidate.target, reconnect: false } as const;
  const small = requestsFor(candidate, plan.warmUpRequests);
  const large = requestsFor(candidate, 2000);
  const streams = requestsFor(candidate, 40);
  await session.run({ ...load, promptKb: 1, connections: 16, requests: small });
  await session.run({ ...load, promptKb: 100, connections: 8, requests: large });
  for (const { promptKb, connections, requests } of plan.requests)
    await session.run({ ...load, promptKb, connections, requests: requestsFor(candidate, requests) });
  await session.run(
    streamsJob(candidate, { protocol: "chat", clients: 32, streamsPerClient: streams, paceMs: 0 }),
  );
}

export async function measureRequests({ session, candidates, plan, results }: Run): Promise<void> {
  for (let round = 0; round < plan.rounds; round += 1) {
    session.log(`CPU per request, round ${round + 1} of ${plan.rounds}`);
    for (const load of plan.requests) {
      const measure = `CPU µs per request, ${load.promptKb} KB${load.reconnect ? ", new connection" : ""}`;
      for (const candidate of rotate(candidates, round)) {
        const requests = requestsFor(candidate, load.requests);
        const job: RequestsJob = { ...load, kind: "requests", target: candidate.target, requests };
        const { result, cpuMs, mainMs } = await runWithCpu(session, candidate, job);
        results.add(measure, candidate.name, (cpuMs * 1000) / result.completed, result.failed);
        results.add(`${measure}, main thread`, candidate.name, (mainMs * 1000) / result.completed);
      }
    }
  }
}

/** On one connection, also against going to the upstream directly. */
export async function measureLatency({ session, candidates, plan, results }: Run): Promise<void> {
  const targets = [{ name: "direct", target: session.upstream }, ...candidates];
  for (let round = 0; round < plan.rounds; round += 1) {
    session.log(`latency on one connection, round ${round + 1} of ${plan.rounds}`);
    for (const { promptKb, requests } of plan.latency) {
      for (const { name, target } of rotate(targets, round)) {
        const load = { kind: "requests", target, promptKb, connections: 1, reconnect: false } as const;
        // The first requests wait for new connections.
        await session.run({ ...load, requests: 10 });
        const { p50Ms, p99Ms } = await session.run({ ...load, requests });
        results.add(`latency p50 ms, ${promptKb} KB`, name, p50Ms);
        results.add(`latency p99 ms, ${promptKb} KB`, name, p99Ms);
      }
      for (const { name } of candidates) {
        for (const measure of [`p50 ms, ${promptKb} KB`, `p99 ms, ${promptKb} KB`]) {
          const through = results.rounds(`latency ${measure}`, name).at(-1) ?? Number.NaN;
          const direct = results.rounds(`latency ${measure}`, "direct").at(-1) ?? Number.NaN;
          results.add(`added latency ${measure}`, name, through - direct);
        }
      }
    }
  }
}

export async function measureStreams({ session, candidates, plan, results }: Run): Promise<void> {
  for (const load of plan.streams) {
    const clients = `${load.clients} client${load.clients === 1 ? "" : "s"}${load.paceMs === 0 ? ", at once" : ""}`;
    const protocol = load.protocol === "chat" ? "" : `${load.protocol} `;
    const measure = `CPU ms per ${protocol}stream, ${clients}`;
    // Gateways that convert expect this protocol on other paths.
    const compared = candidates.filter(({ converts }) => load.protocol === "chat" || !converts);
    for (let round = 0; round < plan.streamRounds; round += 1) {
      session.log(`${measure}, round ${round + 1} of ${plan.streamRounds}`);
      for (const candidate of rotate(compared, round)) {
        const { result, cpuMs, mainMs } = await runWithCpu(session, candidate, streamsJob(candidate, load));
        results.add(measure, candidate.name, cpuMs / result.completed, result.failed);
        results.add(`${measure}, main thread`, candidate.name, mainMs / result.completed);
        if (load.paceMs === 0) continue;
        results.add(`${protocol}late p50 ms, ${clients}`, candidate.name, result.p50Ms);
        results.add(`${protocol}late p99 ms, ${clients}`, candidate.name, result.p99Ms);
      }
    }
  }
}

/** 32 clients that read 6,400 events a second and send a new prompt of 100 KB after every hundred events. */
const DELAY_LOAD = { protocol: "chat", clients: 32, streamsPerClient: 8, events: 100, paceMs: 5 } as const;
/** Ends before that load does. */
const PROBES = { path: "/healthz", everyMs: 2, probes: 2000 } as const;

/**
 * How long a busy process keeps a new request waiting. Node's own histogram of event-loop delay would need code inside the
 * process, and keybearer refuses options that load code. So this is the answer time of GET /healthz, which the candidate
 * answers by itself, sent at a steady pace by a process that does nothing else.
 */
export async function measureDelay({ session, candidates, plan, results }: Run): Promise<void> {
  const probed = candidates.filter(({ name }) => name === "keybearer" || name === "http-proxy-3");
  for (let round = 0; round < plan.delayRounds; round += 1) {
    session.log(`event-loop delay under load, round ${round + 1} of ${plan.delayRounds}`);
    for (const { name, target } of rotate(probed, round)) {
      const load = session.run({ ...DELAY_LOAD, kind: "streams", target });
      const { p50Ms, p999Ms } = await session.run({ ...PROBES, kind: "probe", target });
      await load;
      results.add("event-loop delay p50 ms", name, p50Ms);
      results.add("event-loop delay p99.9 ms", name, p999Ms);
    }
  }
}

export const SCRAPE_SHARE = "% of a core, a scrape every 15 s, 32 streams";
const SCRAPE_EVERY_MS = 15_000;
/** In one load, so that they are more than the difference between two loads. */
const SCRAPES = 16;
const SCRAPED_LOAD = { protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 8 } as const;

/** What the same streams cost with scrapes and without them. */
export async function measureScrapes({ session, candidates, plan, results }: Run): Promise<void> {
  if (plan.scrapeRounds === 0) return;
  const running = await session.start(WITH_METRICS);
  await warmUp({ session, candidates, plan, results }, running);
  const url = `http://127.0.0.1:${running.secondPort}/metrics`;
  for (const model of SCRAPED_MODELS) await askForModel(running, model);
  results.add("scrape KB", running.name, (await scrape(url)).length / 1000);
  const job = streamsJob(running, SCRAPED_LOAD);
  for (let round = 0; round < plan.scrapeRounds; round += 1) {
    session.log(`scrapes beside 32 streams, round ${round + 1} of ${plan.scrapeRounds}`);
    const without = await runWithCpu(session, running, job);
    const scraped = await runWithCpu(session, running, job, async () => {
      for (let n = 0; n < SCRAPES; n += 1) {
        await scrape(url);
        await sleep(100);
      }
    });
    const ms = (scraped.cpuMs - without.cpuMs) / SCRAPES;
    results.add("CPU ms per scrape, 32 streams", running.name, ms);
    results.add(SCRAPE_SHARE, "keybearer", (ms / SCRAPE_EVERY_MS) * 100);
  }
  await running.child.stop();
}

async function scrape(url: string): Promise<string> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`a scrape was answered with ${response.status}`);
  return response.text();
}

async function askForModel({ target }: Running, model: string): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${target.port}/v1/chat/completions`, {
    method: "POST",
    headers: { ...target.headers, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hello" }] }),
  });
  await response.text();
  if (!response.ok) throw new Error(`${model} was answered with ${response.status}`);
}

export const WATCHED = "CPU µs per request, 1 KB, a dashboard open and a sync";
/** A minute of a busy machine. Each load lasts for seconds, so this has a sync more often than every minute. */
const WATCHED_REQUESTS = 10_000;

/**
 * Requests while a dashboard is open and the console is read once, with a row for each request of the load before.
 * @param session in front of a gateway with a console
 */
export async function measureWatched({ session, plan, results }: Omit<Run, "candidates">): Promise<void> {
  const bare = PROXIES.filter(({ name }) => name === "http-proxy-3");
  const candidates: Running[] = [];
  for (const candidate of [...bare, WITH_CONSOLE]) candidates.push(await session.start(candidate));
  for (const candidate of candidates) await warmUp({ session, candidates, plan, results }, candidate);
  const load = { promptKb: 1, connections: 16, reconnect: false, requests: WATCHED_REQUESTS } as const;
  for (let round = 0; round < plan.watchedRounds; round += 1) {
    session.log(`a dashboard open and a sync, round ${round + 1} of ${plan.watchedRounds}`);
    for (const candidate of rotate(candidates, round)) {
      const job: RequestsJob = { ...load, kind: "requests", target: candidate.target };
      const isOurs = isKeybearer(candidate);
      const page = isOurs ? await (await visit(pathsOf(candidate).socket)).follow() : null;
      const beside = isOurs ? () => readConsole(candidate) : undefined;
      const { result, cpuMs } = await runWithCpu(session, candidate, job, beside);
      page?.end();
      const name = isOurs ? "keybearer" : candidate.name;
      results.add(WATCHED, name, (cpuMs * 1000) / result.completed, result.failed);
    }
  }
  for (const { child } of candidates) await child.stop();
}

async function readConsole(candidate: Running): Promise<void> {
  const asked = await askDaemon(pathsOf(candidate), "POST", "/sync/main", {});
  if (!asked.ok) throw new Error(`the console was not read: ${asked.problem}`);
}

const IDLE_MS = 2000;

/** Of fresh processes that have not had a request yet. */
export async function measureStarts(
  { session, plan, results }: Run,
  fresh: readonly Candidate[],
): Promise<void> {
  for (let round = 0; round < plan.startRounds; round += 1) {
    session.log(`start time and idle memory, round ${round + 1} of ${plan.startRounds}`);
    const started: Running[] = [];
    for (const candidate of rotate(fresh, round)) started.push(await session.start(candidate));
    await sleep(IDLE_MS);
    for (const { name, startMs, child } of started) {
      results.add("start ms", name, startMs);
      results.add("idle MB", name, readMemory(child.pid) / 1e6);
    }
    const keybearer = started.find(({ name }) => name === "keybearer");
    if (keybearer !== undefined) await measureCommands(session, keybearer, results);
    for (const { child } of started) await child.stop();
  }
}

/** Commands that people wait for, beside a Node process that does nothing. */
async function measureCommands(session: Session, { folder }: Running, results: Results): Promise<void> {
  const env = { KEYBEARER_HOME: folder, HOME: folder };
  const commands = {
    "node -e 0 ms": ["-e", "0"],
    "keybearer --version ms": [KEYBEARER, "--version"],
    "keybearer status ms": [KEYBEARER, "status"],
  };
  for (const [measure, args] of Object.entries(commands))
    results.add(measure, "keybearer", await session.runToEnd("command", args, env));
}

const MEMORY_PARTS = 20;

/** The mean of the last fifth over that of the second. In the first fifth the heap grows to its working size. */
export async function measureMemory(
  { session, plan, results }: Run,
  fresh: readonly Candidate[],
): Promise<void> {
  if (plan.memoryRequests === 0) return;
  for (const candidate of fresh) {
    session.log(`${candidate.name}: memory over ${plan.memoryRequests} requests`);
    const { target, child } = await session.start(candidate);
    const requests = plan.memoryRequests / MEMORY_PARTS;
    const bytes: number[] = [];
    for (let part = 0; part < MEMORY_PARTS; part += 1) {
      await session.run({
        kind: "requests",
        target,
        promptKb: 1,
        connections: 16,
        reconnect: false,
        requests,
      });
      bytes.push(readMemory(child.pid));
    }
    await child.stop();
    const fifth = MEMORY_PARTS / 5;
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
    const growth = sum(bytes.slice(-fifth)) / sum(bytes.slice(fifth, 2 * fifth));
    const load = `over ${plan.memoryRequests.toLocaleString("en")} requests`;
    results.add(`memory growth ${load}`, candidate.name, growth);
    results.add(`most MB ${load}`, candidate.name, Math.max(...bytes) / 1e6);
  }
}

/**
 * CPU time of the candidate's process tree for one load, work that follows the load included.
 * @param beside what is done to it meanwhile
 */
async function runWithCpu(
  session: Session,
  candidate: Running,
  job: Job,
  beside: () => Promise<void> = async () => {},
): Promise<{ result: LoadResult; cpuMs: number; mainMs: number }> {
  const { pid } = candidate.child;
  const { target } = candidate;
  // keybearer ends the thread of its index when that is idle. These requests start it again: a load does not include that.
  if (isKeybearer(candidate))
    await session.run({
      kind: "requests",
      target,
      promptKb: 1,
      connections: 8,
      reconnect: false,
      requests: 200,
    });
  await catchUp(candidate);
  const before = await untilQuiet(pid);
  const [result] = await Promise.all([session.run(job), beside()]);
  await catchUp(candidate);
  const after = await untilQuiet(pid);
  return { result, cpuMs: cpuBetween(before, after), mainMs: cpuOfThread(before, after, pid) };
}

function isKeybearer({ name }: Running): boolean {
  return name.startsWith("keybearer");
}

/** keybearer's index follows the journal later. A load includes that. */
async function catchUp(candidate: Running): Promise<void> {
  if (!isKeybearer(candidate)) return;
  const asked = await askDaemon(pathsOf(candidate), "POST", "/index", {});
  if (!asked.ok) throw new Error(`the index of ${candidate.name} does not catch up: ${asked.problem}`);
}

function pathsOf({ folder }: Running): Paths {
  return findPaths({ env: { KEYBEARER_HOME: folder }, home: folder });
}

function streamsJob({ target }: Running, load: StreamLoad): StreamsJob {
  return { ...load, kind: "streams", target, events: EVENTS_PER_STREAM };
}
