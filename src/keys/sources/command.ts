import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { isAbsolute } from "node:path";
import type { Readable } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { errorCode } from "../../core/errors.ts";
import { redactCredentials, Secret } from "../../core/secret.ts";
import { plain } from "../words.ts";
import { MOST_BYTES, type SourceText, withoutFinalNewline } from "./file.ts";

type Argv = readonly [string, ...string[]];

/** What is really started, so that a command can be tried as a service manager would start it. */
export type CommandAs = (
  argv: Argv,
  withhold: readonly string[],
) => { readonly argv: Argv; readonly env: NodeJS.ProcessEnv };

export interface CommandDeps {
  readonly env: NodeJS.ProcessEnv;
  /** Names of variables the command must not see: they hold keys of other tools. */
  readonly withhold: readonly string[];
  readonly signal: AbortSignal | undefined;
  /** Milliseconds until the command and all it started are killed. */
  readonly limit: number;
  /** Default as it is. */
  readonly as?: CommandAs | undefined;
}

type Child = ChildProcessByStdio<null, Readable, Readable>;

/** How long output may still arrive after the program is gone, when something it left behind holds the pipe. */
const AFTERMATH = 250;
const MOST_STDERR = 8 * 1024;
const MOST_SHOWN = 200;

/** Runs a program without a shell and takes what it prints as the key. */
export async function runKeyCommand(argv: Argv, deps: CommandDeps): Promise<SourceText> {
  const [program] = argv;
  if (!isAbsolute(program)) {
    // Looked up in PATH, another program of that name could take its place.
    return refuse(`the command ${plain(program)} is not a full path: command -v ${plain(program)} prints it`);
  }
  if (deps.signal?.aborted) return refuse(STOPPED);
  const env = Object.fromEntries(Object.entries(deps.env).filter(([name]) => !deps.withhold.includes(name)));
  const started = deps.as?.(argv, deps.withhold) ?? { argv, env };
  try {
    const child = spawn(started.argv[0], started.argv.slice(1), {
      // At the root, not where keybearer happened to be started: programs read settings from their folder.
      cwd: "/",
      env: started.env,
      // Its own process group, so that whatever it starts can be ended with it.
      detached: true,
      shell: false,
      stdio: ["ignore", "pipe", "pipe"],
    });
    // Throws what kept it from starting. Before anything else: out of file handles, there are not even pipes.
    await once(child, "spawn");
    return await outcomeOf(child, program, deps);
  } catch (error) {
    // Also thrown for what cannot be an argument, such as a zero byte. Node's message quotes it: only the code is told.
    return refuse(cannotStart(program, error));
  }
}

export const STOPPED = "reading the key was stopped, because the configuration changed";

function outcomeOf(child: Child, program: string, deps: CommandDeps): Promise<SourceText> {
  return new Promise((done) => {
    const stdout = collect(child.stdout, MOST_BYTES, () => {
      end(refuse(`${plain(program)} printed more than 64 KB: that is no key`));
    });
    const stderr = collect(child.stderr, MOST_STDERR, () => undefined);
    const onAbort = () => end(refuse(STOPPED));
    const limit = setTimeout(() => {
      end(refuse(`${plain(program)} did not finish within ${deps.limit / 1000} s and was ended`));
    }, deps.limit);
    let aftermath: NodeJS.Timeout | undefined;
    let ended = false;

    function end(outcome: SourceText): void {
      if (ended) return;
      ended = true;
      clearTimeout(limit);
      clearTimeout(aftermath);
      deps.signal?.removeEventListener("abort", onAbort);
      if (!outcome.ok) killGroup(child);
      // Not waiting for the pipes to close: something that left the group may hold them for days.
      child.stdout.destroy();
      child.stderr.destroy();
      done(outcome);
    }
    const finish = () => end(judge(child, program, stdout(), stderr()));

    deps.signal?.addEventListener("abort", onAbort);
    // A signal that went off while the program was being started does not go off again.
    if (deps.signal?.aborted) onAbort();
    child.once("error", (error) => end(refuse(cannotStart(program, error))));
    child.once("close", finish);
    child.once("exit", () => {
      // setImmediate comes after a look at the pipes, so a busy moment cannot cut off what is already in them.
      if (!ended) aftermath = setTimeout(() => setImmediate(finish), AFTERMATH);
    });
  });
}

/** Keeps the first bytes of a stream and lets the rest run off, so that the writer does not stall. */
function collect(stream: Readable, most: number, onTooMuch: () => void): () => string {
  const chunks: Buffer[] = [];
  let room = most;
  stream.on("data", (chunk: Buffer) => {
    if (chunk.length > room) onTooMuch();
    if (room > 0) chunks.push(chunk.subarray(0, room));
    room = Math.max(0, room - chunk.length);
  });
  stream.on("error", () => undefined);
  return () => Buffer.concat(chunks).toString("utf8");
}

function judge(child: Child, program: string, stdout: string, stderr: string): SourceText {
  if (child.exitCode === 0) return { ok: true, text: withoutFinalNewline(stdout), warning: null };
  const how =
    child.exitCode === null ? `was ended by ${child.signalCode}` : `failed with exit code ${child.exitCode}`;
  const said = firstLine(stderr, stdout);
  return refuse(said === "" ? `${plain(program)} ${how}` : `${plain(program)} ${how}: ${said}`);
}

/** What the command complained of. It may have complained with a secret in its mouth. */
function firstLine(stderr: string, stdout: string): string {
  const line = stripVTControlCharacters(stderr.trimStart()).split(/[\r\n]/, 1)[0] ?? "";
  const printed = stdout.split(/\s+/).filter((word) => word.length >= 8);
  const known = printed.reduce((text, word) => new Secret(word).redactFrom(text), line);
  // Blotted before it is cut: half a secret no longer has the shape of one.
  const shown = plain(redactCredentials(known)).trim();
  return shown.length > MOST_SHOWN ? `${shown.slice(0, MOST_SHOWN)}…` : shown;
}

function killGroup(child: Child): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // The whole group is gone already, which is what was wanted.
  }
}

function cannotStart(program: string, error: unknown): string {
  const code = errorCode(error);
  if (code === "ENOENT") return `there is no program ${plain(program)}`;
  if (code === "EACCES") return `${plain(program)} may not be run by the user that runs keybearer`;
  return `${plain(program)} could not be started (${code})`;
}

function refuse(reason: string): SourceText {
  return { ok: false, reason };
}
