import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Writable } from "node:stream";
import { errorCode } from "../core/errors.ts";
import { DELIVERED, type Message, type Outcome, type Unsent } from "./message.ts";

interface RunOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Runs the program without a shell. It gets the event as one line of JSON on its stdin. Its exit code says how it went. */
export async function runCommand(
  argv: readonly [string, ...string[]],
  message: Message,
  { env, timeoutMs, signal }: RunOptions,
): Promise<Outcome> {
  const [program, ...rest] = argv;
  let child: ChildProcessByStdio<Writable, null, null>;
  try {
    // Its own process group, so that whatever it starts can be ended with it.
    child = spawn(program, rest, { cwd: "/", env, detached: true, stdio: ["pipe", "ignore", "ignore"] });
    await once(child, "spawn");
  } catch (error) {
    const next = "check notify.command in config.yaml";
    return { result: "retry", problem: `the program could not be started (${errorCode(error)})`, next };
  }
  // A program that reads nothing closes the pipe. Its exit code decides.
  child.stdin.on("error", () => {});
  child.stdin.end(`${JSON.stringify(message)}\n`);
  const ended = AbortSignal.any([AbortSignal.timeout(timeoutMs), signal]);
  const kill = () => killGroup(child.pid);
  ended.addEventListener("abort", kill, { once: true });
  if (ended.aborted) kill();
  const [code] = (await once(child, "exit")) as [number | null];
  ended.removeEventListener("abort", kill);
  if (code === 0) return DELIVERED;
  if (signal.aborted) return failure("keybearer stopped");
  if (ended.aborted) return failure(`it did not end within ${timeoutMs / 1000} s, and was ended`);
  return failure(code === null ? `it was ended by ${child.signalCode}` : `it ended with exit code ${code}`);
}

function failure(problem: string): Unsent {
  return { result: "retry", problem, next: null };
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The whole group has ended already.
  }
}
