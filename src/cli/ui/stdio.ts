import { AsyncLocalStorage } from "node:async_hooks";
import { existsSync } from "node:fs";
import { homedir, userInfo } from "node:os";
import type { Readable, Writable } from "node:stream";
import { findPaths, type Mode, type Paths, socketUnitPath, systemPaths } from "../../core/paths.ts";

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

/** Which keybearer was chosen with --system or --user. */
const chosen = new AsyncLocalStorage<Mode | null>();

/** Runs a command for the keybearer of this mode; null: whichever is there. */
export function withMode<Done>(mode: Mode | null, run: () => Promise<Done>): Promise<Done> {
  return chosen.run(mode, run);
}

/** null: neither --system nor --user was typed. */
export function chosenMode(): Mode | null {
  return chosen.getStore() ?? null;
}

/**
 * Where the files are of the keybearer that a command is for: what was chosen with --system or --user, else the person's own
 * if there is one, else the system service if it has a socket for this user.
 */
export function commandPaths(config?: string, mode = chosenMode()): Paths {
  const { env } = stdio();
  const own = findPaths({ config, env, home: homeFolder() });
  if (mode === "user" || (mode === null && (own.explicit || env.KEYBEARER_HOME))) return own;
  const system = systemPaths(process.getuid?.() ?? -1);
  const isChosen = mode === "system" || (!existsSync(own.config) && isSystemOwner(system));
  if (!isChosen) return own;
  // A page that takes the browser to the dashboard is the owner's own file.
  return isOwners(system) ? { ...system, run: own.run } : system;
}

/** Where a person's own files are, also those of an owner of the system service. */
export function ownPaths(paths: Paths): Paths {
  return isOwners(paths) ? findPaths({ env: stdio().env, home: homeFolder() }) : paths;
}

/** Whether this user has a socket of the system service, also while the service is down. */
function isSystemOwner({ socket }: Paths): boolean {
  return existsSync(socket) || existsSync(socketUnitPath(userInfo().username));
}

/** Whether the daemon must be asked for everything, because this user cannot open the files of the system service. */
export function isOwners({ mode }: Pick<Paths, "mode">): boolean {
  return mode === "system" && process.geteuid?.() !== 0;
}
