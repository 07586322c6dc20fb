import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import type { Test } from "tap";
import { runCommandLine } from "../../src/cli/command-line.ts";
import { createProgram } from "../../src/cli/program.ts";
import { withStdio } from "../../src/cli/ui/stdio.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { ROOT } from "./paths.ts";
import { HANG_MS } from "./until.ts";

/** The built program under the name that npm gives it when it is installed. test/run.mjs makes the link. */
export const PROGRAM = join(ROOT, "build", "bin", "keybearer");

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly pid: number;
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** Resolves with the match once the text has come on stdout; fails when the program ends before. */
  says(what: RegExp): Promise<RegExpExecArray>;
  /** The same on stderr. */
  logs(what: RegExp): Promise<RegExpExecArray>;
  readonly ended: Promise<Ended>;
}

export interface CommandOptions {
  /** Beside a bare environment in which only PATH, HOME and KEYBEARER_HOME are set. undefined takes one away. */
  readonly env?: NodeJS.ProcessEnv;
  /** What is typed into it, and then the end. Default nothing. null leaves it open, to be typed into later. */
  readonly input?: string | null;
}

/** A folder for KEYBEARER_HOME, removed when the test ends. Short, because it contains a unix socket. */
export async function newHome(t: Test): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));
  return home;
}

export async function saveConfig(home: string, text: string): Promise<string> {
  const file = join(home, "config.yaml");
  await writeFile(file, text, { mode: 0o600 });
  await chmod(file, 0o600);
  return file;
}

/** Starts the built program. What still runs when the test ends is killed, by its pid. */
export function start(t: Test, home: string, args: readonly string[], options: CommandOptions = {}): Running {
  return startProgram(
    t,
    process.execPath,
    [builtProgram(), ...args],
    bareEnv(home, options.env),
    options.input,
  );
}

/** Runs the built program to its end. For what only a process has: signals, pipes, its own time zone. */
export function runProgram(
  t: Test,
  home: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<Ended> {
  return start(t, home, args, options).ended;
}

/** Runs a command in this process, with streams of its own. A start of the program costs 300 ms of a core. */
export function command(
  _t: Test,
  home: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<Ended> {
  if (args[0] === "run") throw new Error("a daemon that ends its process needs runProgram or start");
  return withStreams(home, () => runCommandLine(createProgram(), args), options);
}

/** Runs the code of a command in this process, with streams of its own. */
export async function withStreams(
  home: string,
  run: () => Promise<void>,
  options: CommandOptions = {},
): Promise<Ended> {
  const env = bareEnv(home, options.env);
  if (env.TZ !== undefined && env.TZ !== process.env.TZ)
    throw new Error("a time zone belongs to a process: set process.env.TZ, or use runProgram");
  const stdout = new Gathered();
  const stderr = new Gathered();
  const streams = {
    stdin: Readable.from([options.input ?? ""]),
    stdout,
    stderr,
    env,
    execArgv: [],
    exitCode: 0,
  };
  await withStdio(streams, run);
  return { code: streams.exitCode, signal: null, stdout: stdout.text(), stderr: stderr.text() };
}

/** A pipe that is read to its end. */
class Gathered extends Writable {
  readonly #pieces: Buffer[] = [];

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#pieces.push(piece);
    done();
  }

  text(): string {
    return Buffer.concat(this.#pieces).toString("utf8");
  }
}

/** Starts a daemon and waits until it serves. */
export async function startServing(
  t: Test,
  home: string,
  options: CommandOptions & { readonly args?: readonly string[] } = {},
): Promise<Running & { readonly port: number; readonly url: string }> {
  const running = start(t, home, ["run", ...(options.args ?? [])], options);
  const [, port] = await running.says(/serves http:\/\/localhost:(\d+)/);
  return { ...running, port: Number(port), url: `http://127.0.0.1:${port}` };
}

/** On one line, without colors. Lines are broken where the screen ends. */
export function flat(text: string): string {
  return stripVTControlCharacters(text).replaceAll(/\s+/g, " ");
}

/**
 * The arguments of a command that a message advises, to be typed. Fails if the message does not have it.
 * @param typed the command with its placeholders filled in
 */
export function advised(t: Test, message: string, command: string, typed: string = command): string[] {
  t.match(flat(message), command, "the message has the command");
  return typed.split(" ").slice(1);
}

const MAX_EXPORTS = 5;

/** Every record in the usage log, as `keybearer usage export` prints them. */
export async function exportedRecords(t: Test, home: string): Promise<readonly UsageRecord[]> {
  for (let attempt = 1; ; attempt += 1) {
    const { code, stdout, stderr } = await command(t, home, ["usage", "export", "--json"]);
    // On a stalled machine the index may take longer than the command waits for it.
    if (stderr.includes("the index is catching up") && attempt < MAX_EXPORTS) continue;
    if (code !== 0) throw new Error(`usage export ended with ${code}: ${stderr}`);
    return JSON.parse(stdout);
  }
}

export function builtProgram(): string {
  if (!existsSync(PROGRAM)) throw new Error("dist/cli/main.js is not there: run npm run build first");
  return PROGRAM;
}

export function bareEnv(home: string, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = { PATH: process.env.PATH, HOME: home, KEYBEARER_HOME: home, ...more };
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined));
}

export function startProgram(
  t: Test,
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  input: string | null = "",
): Running {
  const child = spawn(program, args, { env, stdio: ["pipe", "pipe", "pipe"] });
  const gathered = { stdout: "", stderr: "" };
  const changes = new EventEmitter().setMaxListeners(0);
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      gathered[name] += text;
      changes.emit("change");
    });
    child[name].on("error", () => {});
  }
  // A program that ends without reading what is typed is no failure of the test.
  child.stdin.on("error", () => {});
  if (input !== null) child.stdin.end(input);
  let over = false;
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => {
      over = true;
      changes.emit("change");
      resolve({ code, signal, ...gathered });
    });
  });
  t.teardown(async () => {
    if (over) return;
    child.kill("SIGKILL");
    // A child of the program may hold the pipes open, but they are not read any more.
    child.stdout.destroy();
    child.stderr.destroy();
    await ended;
  });
  const waitFor = (name: "stdout" | "stderr") => async (what: RegExp) => {
    for (;;) {
      const found = what.exec(gathered[name]);
      if (found !== null) return found;
      if (over)
        throw new Error(`it ended before ${what} came on ${name}:\n${gathered.stdout}${gathered.stderr}`);
      await once(changes, "change", { signal: AbortSignal.timeout(HANG_MS) }).catch(() => {
        throw new Error(`${what} did not come on ${name}:\n${gathered.stdout}${gathered.stderr}`);
      });
    }
  };
  return {
    pid: child.pid ?? -1,
    child,
    stdout: () => gathered.stdout,
    stderr: () => gathered.stderr,
    says: waitFor("stdout"),
    logs: waitFor("stderr"),
    ended,
  };
}
