import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, fstatSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { askDaemon } from "../control/client.ts";
import type { Status } from "../control/status.ts";
import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import { EXIT, errorMessage } from "../core/errors.ts";
import { readOwnFile } from "../core/own-file.ts";
import { type Paths, prepareFolders } from "../core/paths.ts";
import { MINUTE_MS } from "../core/units.ts";
import { logFileIn, MAX_LOG_BYTES, openLogFile } from "../service/log-file.ts";
import { isSameFile } from "./config-change.ts";
import { isSafeStart, noteIneffective } from "./safe-start.ts";
import {
  answeringManager,
  type ContextOptions,
  installedContext,
  type ServiceManager,
  serviceHere,
} from "./service/context.ts";
import { failNotServing, restart, untilServing } from "./service/restart.ts";
import { checkCommand } from "./service/status.ts";
import { fail, printText } from "./ui/messages.ts";
import { stdio } from "./ui/stdio.ts";

/** A keychain may ask the person to unlock it before the daemon can read its keys. */
const START_MS = MINUTE_MS;
const POLL_MS = 100;
const ANSWER_MS = 2000;

/** `keybearer start`: the installed service, else a daemon in the background. */
export async function start(options: { config?: string }, overrides: ContextOptions = {}): Promise<void> {
  const given = { ...overrides, config: options.config ?? overrides.config };
  const context = await installedContext(given);
  const service = await serviceHere(context);
  const paths = service === null ? context.shellPaths : context.paths;
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, ANSWER_MS);
  if (asked.ok) return reportRunning(paths, asked.value);
  if (service !== null) return startService(service, paths, given);
  if (!existsSync(paths.config))
    return fail(
      {
        problem: `there is no ${paths.config}`,
        next: `${advice.init()}. to try the sandbox: ${advice.run()}`,
      },
      EXIT.badConfig,
    );
  if (!isSafeStart()) return;
  noteIneffective();
  const canBeService = (await answeringManager(context)) !== null;
  await startInBackground(paths, canBeService ? advice.serviceInstall() : advice.start());
}

/** A daemon that this command did not start answers already. */
async function reportRunning(paths: Paths, { pid, config, listen, drain_left_s }: Status): Promise<void> {
  const who = `keybearer runs already, as pid ${pid}`;
  // The status of an older daemon does not have it.
  if ((drain_left_s ?? null) !== null)
    return fail(
      { problem: `${who}, and is stopping. once it has ended`, next: advice.start() },
      EXIT.alreadyRunning,
    );
  if (paths.explicit && !(await isSameFile(config.path, paths.config)))
    return fail({ problem: `${who}, with ${config.path}`, next: advice.stop() }, EXIT.alreadyRunning);
  printText(`${who}, and answers on ${listen.join(" and ")}`);
}

async function startService(manager: ServiceManager, paths: Paths, given: ContextOptions): Promise<void> {
  const { active } = await manager.state();
  // A restart would stop one that is about to serve.
  if (active !== "running" && active !== "starting") return restart(given);
  const started = await untilServing(manager, paths);
  if (!started.ok) return failNotServing(manager, started, checkCommand(paths.config, paths.config));
  printText(`the service runs as pid ${started.state.pid}`);
}

/** @param next what brings it back after a crash or a reboot */
async function startInBackground(paths: Paths, next: string): Promise<void> {
  const problems = prepareFolders(paths);
  if (problems.length > 0) return fail(problems, EXIT.badConfig);
  const file = logFileIn(paths);
  let log: number;
  try {
    log = openLogFile(file);
  } catch (error) {
    return fail(`the log cannot be written: ${errorMessage(error)}`, EXIT.failed);
  }
  const before = fstatSync(log).size;
  const child = spawnRun(paths, log);
  closeSync(log);
  try {
    await once(child, "spawn");
  } catch (error) {
    return fail(`keybearer could not be started: ${errorMessage(error)}`, EXIT.failed);
  }
  // A start that is canceled leaves nothing behind.
  const cancel = () => {
    child.kill("SIGTERM");
    process.exit(EXIT.failed);
  };
  process.once("SIGINT", cancel).once("SIGTERM", cancel);
  const status = await untilServed(child, paths);
  const otherWasQuicker = status !== null && status.pid !== child.pid;
  // Otherwise it could begin to serve after a `keybearer stop` of the other.
  if (otherWasQuicker) await end(child);
  process.off("SIGINT", cancel).off("SIGTERM", cancel);
  child.unref();
  if (otherWasQuicker) return reportRunning(paths, status);
  if (status !== null)
    return printText(
      `keybearer runs in the background as pid ${child.pid}, and answers on ${status.listen.join(" and ")}`,
      { problem: `its log is ${file}`, next: advice.logs() },
      { problem: "it will not come back after a crash or a reboot", next },
    );
  if (!hasEnded(child))
    return fail(
      { problem: `keybearer is still starting, as pid ${child.pid}`, next: advice.logs() },
      EXIT.failed,
    );
  const messages = messagesIn(file, before);
  const how = child.exitCode === null ? child.signalCode : `exit code ${child.exitCode}`;
  if (messages.length === 0) messages.push(`keybearer ended with ${how} → ${advice.logs()}`);
  fail(messages.join("\n"), child.exitCode ?? EXIT.failed);
}

/** `keybearer run` in a session of its own: it has no terminal, so the end of this one does not reach it. */
function spawnRun(paths: Paths, log: number): ChildProcess {
  const { env } = stdio();
  // It runs in the state folder, so that it does not keep this terminal's folder busy. A relative KEYBEARER_HOME must become
  // absolute for that.
  const home = env.KEYBEARER_HOME ? { KEYBEARER_HOME: resolve(env.KEYBEARER_HOME) } : {};
  return spawn(process.execPath, [process.argv[1] ?? "", "run", "--config", paths.config], {
    cwd: paths.state,
    detached: true,
    env: { ...env, ...home },
    stdio: ["ignore", log, log],
  });
}

/** The status of the daemon that serves; null: this one has ended, or takes too long. */
async function untilServed(child: ChildProcess, paths: Paths): Promise<Status | null> {
  const deadline = systemClock.elapsed() + START_MS;
  for (;;) {
    // If another start was quicker, its daemon answers soon.
    const isOver = hasEnded(child) && child.exitCode !== EXIT.alreadyRunning;
    const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, ANSWER_MS);
    if (asked.ok) return asked.value;
    if (isOver || systemClock.elapsed() >= deadline) return null;
    await sleep(POLL_MS);
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  await exit;
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** What a start that failed wrote for people; the rest are lines of its log, as JSON. */
function messagesIn(file: string, before: number): string[] {
  try {
    const written = Buffer.from(readOwnFile(file, 2 * MAX_LOG_BYTES) ?? "");
    // The start itself cuts a log that is too long.
    const added = written.length < before ? written : written.subarray(before);
    return added
      .toString()
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("{"));
  } catch {
    // It is too long, or something else is there now. `keybearer logs` shows it, or says what is there.
    return [];
  }
}
