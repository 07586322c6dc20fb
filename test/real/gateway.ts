import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../doubles/listen.ts";

/** The path of a request below the gateway, which also says in which protocol it is. */
export type Endpoint = "/v1/messages" | "/v1/chat/completions" | "/v1/responses" | "/v1/embeddings";

/** A tool of the test, and its group at the gateway. */
export interface Tool {
  readonly tool: string;
  readonly group: string;
  readonly multiplier: number;
  readonly calls: readonly Call[];
}

export interface Call {
  readonly endpoint: Endpoint;
  readonly model: string;
}

/** What is never a stream. */
export function canStream({ endpoint }: Call): boolean {
  return endpoint !== "/v1/embeddings";
}

/** A tool with its key. */
export interface ToolKey extends Tool {
  readonly key: string;
}

export const CLAUDE = "claude-sonnet-4-5";
export const GPT = "gpt-4.1-mini";
export const EMBEDDING = "text-embedding-3-small";
const MESSAGES: Call = { endpoint: "/v1/messages", model: CLAUDE };
const CHAT: Call = { endpoint: "/v1/chat/completions", model: GPT };
const RESPONSES: Call = { endpoint: "/v1/responses", model: GPT };

/** Each has a group of its own. */
export const TOOLS: readonly Tool[] = [
  { tool: "claude-code", group: "coding", multiplier: 1.5, calls: [MESSAGES] },
  { tool: "codex", group: "openai", multiplier: 0.8, calls: [RESPONSES, CHAT] },
  { tool: "scripts", group: "budget", multiplier: 0.5, calls: [MESSAGES, CHAT] },
];

/** One row of the gateway's usage log, read from its own database. */
export interface GatewayRow {
  /** As the console lists it, without a prefix. */
  readonly requestId: string;
  /** As the mirror names the row, where several rows can have one request id. */
  readonly identity?: string;
  /** Of the request that caused it; null: that could not be found out. */
  readonly marker: string | null;
  readonly kind: "use" | "error";
  /** When the request arrived at the gateway, milliseconds, as precisely as the row tells a careful reader. */
  readonly startedAt: number;
  readonly billedMicrodollars: number;
}

/** A real gateway with its users, groups, keys and prices set up. */
export interface Gateway {
  readonly origin: string;
  readonly tools: readonly ToolKey[];
  /** Lines below `console:` in config.yaml. */
  readonly console: readonly string[];
  /** Whether a new key may be in a tool's group. Absent: it must be. */
  readonly hasGroups?: boolean;
  /** A key can be limited to models. */
  readonly limitsModels?: boolean;
  /** Statuses that the provider may answer. */
  readonly failures: readonly number[];
  rows(): Promise<GatewayRow[]>;
  /** The names of the user's keys that are not deleted, from its own database. */
  keys(): Promise<string[]>;
  /** On the same port, with the same data. Its rate limits start over. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface GatewayOptions {
  /** The gateway's program. */
  readonly program: string;
  /** A folder of its own, empty. */
  readonly folder: string;
  /** Where the provider is. */
  readonly provider: string;
}

/** Dollars per million tokens, the same at the gateway and in config.yaml. */
export const PRICES = {
  [CLAUDE]: { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 },
  [GPT]: { input: 2, output: 8, cache_read: 0.5, cache_write: 2 },
  [EMBEDDING]: { input: 0.5, output: 0, cache_read: 0, cache_write: 0 },
} as const;

/** The gateways bill in units of up to two micro-dollars. With these steps every price is a whole number of units. */
export const TOKEN_STEP = 80;

/** Starts a gateway on a free port, and sets it up once it answers. Its output is in output.log of its folder. */
export async function startGateway(
  { program, folder }: GatewayOptions,
  {
    args = () => [],
    env,
    readyPath,
    patience,
  }: {
    readonly args?: (port: string) => readonly string[];
    readonly env: (port: string) => NodeJS.ProcessEnv;
    readonly readyPath: string;
    /** Milliseconds until it answers, at most. */
    readonly patience?: number;
  },
  setUp: (origin: string) => Promise<Omit<Gateway, "origin" | "restart" | "stop">>,
): Promise<Gateway> {
  const port = String(await freePort());
  const origin = `http://127.0.0.1:${port}`;
  const environment = { ...process.env, ...env(port) };
  const start = () =>
    startProgram(program, args(port), { cwd: folder, env: environment, output: join(folder, "output.log") });
  let running = start();
  const restart = async () => {
    await running.stop();
    running = start();
    await untilAnswered(origin + readyPath, patience);
  };
  try {
    await untilAnswered(origin + readyPath, patience);
    return { ...(await setUp(origin)), origin, restart, stop: () => running.stop() };
  } catch (error) {
    await running.stop();
    throw error;
  }
}

/** A program whose output goes to a file. */
export interface Program {
  stop(signal?: NodeJS.Signals): Promise<void>;
}

export function startProgram(
  command: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv; readonly output: string },
): Program {
  const output = openSync(options.output, "a", 0o600);
  const { cwd, env } = options;
  const child: ChildProcess = spawn(command, args, { cwd, env, stdio: ["ignore", output, output] });
  const ended = once(child, "exit");
  // Without a listener a program that is not there would end this process with an unhandled event.
  child.on("error", (error) => process.stderr.write(`${command}: ${error.message}\n`));
  return {
    async stop(signal = "SIGTERM") {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill(signal);
      await Promise.race([ended, sleep(10_000, undefined, { ref: false })]);
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    },
  };
}

/** Waits until a URL answers at all. */
export async function untilAnswered(url: string, patience = 60_000): Promise<void> {
  const end = Date.now() + patience;
  while (Date.now() < end) {
    try {
      await (await fetch(url)).arrayBuffer();
      return;
    } catch {
      // It does not listen yet.
      await sleep(100);
    }
  }
  throw new Error(`${url} did not answer in ${patience} ms`);
}
