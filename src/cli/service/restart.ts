import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { loadConfig } from "../../config/load.ts";
import { formatProblems } from "../../config/problems.ts";
import type { Config } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { type Failed, failed, type Problem, withNextBelow } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { type Paths, prepareFolders } from "../../core/paths.ts";
import { describeOwner, portOwner } from "../../core/process-lookup.ts";
import { isHealthy } from "../../service/health.ts";
import type { Result, ServiceState } from "../../service/service.ts";
import type { InstalledService } from "../../service/spec.ts";
import { isTaken } from "../doctor/daemon-findings.ts";
import { fail, failNull, printText } from "../ui/messages.ts";
import { type ContextOptions, installedContext, reachManager, type ServiceManager } from "./context.ts";
import { lastLines } from "./logs.ts";
import { checkCommand, describeExit } from "./status.ts";

/* `service restart`, and what it shares with `service install`: what a start needs, and whether it succeeded. */

/** Refused if the next start would fail: a typing mistake must not stop a service that works. */
export async function restart(overrides: ContextOptions = {}): Promise<void> {
  const context = await installedContext(overrides);
  const { paths, shellPaths } = context;
  const manager = await reachManager(context);
  if (manager === null) return;
  const before = await manager.state();
  const { file } = before;
  if (file.kind === "none")
    return fail({ problem: "the service is not installed", next: advice.serviceInstall() }, EXIT.failed);
  if (file.kind === "foreign") return fail(withNextBelow(file), EXIT.failed);
  const wasRunning = before.active === "running";
  const kept = wasRunning ? "the service was not restarted and still runs" : "the service was not started";
  const config = await startableConfig(file.service, paths, kept);
  if (config === null) return;
  const conflict = await startConflict(paths, config, before);
  if (conflict !== null) return fail([conflict, kept], conflict.exitCode);
  // The unit's view of the file system does not let the daemon create them.
  const problems = prepareFolders(paths);
  if (problems.length > 0) return fail(problems, EXIT.badConfig);
  const result = await withDrainProgress(manager.restart(), paths, before.pid);
  const start = result.ok ? await untilServing(manager, paths) : await notStarted(manager, result);
  if (!start.ok) return failNotServing(manager, start, checkCommand(paths.config, shellPaths.config));
  const { version, listen } = start.status;
  const first = wasRunning ? "restarted after its requests finished: it" : "it";
  printText(
    `${first} runs as pid ${start.state.pid}, keybearer ${version}, and answers on ${listen.join(" and ")}`,
  );
}

const POLL_DRAIN_MS = 500;
/** A number of requests that does not change is printed again after this time. */
const PROGRESS_MS = 10_000;

/** Waits for a change that stops the service, and prints how many requests its process still waits for. */
export async function withDrainProgress(
  change: Promise<Result>,
  paths: Paths,
  pid: number | null,
): Promise<Result> {
  let settled = false;
  const end = () => {
    settled = true;
  };
  const ended = change.then(end, end);
  let printed = 0;
  let printedAt = 0;
  while (!settled && pid !== null) {
    const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, ANSWER_MS);
    // Another pid is the new process, which has requests of its own.
    const left = asked.ok && asked.value.pid === pid ? drainLeft(asked.value) : null;
    const now = systemClock.elapsed();
    if (left !== null && !settled && (left.count !== printed || now - printedAt >= PROGRESS_MS)) {
      if (left.count > 0) printText(left.message);
      printed = left.count;
      printedAt = now;
    }
    await Promise.race([ended, sleep(POLL_DRAIN_MS, undefined, { ref: false })]);
  }
  return change;
}

/** null: it is not stopping yet. */
function drainLeft({ tools, drain_left_s: seconds }: Status): { count: number; message: string } | null {
  if (seconds === null) return null;
  const count = tools.reduce((sum, { running }) => sum + running, 0);
  const requests = `waiting for ${count} ${count === 1 ? "request" : "requests"}`;
  // The status of an older daemon does not have it.
  return { count, message: seconds === undefined ? requests : `${requests}, ${seconds} s left` };
}

/** The configuration of the installed service, if it can start with it. null: the reason was printed. */
async function startableConfig(
  { node, main }: InstalledService,
  paths: Paths,
  kept: string,
): Promise<Config | null> {
  const missing = [node, main].find((path) => !existsSync(path));
  if (missing === undefined) return usableConfig(paths, kept);
  return failNull(
    [{ problem: `${missing} no longer exists`, next: advice.serviceInstall() }, kept],
    EXIT.failed,
  );
}

/** null: its problems were printed, and `kept` after them. */
export async function usableConfig({ config: file, home }: Paths, kept: string): Promise<Config | null> {
  const { found, config, problems } = await loadConfig(file, { home, strict: true });
  if (config !== null) return config;
  const message = found
    ? formatProblems(file, problems)
    : { problem: `there is no ${file}`, next: advice.init() };
  return failNull([message, kept], EXIT.badConfig);
}

export interface Conflict extends Problem {
  readonly exitCode: number;
}

/** What would keep the service's process from starting; null: nothing. */
export async function startConflict(
  paths: Paths,
  config: Config,
  state: ServiceState,
): Promise<Conflict | null> {
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, 3000);
  const pid = asked.ok ? asked.value.pid : null;
  if (asked.ok ? pid !== state.pid : asked.running && state.pid === null) {
    const who =
      pid === null ? "keybearer is already running here" : `keybearer is already running here, as pid ${pid}`;
    const how = pid === null ? "stop it" : advice.stop();
    const problem = `${who}, and not as the service`;
    return { problem, next: `${how}, then try again`, exitCode: EXIT.alreadyRunning };
  }
  const { port } = config.listen;
  const listening = asked.ok && asked.value.listen.some((address) => address.endsWith(`:${port}`));
  if (port === 0 || listening || !(await isTaken(port))) return null;
  const owner = await portOwner(port);
  // The service itself, which does not answer on its socket yet.
  if (owner !== null && owner.pid === state.pid) return null;
  const problem = `port ${port} is taken by ${describeOwner(owner)}`;
  return { problem, next: "stop it, or change listen in config.yaml", exitCode: EXIT.portTaken };
}

export type Start =
  | { readonly ok: true; readonly status: Status; readonly state: ServiceState }
  | (Failed & { readonly state: ServiceState });

const START_MS = 15_000;
const POLL_MS = 200;
const ANSWER_MS = 2000;

/** Waits until the service's own process answers on its port and its socket, or has failed. */
export async function untilServing(manager: ServiceManager, paths: Paths): Promise<Start> {
  const deadline = systemClock.elapsed() + START_MS;
  for (;;) {
    const start = await checkServing(manager, paths);
    if (start.ok || start.state.active === "failed" || systemClock.elapsed() >= deadline) return start;
    await sleep(POLL_MS);
  }
}

async function checkServing(manager: ServiceManager, paths: Paths): Promise<Start> {
  const state = await manager.state();
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, ANSWER_MS);
  const notServing = (problem: string): Start => ({ ...failed(problem), state });
  if (state.active === "failed") return notServing("it ended with a failure");
  if (!asked.ok) return notServing(asked.running ? asked.problem : "it does not answer on its socket yet");
  const status = asked.value;
  if (state.pid !== status.pid)
    return notServing(`another keybearer answers, pid ${status.pid}, not the service`);
  if (!(await isHealthy(status.listen.slice(0, 1), ANSWER_MS)))
    return notServing("/healthz does not answer yet");
  return { ok: true, status, state };
}

export async function notStarted(manager: ServiceManager, { problem, next }: Problem): Promise<Start> {
  return { ...failed(problem, next), state: await manager.state() };
}

/** Exit codes of the daemon that this command passes on. */
const PASSED_ON: readonly number[] = [EXIT.portTaken, EXIT.alreadyRunning, EXIT.badConfig];

/** Explains why a service that was started does not serve. `check`: see checkCommand. */
export async function failNotServing(
  manager: ServiceManager,
  { problem, next, state }: Start & { ok: false },
  check: string,
): Promise<void> {
  const last = state.active === "running" ? null : state.lastExit;
  const exit = last === null || last.code === 0 ? null : describeExit(last, state.statusText, check);
  const lines = [
    `the service does not serve: ${problem}`,
    exit === null ? state.description : `${state.description}; ${exit.what}`,
    ...(await lastLines(manager, 12)),
    `→ ${exit?.next ?? next ?? advice.serviceStatus()}`,
  ];
  fail(lines, last?.code != null && PASSED_ON.includes(last.code) ? last.code : EXIT.failed);
}
