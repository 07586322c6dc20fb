import { AsyncLocalStorage } from "node:async_hooks";
import { homedir } from "node:os";
import type { Readable, Writable } from "node:stream";
import { findPaths, type Paths } from "../../core/paths.ts";

/** A stream that may lead to a terminal. */
export interface Output extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  hasColors?(): boolean;
}

interface Input extends Readable {
  readonly isTTY?: boolean;
}

/** What a command reads and writes. */
interface Stdio {
  readonly stdin: Input;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: NodeJS.ProcessEnv;
  /** The options of Node in front of the program. */
  readonly execArgv: readonly string[];
  /** 0 until the command says otherwise. */
  exitCode: number;
}

/**
 * Nearly every function of a command prints, so the streams are not passed from one to the next. Only a program that runs
 * commands inside its own process (the tests) puts something in here.
 */
const given = new AsyncLocalStorage<Stdio>();

/** The streams and the environment of the running command: the process's own, unless `withStdio` gave it others. */
export function stdio(): Omit<Stdio, "exitCode"> {
  return given.getStore() ?? process;
}

/** The program ends with this code once everything is written. */
export function setExitCode(code: number): void {
  const store = given.getStore();
  if (store === undefined) process.exitCode = code;
  else store.exitCode = code;
}

export function exitCode(): number {
  return given.getStore()?.exitCode ?? Number(process.exitCode ?? 0);
}

/** Runs a command with these streams and this environment instead of the process's own. */
export function withStdio<Done>(streams: Stdio, run: () => Promise<Done>): Promise<Done> {
  return given.run(streams, run);
}

/** The home folder of the person who typed the command. */
export function homeFolder(): string {
  return stdio().env.HOME || homedir();
}

/** Where keybearer's files are for that person. */
export function commandPaths(config?: string): Paths {
  return findPaths({ config, env: stdio().env, home: homeFolder() });
}
