import { spawn } from "node:child_process";
import { closeSync, constants } from "node:fs";
import { lstat, readFile, readlink, rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { advice } from "../core/advice.ts";
import { type Problem, quoteForShell } from "../core/display.ts";
import { errorCode, errorMessage, hasCode } from "../core/errors.ts";
import { ForeignFile, openOwnFile } from "../core/own-file.ts";
import type { InstalledService } from "./spec.ts";

/* What systemd.ts and launchd.ts have in common: how they run programs, find their file, and report. */

/** One change, as `--dry-run` prints it and as it is made. */
export type Step =
  | { readonly kind: "write"; readonly file: string; readonly text: string }
  | { readonly kind: "remove"; readonly file: string }
  /** must: what has failed if this command fails. Without it, a failure does not matter. */
  | { readonly kind: "run"; readonly argv: readonly string[]; readonly must?: string };

export type Plan =
  | {
      readonly ok: true;
      readonly steps: readonly Step[];
      /** The service file, compared with the one that will be written. */
      readonly before: "none" | "same" | "different";
      /** A running service is stopped, which lets its requests finish, and started again. */
      readonly restarts: boolean;
    }
  | ({ readonly ok: false } & Problem);

/** next: what to do first; null: see `keybearer service status`. */
export type Result = { readonly ok: true } | ({ readonly ok: false } & Problem);

/** problem: what keeps the manager from being used. next: how to run keybearer without it. */
export type Availability = { readonly ok: true } | ({ readonly ok: false } & Problem);

export interface ServiceState {
  readonly file: ServiceFile;
  readonly active: "running" | "starting" | "stopping" | "failed" | "stopped";
  /** The manager's own description, such as active (running). */
  readonly description: string;
  readonly pid: number | null;
  /** Milliseconds UTC; null: it does not run, or the manager does not say. */
  readonly since: number | null;
  /** systemd counts the starts after a failure, launchd all starts. */
  readonly restarts: number | null;
  /** It starts at the next login. */
  readonly enabled: boolean;
  readonly lastExit: LastExit | null;
  /** The daemon's last message to systemd, such as why it did not start. */
  readonly statusText: string | null;
  /** The running service is in a user namespace; null: the manager does not say. */
  readonly inNamespace: boolean | null;
}

export interface LastExit {
  readonly code: number | null;
  readonly signal: string | null;
}

export interface LogRequest {
  readonly follow: boolean;
  readonly lines: number;
  readonly onLine: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** What is where the service file belongs. */
export type ServiceFile =
  | { readonly kind: "none" }
  | { readonly kind: "ours"; readonly text: string; readonly service: InstalledService }
  /** keybearer did not write it, and so does not touch it. */
  | ({ readonly kind: "foreign" } & Problem);

const DEFAULT_STOP_SECONDS = 20;

/** How long the manager waits for the service to stop. */
export function findStopSeconds(file: ServiceFile): number {
  return (file.kind === "ours" ? file.service.stopSeconds : null) ?? DEFAULT_STOP_SECONDS;
}

/** A service file of ours has about 6 KB. */
const MAX_FILE_BYTES = 100_000;

/** `read` returns null for a text that keybearer did not write. */
export async function findServiceFile(
  file: string,
  read: (text: string) => InstalledService | null,
): Promise<ServiceFile> {
  try {
    const found = await lstat(file);
    if (found.isSymbolicLink()) {
      const target = await readlink(file);
      // systemd masks a unit with such a link.
      if (target === "/dev/null") return foreign(file, "it is masked (systemctl --user unmask keybearer)");
      return foreign(file, `it is a link to ${target}`);
    }
    if (!found.isFile()) return foreign(file, "it is not a file");
    if (found.size > MAX_FILE_BYTES) return foreign(file, "keybearer did not write it");
    const text = await readFile(file, "utf8");
    const service = read(text);
    return service === null ? foreign(file, "keybearer did not write it") : { kind: "ours", text, service };
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return { kind: "none" };
    return foreign(file, `it cannot be read (${errorCode(error)})`);
  }
}

function foreign(file: string, problem: string): ServiceFile {
  return {
    kind: "foreign",
    problem: `${file} is left alone: ${problem}`,
    next: `move it away (${moveAside(file)}), then ${advice.serviceInstall()}`,
  };
}

function moveAside(file: string): string {
  return `mv ${quoteForShell(file)} ${quoteForShell(`${file}.mine`)}`;
}

export function notWritten(file: string, problem: string): Result {
  return {
    ok: false,
    problem: `${file} cannot be written: ${problem}`,
    next: `fix that, then ${advice.serviceInstall()}`,
  };
}

export async function removeServiceFile(file: string): Promise<Result> {
  try {
    await rm(file, { force: true });
    return { ok: true };
  } catch (error) {
    return { ok: false, problem: `${file} cannot be removed: ${errorMessage(error)}`, next: null };
  }
}

/** The result of a query that every manager answers. `silent`: what it means that this one does not. */
export function availability(
  { missing, code, stdout, stderr }: CommandResult,
  { program, silent, next }: { program: string; silent: string; next: string },
): Availability {
  if (missing) return { ok: false, problem: `there is no ${program} here`, next };
  if (code === 0) return { ok: true };
  const message = code === null ? "it did not answer in time" : firstLine(stderr || stdout);
  return { ok: false, problem: `${silent}: ${message}`, next };
}

/** what: started, stopped. */
export function changeFailed(result: CommandResult, what: string): Result {
  const problem = firstLine(result.stderr) || "it took too long";
  return { ok: false, problem: `the service could not be ${what}: ${problem}`, next: null };
}

export function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0]?.trim() ?? "";
}

export interface CommandResult {
  /** null: it was killed, by a signal or because it took too long. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** There is no such program. */
  readonly missing: boolean;
}

interface CommandOptions {
  /** Default 30 s; 0: no limit. */
  readonly timeoutMs?: number;
  /** Gets each line of stdout, which is then not collected. */
  readonly onLine?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
}

/** Runs systemctl, launchctl and the like. Tests put their own in its place. Never rejects. */
export type RunCommand = (argv: readonly string[], options?: CommandOptions) => Promise<CommandResult>;

const TIMEOUT_MS = 30_000;
/** No output that is parsed here is longer. */
const MAX_CHARACTERS = 1_000_000;

/** Without a shell, so that nothing in a path is interpreted. */
export function commandRunner(env: NodeJS.ProcessEnv): RunCommand {
  // Messages and times are parsed, so they must not follow the user's locale and time zone.
  const fixed = { ...env, LC_ALL: "C", TZ: "UTC", SYSTEMD_COLORS: "0", SYSTEMD_PAGER: "" };
  return ([program = "", ...args], { timeoutMs = TIMEOUT_MS, onLine, signal } = {}) =>
    new Promise((resolve) => {
      const child = spawn(program, args, {
        env: fixed,
        stdio: ["ignore", "pipe", "pipe"],
        timeout: timeoutMs,
        killSignal: "SIGKILL",
        ...(signal === undefined ? {} : { signal }),
      });
      let stdout = "";
      let stderr = "";
      let missing = false;
      child.stderr.setEncoding("utf8").on("data", (text: string) => {
        if (stderr.length < MAX_CHARACTERS) stderr += text;
      });
      if (onLine !== undefined) createInterface({ input: child.stdout }).on("line", onLine);
      else
        child.stdout.setEncoding("utf8").on("data", (text: string) => {
          if (stdout.length < MAX_CHARACTERS) stdout += text;
        });
      // A close follows every error: a missing program, a program without permission, an aborted signal.
      child.once("error", (error) => {
        missing = hasCode(error, "ENOENT");
        stderr ||= errorMessage(error);
      });
      child.once("close", (code) => resolve({ code, stdout, stderr, missing }));
    });
}

/** Prints the last lines of a log file, and with `follow` what is added. */
export async function readLogFile(
  run: RunCommand,
  file: string,
  { follow, lines, onLine, signal }: LogRequest,
): Promise<Result> {
  try {
    // tail would follow a link, and wait at a named pipe.
    closeSync(openOwnFile(file, constants.O_RDONLY));
  } catch (error) {
    // tail says that a file is missing or cannot be read, and with -F it waits for one that comes later.
    if (error instanceof ForeignFile) {
      const next = `move it away: ${moveAside(file)}`;
      return { ok: false, problem: `the log cannot be read: ${error.message}`, next };
    }
  }
  // -F and not -f: it follows the name when the file is replaced.
  const argv = ["tail", "-n", String(lines), ...(follow ? ["-F"] : []), file];
  const result = await run(argv, { timeoutMs: follow ? 0 : 10_000, onLine, signal });
  if (result.code === 0 || signal?.aborted) return { ok: true };
  return { ok: false, problem: `the log ${file} cannot be read: ${firstLine(result.stderr)}`, next: null };
}
