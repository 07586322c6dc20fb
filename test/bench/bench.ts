import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { type Candidate, PROXIES } from "./candidates.ts";
import { checkAnswers, checkUsageLog } from "./checks.ts";
import { readCpu } from "./footprint.ts";
import { GATEWAYS, installPortkey } from "./gateways.ts";
import {
  measureDelay,
  measureLatency,
  measureMemory,
  measureRequests,
  measureScrapes,
  measureStarts,
  measureStreams,
  measureWatched,
  type Run,
  warmUp,
} from "./measures.ts";
import { HELP, type Options, readOptions } from "./options.ts";
import { FULL, type Plan, QUICK } from "./plan.ts";
import { nextMessage, Processes } from "./processes.ts";
import { toJson, toText } from "./report.ts";
import { Results } from "./results.ts";
import { type Running, Session } from "./session.ts";
import { measureSteps } from "./steps.ts";

/*
 * keybearer with everything on, beside others, in one run.
 *   npm run bench -- --help
 */

async function runSteps(processes: Processes, folder: string): Promise<void> {
  const { port } = (await nextMessage(processes.fork("upstream.js"))) as { port: number };
  process.stdout.write(await measureSteps(new Session(processes, folder, port, createLog())));
}

async function run(options: Options, processes: Processes, folder: string): Promise<void> {
  const log = createLog();
  const othersShare = watchOthers();
  const plan = options.quick ? QUICK : FULL;
  const results = new Results();
  const wanted = wantedCandidates(options);
  if (wanted.some(({ name }) => name === "portkey")) await installPortkey(processes, log);

  const { port } = (await nextMessage(processes.fork("upstream.js"))) as { port: number };
  const session = new Session(processes, folder, port, log);
  const candidates: Running[] = [];
  const leftOut: { name: string; why: string }[] = [];
  for (const candidate of wanted) {
    const isThere = candidate.version() !== null;
    const why = isThere ? await startAndCheck(session, candidate, candidates) : candidate.missing;
    if (why !== null) leftOut.push({ name: candidate.name, why });
  }
  await measureLoads({ session, candidates, plan, results }, options);
  for (const candidate of candidates) {
    await candidate.child.stop();
    if (candidate.name === "keybearer") checkUsageLog(session, candidate);
  }
  if (options.parts.includes("processes")) {
    const run = { session, candidates, plan, results };
    // The baseline of idle memory is always among them.
    const others = candidates.filter(({ name }) => name !== "node:http");
    await measureStarts(run, [...others, ...PROXIES.filter(({ name }) => name === "node:http")]);
    await measureMemory(run, candidates.filter(isCompared));
  }
  if (options.parts.includes("scrapes")) await measureScrapes({ session, candidates, plan, results });
  if (options.parts.includes("watched")) await measureWatchedLoad(processes, folder, plan, results, log);
  if (options.parts.includes("usage-log")) await measureUsageLog(processes, folder, plan, results, log);

  const setting = {
    date: new Date().toISOString(),
    quick: options.quick,
    othersShare: othersShare(),
    candidates: candidates.map(({ name, version }) => ({ name, version: version() ?? "" })),
    leftOut,
  };
  const json = toJson(setting, results);
  if (options.save !== null) writeFileSync(options.save, `${json}\n`);
  process.stdout.write(`${options.json ? json : toText(setting, results)}\n`);
}

function wantedCandidates({ only, quick }: Options): Candidate[] {
  const all = [...PROXIES, ...GATEWAYS];
  if (only.length > 0) return all.filter(({ name }) => only.includes(name));
  return quick ? all.filter((one) => isCompared(one) || one.name === "nginx") : all;
}

/** The targets compare these two. */
function isCompared({ name }: Candidate): boolean {
  return name === "keybearer" || name === "http-proxy-3";
}

/** Adds the candidate, or returns why a gateway of others is left out. The proxies must work. */
async function startAndCheck(
  session: Session,
  candidate: Candidate,
  candidates: Running[],
): Promise<string | null> {
  try {
    const running = await session.start(candidate);
    await checkAnswers(session, running);
    candidates.push(running);
    return null;
  } catch (error) {
    if (!candidate.converts || !(error instanceof Error)) throw error;
    return error.message;
  }
}

async function measureLoads(run: Run, { parts, quick }: Options): Promise<void> {
  const needsLoad = parts.some((part) => !["scrapes", "watched", "processes", "usage-log"].includes(part));
  if (needsLoad) for (const candidate of run.candidates) await warmUp(run, candidate);
  if (parts.includes("requests")) await measureRequests(run);
  if (parts.includes("latency")) await measureLatency(run);
  // A quick run has no time for the streams of others, which last as long as their pace.
  const streaming = quick ? run.candidates.filter(isCompared) : run.candidates;
  if (parts.includes("streams")) await measureStreams({ ...run, candidates: streaming });
  if (parts.includes("delay")) await measureDelay(run);
}

async function measureWatchedLoad(
  processes: Processes,
  folder: string,
  plan: Plan,
  results: Results,
  log: (text: string) => void,
): Promise<void> {
  if (plan.watchedRounds === 0) return;
  const { port } = (await nextMessage(processes.fork("console.js"))) as { port: number };
  const session = new Session(processes, join(folder, "watched"), port, log);
  await measureWatched({ session, plan, results });
}

async function measureUsageLog(
  processes: Processes,
  folder: string,
  plan: Plan,
  results: Results,
  log: (text: string) => void,
): Promise<void> {
  if (plan.usageRecords === 0) return;
  log(`usage log of ${plan.usageRecords} records`);
  const program = processes.fork("usage-log.js", [join(folder, "usage-log"), String(plan.usageRecords)]);
  const measures = (await nextMessage(program)) as Record<string, number>;
  for (const [measure, value] of Object.entries(measures)) results.add(measure, "keybearer", value);
}

/** Returns the share of all cores that other programs used since the call. It is why two runs differ. */
function watchOthers(): () => number {
  const busy = () =>
    cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);
  const own = () => readCpu(process.pid).coarseMs;
  const began = { at: performance.now(), busy: busy(), own: own() };
  return () => {
    const available = (performance.now() - began.at) * cpus().length;
    const others = busy() - began.busy - (own() - began.own);
    return Math.max(0, others) / available;
  };
}

function createLog(): (text: string) => void {
  const began = performance.now();
  return (text) => {
    const seconds = ((performance.now() - began) / 1000).toFixed(0).padStart(4);
    process.stderr.write(`${seconds} s  ${text}\n`);
  };
}

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  if (options.help) {
    process.stdout.write(HELP);
    return;
  }
  if (process.platform !== "linux") throw new Error("the bench needs Linux: it reads CPU time from /proc");
  const folder = mkdtempSync(join(tmpdir(), "kb-bench-"));
  const processes = new Processes(folder);
  const cleanUp = () => {
    processes.killAll();
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.once(signal, () => {
      cleanUp();
      process.exit(1);
    });
  try {
    if (options.steps) await runSteps(processes, folder);
    else await run(options, processes, folder);
  } finally {
    cleanUp();
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
