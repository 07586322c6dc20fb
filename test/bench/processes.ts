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

/** The compiled bench, test/bench/.built/test/bench. */
export const BUILT_FOLDER = dirname(fileURLToPath(import.meta.url));
export const BENCH_FOLDER = join(BUILT_FOLDER, "..", "..", "..");
export const PROJECT_FOLDER = join(BENCH_FOLDER, "..", "..");

/** Starts processes and ends each of them, however the bench ends. */
export class Processes {
  readonly #running = new Set<ChildProcess>();
  readonly #logFolder: string;

  constructor(logFolder: string) {
    this.#logFolder = logFolder;
  }

  /** Output goes to a file, whose end explains a failed start. */
  start(name: string, command: Command): Child {
    const logFile = join(this.#logFolder, `${name}.log`);
    const log = openSync(logFile, "a", 0o600);
    const env = { ...cleanEnvironment(), ...command.env };
    const started = spawn(command.file, command.args, { stdio: ["ignore", log, log], env });
    closeSync(log);
    return new Child(name, this.#watch(started), logFile);
  }

  /** One of the bench's own programs, with an IPC channel. */
  fork(program: string, args: readonly string[] = []): ChildProcess {
    const options = { env: cleanEnvironment(), execArgv: [] };
    return this.#watch(fork(join(BUILT_FOLDER, program), args, options));
  }

  killAll(): void {
    for (const child of this.#running) child.kill("SIGKILL");
  }

  #watch(child: ChildProcess): ChildProcess {
    this.#running.add(child);
    child.once("exit", () => this.#running.delete(child));
    return child;
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

  /** The start time is read from this, so it tries every millisecond. */
  async listensOn(port: number): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS;
    while (!(await acceptsConnection(port))) {
      if (this.#hasExited) throw new Error(`${this.#name} ended while it started: ${this.logEnd()}`);
      if (performance.now() > deadline) throw new Error(`${this.#name} does not listen: ${this.logEnd()}`);
      await sleep(1);
    }
  }

  async stop(): Promise<void> {
    this.#process.kill("SIGTERM");
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), STOP_TIMEOUT_MS);
    await this.exited;
    clearTimeout(timer);
  }

  logEnd(): string {
    return readFileSync(this.#logFile, "utf8").slice(-1000);
  }
}

/** The next message of a forked program. Rejects when the program ends without one. */
export function nextMessage(child: ChildProcess): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const fail = () => reject(new Error("a process of the bench ended unexpectedly"));
    child.once("exit", fail);
    child.once("message", (message) => {
      child.off("exit", fail);
      resolve(message);
    });
  });
}

/** Proxy variables, NODE_OPTIONS and the like would be measured along with the candidates. */
function cleanEnvironment(): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const name of ["PATH", "HOME", "TMPDIR", "LANG", "TZ"]) {
    const value = process.env[name];
    if (value !== undefined) kept[name] = value;
  }
  return kept;
}

/** A port that is free now. Without a host, Node binds IPv4 and IPv6. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
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

/** null when there is no package in that folder. */
export function packageVersion(folder: string): string | null {
  const file = join(folder, "package.json");
  return existsSync(file) ? String(JSON.parse(readFileSync(file, "utf8")).version) : null;
}
