import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Where what it writes to standard error goes; left out: it is kept, and told when it fails. */
  readonly errorsTo?: string;
}

export interface Child {
  readonly pid: number;
  /** What it wrote to standard output so far. */
  output(): string;
  /** Calls back for everything it writes to standard output. */
  onOutput(listener: (text: string) => void): void;
  /** Resolves with its exit code, or null where a signal ended it. Never rejects. */
  readonly ended: Promise<number | null>;
  running(): boolean;
  /** The last of what it wrote to standard error, for words about a failure. */
  lastWords(): string;
}

/** Every process the bench starts, so that none outlives it. */
export interface Children {
  start(command: Command): Child;
  /** The ids of those that run. */
  running(): number[];
  /** Asks it to end, and ends it by its id if it has not after a moment. */
  end(child: Child): Promise<void>;
  /** At once, without asking: the bench itself is ending. */
  endAll(): void;
}

const MOST_OUTPUT = 8 * 1024 * 1024;
const PATIENCE_MS = 3000;

export function createChildren(env: Readonly<Record<string, string | undefined>>): Children {
  const running = new Map<number, ChildProcess>();
  const signal = (pid: number, name: NodeJS.Signals) => running.get(pid)?.kill(name);

  return {
    start(command) {
      const errors = command.errorsTo === undefined ? "pipe" : openSync(command.errorsTo, "a", 0o600);
      const started = spawn(command.file, command.args, {
        stdio: ["ignore", "pipe", errors],
        env: { ...baseEnv(env), ...command.env },
      });
      if (typeof errors === "number") closeSync(errors);
      return watched(started, running, command.file);
    },
    running: () => [...running.keys()],
    async end(child) {
      if (!child.running()) return;
      signal(child.pid, "SIGTERM");
      const timer = setTimeout(() => signal(child.pid, "SIGKILL"), PATIENCE_MS);
      await child.ended;
      clearTimeout(timer);
    },
    endAll() {
      for (const pid of running.keys()) signal(pid, "SIGKILL");
    },
  };
}

function watched(started: ChildProcess, running: Map<number, ChildProcess>, file: string): Child {
  let output = "";
  let errors = "";
  const listeners: ((text: string) => void)[] = [];
  started.stdout?.setEncoding("utf8").on("data", (text: string) => {
    output = (output + text).slice(-MOST_OUTPUT);
    for (const listener of listeners) listener(text);
  });
  started.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  const { pid } = started;
  if (pid !== undefined) running.set(pid, started);
  const ended = new Promise<number | null>((resolve) => {
    started.once("error", (error) => {
      errors += error.message;
      resolve(1);
    });
    started.once("close", (code) => resolve(code));
  }).then((code) => {
    if (pid !== undefined) running.delete(pid);
    return code;
  });
  if (pid === undefined) throw new Error(`${file} could not be started`);
  return {
    pid,
    ended,
    output: () => output,
    onOutput: (listener) => void listeners.push(listener),
    running: () => running.has(pid),
    lastWords: () => errors.trim(),
  };
}

/** Proxies, debugging and Node's options of whoever runs the bench would be measured along with the candidates. */
function baseEnv(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  // NODE_EXTRA_CA_CERTS: without it, npm reaches no registry behind a company's own certificate.
  const kept = ["PATH", "HOME", "TMPDIR", "LANG", "TZ", "NODE_EXTRA_CA_CERTS"];
  return Object.fromEntries(
    kept.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]] as const])),
  );
}
