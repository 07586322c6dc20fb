import { join } from "node:path";
import type { Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { Status } from "../../src/control/status.ts";
import { findPaths, type Paths } from "../../src/core/paths.ts";
import { bareEnv, newHome, type Running, saveConfig, startProgram } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { PRICES } from "../doubles/limited-journey.ts";
import { ROOT } from "../doubles/paths.ts";
import { Partition } from "./partition.ts";
import type { StoreServer } from "./redis.ts";

const PROGRAM = join(ROOT, "build", "test", "shared", "machine-daemon.js");

/** Nothing that a test does takes so long. */
const HANG_MS = 60_000;

export interface MachineOptions {
  readonly name: string;
  readonly store: StoreServer;
  /** How far its clock is ahead of the system's, in minutes. */
  readonly skewMinutes?: number;
  /** Lines of the gateway `main`, without indentation. */
  readonly gateway: readonly string[];
  /** The tools' settings in YAML's flow style, with `key:`. */
  readonly tools: Readonly<Record<string, string>>;
  /** More lines below `shared:`, without indentation. */
  readonly shared?: readonly string[];
}

export interface Outcome {
  /** null: the machine was killed before it answered. */
  readonly status: number | null;
  /** The refusal's code; null: keybearer did not refuse. */
  readonly refusal: string | null;
  /** The id of the record. */
  readonly id: string | null;
  readonly text: string;
}

const NO_ANSWER: Outcome = { status: null, refusal: null, id: null, text: "" };

/** One of several machines: a daemon as a process, its folder, its clock and its way to the store. */
export class Machine {
  readonly name: string;
  readonly home: string;
  readonly paths: Paths;
  /** Milliseconds that its clock is ahead. */
  readonly skew: number;
  readonly partition: Partition;
  /** The token of each tool. */
  readonly tokens: Readonly<Record<string, string>>;
  readonly #t: Test;
  #running: Running | null = null;
  /** What processes that ended have logged. */
  #logged = "";
  #url = "";

  private constructor(t: Test, options: MachineOptions, home: string, partition: Partition, tokens: Tokens) {
    this.#t = t;
    this.name = options.name;
    this.home = home;
    this.paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
    this.skew = (options.skewMinutes ?? 0) * 60_000;
    this.partition = partition;
    this.tokens = Object.fromEntries(Object.entries(tokens).map(([tool, { token }]) => [tool, token]));
  }

  /** Makes its folder. It runs after start(). */
  static async create(t: Test, options: MachineOptions): Promise<Machine> {
    const home = await newHome(t);
    const partition = await Partition.start(t, options.store.port);
    const tokens = Object.fromEntries(Object.keys(options.tools).map((tool) => [tool, freshToken()]));
    await saveConfig(home, configText(options, partition.port, tokens));
    return new Machine(t, options, home, partition, tokens);
  }

  get url(): string {
    return this.#url;
  }

  /** Starts the daemon and waits until it serves. */
  async start(): Promise<void> {
    const args = [PROGRAM, String(this.skew)];
    const running = startProgram(this.#t, process.execPath, args, bareEnv(this.home));
    this.#running = running;
    const [, port] = await running.says(/^serves (\d+)$/m);
    this.#url = `http://127.0.0.1:${port}`;
  }

  /** kill -9 */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** SIGTERM. Requests in flight are cut. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const running = this.#running;
    if (running === null) return;
    running.child.kill(signal);
    const { stderr } = await running.ended;
    this.#logged += stderr;
    this.#running = null;
  }

  /** As a suspended laptop. */
  freeze(): void {
    this.#running?.child.kill("SIGSTOP");
  }

  thaw(): void {
    this.#running?.child.kill("SIGCONT");
  }

  /** Some seconds pass in which it serves no request. */
  idle(): void {
    this.#running?.child.kill("SIGUSR2");
  }

  /** Everything it has logged, also before a restart. */
  log(): string {
    return this.#logged + (this.#running?.stderr() ?? "");
  }

  /** Sends one request and reads the whole answer. */
  async send(tool: string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<Outcome> {
    const signal = AbortSignal.timeout(HANG_MS);
    try {
      const answer = await fetch(`${this.#url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${this.tokens[tool]}`,
          "content-type": "application/json",
          "x-machine": this.name,
          ...headers,
        },
        body: JSON.stringify(body),
        signal,
      });
      const refusal = answer.headers.get("x-keybearer-refusal");
      const id = answer.headers.get("x-keybearer-request-id");
      return { status: answer.status, refusal, id, text: await answer.text() };
    } catch {
      if (signal.aborted)
        throw new Error(`${this.name} did not answer a request of ${tool} in ${HANG_MS} ms`);
      // It was killed, or does not run.
      return NO_ANSWER;
    }
  }

  /** Asks over the control socket. */
  async control<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
    const asked = await askDaemon<T>(this.paths, method, path, body);
    if (!asked.ok) throw new Error(`${this.name}: ${method} ${path}: ${asked.problem}`);
    return asked.value;
  }

  status(): Promise<Status> {
    return this.control("GET", "/status");
  }
}

type Tokens = Readonly<Record<string, { readonly token: string; readonly hash: string }>>;

function configText(options: MachineOptions, storePort: number, tokens: Tokens): string {
  const { name, store, gateway, tools, shared = [] } = options;
  return [
    "listen: localhost:0",
    "gateways:",
    "  main:",
    ...gateway.map((line) => `    ${line}`),
    "shared:",
    "  store:",
    `    url: ${store.certificate === null ? "redis" : "rediss"}://127.0.0.1:${storePort}`,
    ...(store.certificate === null ? [] : [`    ca_file: ${store.certificate}`]),
    `    username: ${store.username}`,
    `    password: ${store.password}`,
    `  machine: ${name}`,
    ...shared.map((line) => `  ${line}`),
    "tools:",
    ...Object.entries(tools).map(
      ([tool, settings]) => `  ${tool}: { token: "${tokens[tool]?.hash}", ${settings} }`,
    ),
    PRICES,
  ].join("\n");
}
