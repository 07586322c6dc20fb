import { type ChildProcess, fork, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

const STOP_TIMEOUT_MS = 5000;
const START_TIMEOUT_MS = 60_000;

/** The compiled bench: .built/test/bench/. */
const BUILT = dirname(fileURLToPath(import.meta.url));
export const BENCH_FOLDER = join(BUILT, "..", "..", "..");
export const PROJECT_FOLDER = join(BENCH_FOLDER, "..", "..");

/** Starts processes and ends each of them, however the bench ends. */
export class Processes {
  readonly #running = new Set<ChildProcess>();
  readonly #logFolder: string;

  constructor(logFolder: string) {
    this.#logFolder = logFolder;
  }

  /** Standard output and error go to a file, whose end explains a failed start. */
  start(name: string, command: Command): Child {
    const logFile = join(this.#logFolder, `${name}.log`);
    const log = openSync(logFile, "a", 0o600);
    const started = spawn(command.file, command.args, {
      stdio: ["ignore", log, log],
      env: { ...cleanEnvironment(), ...command.env },
    });
    closeSync(log);
    this.#watch(started);
    return new Child(name, started, logFile);
  }

  /** One of the bench's own programs, with an IPC channel. */
  fork(program: string, args: readonly string[] = []): ChildProcess {
    const started = fork(join(BUILT, program), args, { env: cleanEnvironment(), execArgv: [] });
    this.#watch(started);
    return started;
  }

  killAll(): void {
    for (const process of this.#running) process.kill("SIGKILL");
  }

  #watch(started: ChildProcess): void {
    this.#running.add(started);
    started.once("exit", () => this.#running.delete(started));
    // A failed spawn has no exit event.
    started.once("error", () => this.#running.delete(started));
  }
}

export class Child {
  readonly #name: string;
  readonly #process: ChildProcess;
  readonly #logFile: string;
  /** The exit code; null when a signal ended the process. */
  readonly exited: Promise<number | null>;
  #hasExited = false;

  constructor(name: string, process: ChildProcess, logFile: string) {
    this.#name = name;
    this.#process = process;
    this.#logFile = logFile;
    this.exited = new Promise((resolve) => {
      const end = (code: number | null) => {
        this.#hasExited = true;
        resolve(code);
      };
      process.once("exit", end);
      // A failed spawn has no exit event.
      process.once("error", () => end(1));
    });
  }

  get pid(): number {
    if (this.#process.pid === undefined) throw new Error(`${this.#name} could not be started`);
    return this.#process.pid;
  }

  /** Start time is read from this, so it tries every millisecond. */
  async listensOn(port: number): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS;
    while (performance.now() < deadline) {
      if (this.#hasExited) throw new Error(`${this.#name} ended while it started:\n${this.logEnd()}`);
      if (await acceptsConnection(port)) return;
      await sleep(1);
    }
    throw new Error(`${this.#name} does not listen after ${START_TIMEOUT_MS / 1000} s:\n${this.logEnd()}`);
  }

  async stop(): Promise<void> {
    if (this.#hasExited) return;
    this.#process.kill("SIGTERM");
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), STOP_TIMEOUT_MS);
    await this.exited;
    clearTimeout(timer);
  }

  logEnd(): string {
    return readFileSync(this.#logFile, "utf8").slice(-2000);
  }
}

/** The version of a package below a folder, or with null of the folder's own package; null when it is not there. */
export function packageVersion(folder: string, name: string | null): string | null {
  const packageFolder = name === null ? folder : join(folder, "node_modules", name);
  const file = join(packageFolder, "package.json");
  return existsSync(file) ? String(JSON.parse(readFileSync(file, "utf8")).version) : null;
}

/** Proxy variables, NODE_OPTIONS and the like would be measured along with the candidates. */
export function cleanEnvironment(): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const name of ["PATH", "HOME", "TMPDIR", "LANG", "TZ"]) {
    const value = process.env[name];
    if (value !== undefined) kept[name] = value;
  }
  return kept;
}

/** A port that is free now on both loopback addresses. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const port = await bindOnce("127.0.0.1", 0);
    if (port !== null && (await bindOnce("::1", port)) !== null) return port;
  }
  throw new Error("no free port found");
}

/** null when the port is taken. */
function bindOnce(host: string, port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      const isWithoutIpv6 = error.code === "EADDRNOTAVAIL" || error.code === "EAFNOSUPPORT";
      resolve(isWithoutIpv6 ? port : null);
    });
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : null;
      server.close(() => resolve(bound));
    });
  });
}

function acceptsConnection(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
