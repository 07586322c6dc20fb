import type { Dirent } from "node:fs";
import { basename, dirname } from "node:path";
import { type Loaded, loadConfig } from "../config/load.ts";
import { type ConfigProblem, formatProblems, problemInLine, warning } from "../config/problems.ts";
import type { Config, Listen } from "../config/schema.ts";
import { Snapshot } from "../config/snapshot.ts";
import { isDaemonListening } from "../control/client.ts";
import { ControlServer, type ControlSockets } from "../control/server.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { Connections } from "../core/connections.ts";
import { type Problem, withNext } from "../core/display.ts";
import { EXIT, errorMessage, StartError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { setAsideForeign } from "../core/own-file.ts";
import { type Mode, type Paths, prepareFolders } from "../core/paths.ts";
import { PeerLookup } from "../core/peer-user.ts";
import { ProcessLookup } from "../core/process-lookup.ts";
import type { Settled } from "../keys/trust.ts";
import { bindDataPort, bindNextDataPort, type DataPort } from "./data-port.ts";
import type { Keys } from "./keys.ts";
import { Projects } from "./projects.ts";
import { keyWarnings, trustWarnings, usableKeys, wantedKeys } from "./reload.ts";
import type { SandboxSession } from "./sandbox-session.ts";
import type { Shutdown } from "./shutdown.ts";
import { StateLock } from "./state-lock.ts";

interface OpenOptions {
  readonly paths: Paths;
  readonly clock: Clock;
  /** What a person should know about this start. */
  readonly warnings: readonly string[];
  /** null: the sandbox takes the configuration's default, or the next free port. */
  readonly sandboxListen: Listen | null;
}

/** Everything that only one daemon can have, and that a start may fail for: the lock, the configuration, the ports. */
export interface OpenState {
  readonly lock: StateLock;
  readonly control: ControlSockets;
  readonly loaded: Loaded;
  /** The snapshot to begin with. */
  readonly initial: Snapshot;
  readonly settled: Settled;
  /** Warnings that last until the next start. */
  readonly startWarnings: readonly ConfigProblem[];
  /** null: there is a config.yaml. */
  readonly sandboxSession: SandboxSession | null;
  readonly processLookup: ProcessLookup;
  readonly projects: Projects;
  readonly peers: PeerLookup;
  readonly port: DataPort;
}

export async function openState(options: OpenOptions, keys: Keys, shutdown: Shutdown): Promise<OpenState> {
  const { paths, clock, sandboxListen } = options;
  const { log } = keys;
  // First, because the rest belongs to one daemon.
  const lock = await takeLock(paths, shutdown);
  const loaded = await firstLoad(paths);
  const control =
    paths.mode === "system"
      ? await openOwnerSockets(keys.env, log, shutdown)
      : await openControl(paths, log, shutdown);
  const startWarnings = loadState(keys, paths, clock);
  for (const text of options.warnings) {
    log.warn(text);
    startWarnings.push(warning("", text));
  }
  const sandboxSession = loaded.config === null ? await startSandbox(sandboxListen, clock, log) : null;
  shutdown.add("stop the sandbox", () => sandboxSession?.stop());
  const { initial, settled } =
    sandboxSession === null
      ? await initialSnapshot(loaded, paths, keys, startWarnings)
      : { initial: sandboxSession.snapshot, settled: { problem: null, blocksKeys: false } };
  log.level = initial.config.log.level;
  const connections = new Connections();
  const processLookup = new ProcessLookup(connections, log);
  if (initial.processTools.length > 0) await processLookup.prepare();
  const projects = new Projects({ clock, home: paths.home, mode: paths.mode, processLookup });
  await projects.apply(initial.config);
  const peers = new PeerLookup(connections);
  peers.serve(ownersOf(paths.mode, initial.config));
  const mayTakeNext = sandboxSession !== null && sandboxListen === null;
  const bind = mayTakeNext ? bindNextDataPort : bindDataPort;
  const port = await bind(initial.config.listen, peers, log);
  shutdown.add("close the port", () => closePort(port));
  return {
    lock,
    control,
    loaded,
    initial,
    settled,
    startWarnings,
    sandboxSession,
    processLookup,
    projects,
    peers,
    port,
  };
}

/** Whose connections are served; null: those of the daemon's own user. */
export function ownersOf(mode: Mode, { owners }: Config): readonly number[] | null {
  return mode === "user" ? null : owners.flatMap(({ uid }) => (uid === null ? [] : [uid]));
}

async function takeLock(paths: Paths, shutdown: Shutdown): Promise<StateLock> {
  const problems = prepareFolders(paths);
  if (problems.length > 0) throw new StartError(EXIT.badConfig, ...problems);
  const lock = await waitForLock(paths);
  if (lock === null) throw new StartError(EXIT.alreadyRunning, ALREADY_RUNNING);
  shutdown.add("release the lock", () => lock.release());
  return lock;
}

/** StateLock.take waits a quarter of a second each time. */
const LOCK_ATTEMPTS = 12;

/** null: another daemon holds it. A command that brings the usage index up to date holds it for a moment only. */
async function waitForLock(paths: Paths): Promise<StateLock | null> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const lock = StateLock.take(paths.lock);
      if (lock !== null) return lock;
    } catch (error) {
      const problem = `cannot lock ${paths.lock}: ${errorMessage(error)}`;
      throw new StartError(EXIT.failed, { problem, next: null });
    }
    // systemd listens on the sockets of a system service, also before it runs.
    const isRunning = paths.mode === "user" && (await isDaemonListening(paths.socket));
    if (attempt === LOCK_ATTEMPTS || isRunning) return null;
  }
}

const ALREADY_RUNNING: Problem = {
  problem: "keybearer is already running here, or still stopping",
  next: advice.status(),
};

/** If there is no file, the sandbox serves; a file named with --config must exist. */
async function firstLoad(paths: Paths): Promise<Loaded> {
  const { home, mode, overrides } = paths;
  const loaded = await loadConfig(paths.config, { home, mode, overrides, strict: true });
  if (loaded.config === null && (loaded.found || paths.explicit)) {
    throw new StartError(EXIT.badConfig, {
      problem: formatProblems(paths.config, loaded.problems),
      next: null,
    });
  }
  return loaded;
}

async function openControl(paths: Paths, log: Logger, shutdown: Shutdown): Promise<ControlServer> {
  const control = new ControlServer(paths.socket, log);
  shutdown.add("close the control socket", () => control.close());
  switch (await control.listen()) {
    case "listening":
      return control;
    case "already running":
      throw new StartError(EXIT.alreadyRunning, ALREADY_RUNNING);
    case "path too long":
      throw new StartError(EXIT.failed, {
        problem: `the path of the control socket is too long for the system: ${paths.socket}`,
        next: "set a shorter KEYBEARER_HOME",
      });
  }
}

/** Those that systemd passed. Imported only here: a person's own keybearer has one socket. */
async function openOwnerSockets(
  env: NodeJS.ProcessEnv,
  log: Logger,
  shutdown: Shutdown,
): Promise<ControlSockets> {
  const { OwnerSockets, passedSockets } = await import("../control/owner-sockets.ts");
  const passed = passedSockets(env, process.pid);
  if ("problem" in passed) throw new StartError(EXIT.badConfig, passed);
  const control = new OwnerSockets(log);
  shutdown.add("close the control sockets", () => control.close());
  await control.listen(passed);
  return control;
}

/** Reads what earlier runs stored. Returns the warnings that `status` shows until the next start. */
function loadState({ trust, vault, log }: Keys, paths: Paths, clock: Clock): ConfigProblem[] {
  const problems = setAsideForeignState(paths, clock.now());
  const lost = trust.load();
  if (lost.problem !== null) log.error(lost.problem);
  const login = vault.load();
  if (login !== null) problems.push(withNext(login));
  for (const problem of problems) log.error(problem);
  return problems.map((problem) => warning("", problem));
}

/** Every program of this user can put links and pipes where keybearer's files are. */
function setAsideForeignState(paths: Paths, now: number): string[] {
  const { state, usage, run, lock } = paths;
  // lock.db is open, and was checked before.
  const others: unknown[] = [usage, run, lock];
  const names = new Set<string>();
  for (const path of Object.values(paths))
    if (typeof path === "string" && dirname(path) === state && !others.includes(path))
      names.add(basename(path));
  const isState = ({ name }: Dirent) => names.has(name.replace(/(?<=\.db)-(wal|shm|journal)$/, ""));
  // A person may have put a folder where a day's file belongs. Then nothing is sent until it is gone.
  const isDay = (entry: Dirent) => /\.jsonl(\.gz)?$/.test(entry.name) && !entry.isDirectory();
  return [...setAsideForeign(state, isState, now), ...setAsideForeign(usage, isDay, now)];
}

/** Imported only here: with a config.yaml, nothing of the sandbox is loaded. */
async function startSandbox(listen: Listen | null, clock: Clock, log: Logger): Promise<SandboxSession> {
  const { startSandboxSession } = await import("./sandbox-session.ts");
  return await startSandboxSession(clock, log, listen ?? undefined);
}

/** A key that takes longer, such as one whose command asks for a fingerprint, follows while the others serve. */
const FIRST_KEYS_MS = 3000;

async function initialSnapshot(
  { config, problems }: Loaded,
  paths: Paths,
  keys: Keys,
  startWarnings: readonly ConfigProblem[],
): Promise<Pick<OpenState, "initial" | "settled">> {
  if (config === null)
    throw new StartError(EXIT.badConfig, { problem: formatProblems(paths.config, problems), next: null });
  const states = await keys.keyring.resolve(wantedKeys(config, paths), FIRST_KEYS_MS);
  const settled = await keys.trust.settle();
  if (settled.problem !== null) keys.log.error(settled.problem);
  const warnings = [...trustWarnings(keys.trust), ...problems, ...keyWarnings(keys.keyring)];
  for (const problem of warnings) keys.log.warn({ path: problem.path }, problemInLine(problem));
  const usable = usableKeys(states, settled);
  return { initial: new Snapshot(1, config, usable, [...startWarnings, ...warnings]), settled };
}

function closePort(port: DataPort): Promise<void> {
  const drained = port.drain();
  port.cut();
  return drained;
}
