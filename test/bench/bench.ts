import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { type CandidateKind, PROXY_KINDS } from "./candidates.ts";
import { checkAnswers, checkUsageLog } from "./checks.ts";
import { readCpu } from "./footprint.ts";
import { GATEWAY_KINDS, installPortkey } from "./gateways.ts";
import { measureDelay, measureLatency, measureRequests, measureStreams, warmUp } from "./load-measures.ts";
import { HELP, type Options, readOptions } from "./options.ts";
import { FULL, type Plan, QUICK } from "./plan.ts";
import { measureMemory, measureStarts } from "./process-measures.ts";
import { Processes } from "./processes.ts";
import { type Setting, toJson, toText } from "./report.ts";
import { type Running, Session } from "./session.ts";
import type { Measured } from "./targets.ts";
import type { UsageLogResult } from "./usage-log.ts";

/*
 * keybearer with everything on, beside others, in one run.
 *   npm run bench -- --help
 */

const QUICK_CANDIDATES = ["http-proxy-3", "keybearer", "nginx"];

async function run(options: Options, processes: Processes, folder: string): Promise<void> {
  const log = createLog();
  const othersShare = watchOthers();
  const plan = options.quick ? QUICK : FULL;
  const wanted = wantedKinds(options);
  if (wanted.some(({ name }) => name === "portkey")) {
    const failure = await installPortkey(processes, log);
    if (failure !== null) log(`portkey could not be installed: ${failure}`);
  }
  const session = await Session.open(processes, folder, log);
  const candidates: Running[] = [];
  const leftOut: { name: string; why: string }[] = [];
  for (const kind of wanted) {
    const why = kind.missing() ?? (await startAndCheck(session, kind, candidates));
    if (why !== null) leftOut.push({ name: kind.name, why });
  }
  for (const candidate of candidates) await warmUp(session, candidate, plan);
  const has = (part: Options["parts"][number]) => options.parts.includes(part);
  const requests = has("requests") ? await measureRequests(session, candidates, plan) : [];
  const latency = has("latency") ? await measureLatency(session, candidates, plan) : [];
  // nginx is quick at streams, but each of its rounds takes as long as the pace.
  const streaming = options.quick ? candidates.filter(({ kind }) => isNodeProxy(kind)) : candidates;
  const streams = has("streams") ? await measureStreams(session, streaming, plan) : [];
  const delay = has("delay") ? await measureDelay(session, candidates, plan) : [];
  for (const candidate of candidates) {
    await candidate.child.stop();
    checkUsageLog(session, candidate);
  }
  const kinds = candidates.map(({ kind }) => kind);
  const starts = has("processes") ? await measureStarts(session, idleKinds(kinds), plan) : [];
  const memory = has("processes") ? await measureMemory(session, kinds.filter(isNodeProxy), plan) : [];
  const usageLog = has("usage-log") ? await measureUsageLog(processes, folder, plan, log) : null;

  const measured: Measured = { requests, latency, streams, delay, starts, memory, usageLog };
  const setting: Setting = {
    date: new Date().toISOString(),
    quick: options.quick,
    othersShare: othersShare(),
    candidates: candidates.map(({ name, version, kind }) => ({ name, version, converts: kind.converts })),
    leftOut,
  };
  const json = toJson(setting, measured);
  if (options.save !== null) writeFileSync(options.save, `${json}\n`);
  process.stdout.write(`${options.json ? json : toText(setting, measured)}\n`);
}

/** Adds the candidate, or returns why a gateway of others is left out. Without the proxies there is nothing to compare. */
async function startAndCheck(
  session: Session,
  kind: CandidateKind,
  candidates: Running[],
): Promise<string | null> {
  try {
    const candidate = await session.start(kind);
    await checkAnswers(session, candidate);
    candidates.push(candidate);
    return null;
  } catch (error) {
    if (!kind.converts || !(error instanceof Error)) throw error;
    return error.message;
  }
}

function wantedKinds({ only, quick }: Options): CandidateKind[] {
  const all = [...PROXY_KINDS, ...GATEWAY_KINDS];
  if (only.length > 0) return all.filter(({ name }) => only.includes(name));
  return quick ? all.filter(({ name }) => QUICK_CANDIDATES.includes(name)) : all;
}

/** The baseline of idle memory is always among them. */
function idleKinds(kinds: readonly CandidateKind[]): CandidateKind[] {
  const baseline = PROXY_KINDS.filter(({ name }) => name === "node:http");
  return [...kinds.filter(({ name }) => name !== "node:http"), ...baseline];
}

function isNodeProxy({ name }: CandidateKind): boolean {
  return name === "keybearer" || name === "http-proxy-3";
}

/** In a process of its own, so that its memory is returned. null when the plan leaves it out. */
async function measureUsageLog(
  processes: Processes,
  folder: string,
  plan: Plan,
  log: (text: string) => void,
): Promise<UsageLogResult | null> {
  if (plan.usageRecords === 0) return null;
  log(`usage log of ${plan.usageRecords} records`);
  const args = [join(folder, "usage-log"), String(plan.usageRecords), String(plan.consoleRows)];
  const program = processes.fork("usage-log.js", args);
  const failed = once(program, "exit").then(() => {
    throw new Error("usage-log.js ended without a result");
  });
  const [result] = (await Promise.race([once(program, "message"), failed])) as [UsageLogResult];
  return result;
}

/** Returns the share of all cores that other programs used since the call. It is why two runs differ. */
function watchOthers(): () => number {
  const busy = () =>
    cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);
  const own = () => readCpu(process.pid).coarseMs;
  const began = { at: performance.now(), busy: busy(), own: own() };
  return () => {
    const elapsed = (performance.now() - began.at) * cpus().length;
    return Math.max(0, busy() - began.busy - (own() - began.own)) / elapsed;
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
    await run(options, processes, folder);
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
