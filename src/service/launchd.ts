import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { advice } from "../core/advice.ts";
import { errorMessage } from "../core/errors.ts";
import { type StagedFile, stageFile } from "../core/private-file.ts";
import { packageFolder } from "../core/version.ts";
import { readPlist, renderPlist } from "./plist.ts";
import {
  type Availability,
  availability,
  type CommandResult,
  changeFailed,
  findServiceFile,
  findStopSeconds,
  type LastExit,
  type LogRequest,
  notWritten,
  type Plan,
  type Result,
  type RunCommand,
  readLogFile,
  removeServiceFile,
  type ServiceFile,
  type ServiceState,
  type Step,
} from "./service.ts";
import type { ServiceSpec } from "./spec.ts";

const LABEL = "com.keybearer";

/** errno.h and launchd's own numbers. */
const NO_SUCH_PROCESS = 3;
const INPUT_OUTPUT = 5;
const NOW_IN_PROGRESS = 36;
const ALREADY_IN_PROGRESS = 37;
const NOT_FOUND = 113;

const BY_HAND = `without it, log in at the Mac itself and try again there, or run keybearer in the background: ${advice.start()}`;

interface LaunchdOptions {
  readonly run: RunCommand;
  readonly home: string;
  readonly uid: number;
  /** Between two checks whether a job has ended. Default 200 ms. */
  readonly pollMs?: number;
}

/** With the default of pollMs, 10 s more than launchd gives the daemon. launchctl itself does not wait that long. */
const POLLS_PER_SECOND = 5;
const EXTRA_SECONDS = 10;

/** The user's own session of launchd. */
export class Launchd {
  readonly kind = "launchd";
  readonly file: string;
  readonly #run: RunCommand;
  readonly #domain: string;
  readonly #job: string;
  readonly #pollMs: number;

  constructor({ run, home, uid, pollMs = 200 }: LaunchdOptions) {
    this.file = join(home, "Library", "LaunchAgents", `${LABEL}.plist`);
    this.#run = run;
    this.#domain = `gui/${uid}`;
    this.#job = `${this.#domain}/${LABEL}`;
    this.#pollMs = pollMs;
  }

  async available(): Promise<Availability> {
    return availability(await this.#launchctl("print", this.#domain), {
      program: "launchctl",
      silent: "launchd has no session of yours that answers",
      next: BY_HAND,
    });
  }

  /** Asks only the file system. */
  found(): Promise<ServiceFile> {
    return findServiceFile(this.file, readPlist);
  }

  async state(): Promise<ServiceState> {
    const file = await this.found();
    const job = await this.#loaded();
    const disabled = isDisabled((await this.#launchctl("print-disabled", this.#domain)).stdout);
    return { file, enabled: file.kind === "ours" && !disabled, ...(job ?? NOT_LOADED) };
  }

  /**
   * launchd knows a job as it was loaded, so a new text needs a bootout and a bootstrap. The bootout comes before the write:
   * interrupted anywhere, no old job runs beside a new file that the next installation would consider up to date.
   */
  async planInstall(spec: ServiceSpec): Promise<Plan> {
    const file = await this.found();
    if (file.kind === "foreign") return { ok: false, problem: file.problem, next: file.next };
    const job = await this.#loaded();
    const text = renderPlist(plistTemplate(), spec);
    const same = file.kind === "ours" && file.text === text;
    const steps: Step[] = [];
    if (!same && job !== null) steps.push(launchctl("bootout", this.#job));
    if (!same) steps.push({ kind: "write", file: this.file, text });
    // launchd remembers a job that was disabled, and would not load it.
    steps.push(launchctl("enable", this.#job));
    if (!same || job === null) steps.push(launchctl("bootstrap", this.#domain, this.file));
    steps.push(launchctl("kickstart", this.#job));
    const before = file.kind === "none" ? "none" : same ? "same" : "different";
    return { ok: true, steps, before, restarts: !same && job !== null && job.pid !== null };
  }

  async planRemoval(): Promise<Plan> {
    const file = await this.found();
    if (file.kind === "foreign") return { ok: false, problem: file.problem, next: file.next };
    const steps: Step[] = (await this.#loaded()) === null ? [] : [launchctl("bootout", this.#job)];
    if (file.kind === "ours") steps.push({ kind: "remove", file: this.file });
    return { ok: true, steps, before: file.kind === "none" ? "none" : "same", restarts: false };
  }

  async apply(steps: readonly Step[]): Promise<Result> {
    const write = steps.find((step) => step.kind === "write");
    let staged: StagedFile | null = null;
    try {
      // What a full disk makes fail comes before the running job is stopped.
      if (write !== undefined) staged = await stageFile(write.file, write.text);
    } catch (error) {
      return notWritten(this.file, errorMessage(error));
    }
    let unwritten: Result | null = null;
    for (const step of steps) {
      if (step.kind === "write") {
        try {
          staged?.commit();
        } catch (error) {
          // The next steps load the old file again.
          unwritten = notWritten(this.file, errorMessage(error));
        }
      } else if (step.kind === "remove") {
        const removed = await removeServiceFile(step.file);
        if (!removed.ok) return removed;
      } else {
        const result = await this.#runStep(step.argv);
        if (!result.ok) {
          await staged?.discard();
          return result;
        }
      }
    }
    if (unwritten !== null) await staged?.discard();
    return unwritten ?? { ok: true };
  }

  async #runStep([, verb]: readonly string[]): Promise<Result> {
    switch (verb) {
      case "bootout":
        return this.#unload();
      case "bootstrap":
        return this.#load();
      case "kickstart":
        return this.#start();
      default:
        await this.#launchctl("enable", this.#job);
        return { ok: true };
    }
  }

  /** KeepAlive does not restart a daemon that ended well. */
  async stop(): Promise<Result> {
    const job = await this.#loaded();
    return job === null || job.pid === null ? { ok: true } : this.#drain(job.pid);
  }

  /**
   * By a signal, because `kickstart -k` does not say how it kills: the daemon ends by itself once its requests have finished.
   * KeepAlive does not restart a daemon that ended well, so it is started here.
   */
  async restart(): Promise<Result> {
    const job = await this.#loaded();
    let ready: Result = { ok: true };
    if (job === null) ready = await this.#load();
    else if (job.pid !== null) ready = await this.#drain(job.pid);
    return ready.ok ? this.#start() : ready;
  }

  async logs(request: LogRequest): Promise<Result> {
    const file = await this.found();
    const logFile = file.kind === "ours" ? file.service.logFile : null;
    if (logFile === null) return { ok: false, problem: "the service is not installed", next: null };
    return readLogFile(this.#run, logFile, request);
  }

  /** An agent does not see the shell's variables, only those set with `launchctl setenv`. Never print them. */
  async environment(names: readonly string[]): Promise<Readonly<Record<string, string>>> {
    const variables: Record<string, string> = {};
    for (const name of names) {
      const result = await this.#launchctl("getenv", name);
      const value = result.stdout.replace(/\n$/, "");
      if (result.code === 0 && value !== "") variables[name] = value;
    }
    return variables;
  }

  #launchctl(...args: readonly string[]): Promise<CommandResult> {
    return this.#run(["launchctl", ...args]);
  }

  /** null: launchd does not know the job. */
  async #loaded(): Promise<Job | null> {
    const result = await this.#launchctl("print", this.#job);
    return result.code === 0 ? readJob(result.stdout) : null;
  }

  /** launchd sends SIGTERM and waits for ExitTimeOut, in which the daemon drains. */
  async #unload(): Promise<Result> {
    const result = await this.#launchctl("bootout", this.#job);
    if (!isOneOf(result, 0, NO_SUCH_PROCESS, NOT_FOUND, NOW_IN_PROGRESS))
      return changeFailed(result, "stopped");
    return this.#stopped(async () => (await this.#loaded()) === null);
  }

  async #drain(pid: number): Promise<Result> {
    const result = await this.#launchctl("kill", "SIGTERM", this.#job);
    if (!isOneOf(result, 0, NO_SUCH_PROCESS, NOT_FOUND)) return changeFailed(result, "stopped");
    return this.#stopped(async () => (await this.#loaded())?.pid !== pid);
  }

  async #stopped(isStopped: () => Promise<boolean>): Promise<Result> {
    if (await this.#poll(isStopped)) return { ok: true };
    return { ok: false, problem: "the service did not stop in time", next: null };
  }

  async #load(): Promise<Result> {
    let result = await this.#bootstrap();
    // launchd answers so while the previous job is still ending.
    await this.#poll(async () => {
      if (!isOneOf(result, ALREADY_IN_PROGRESS, NOW_IN_PROGRESS)) return true;
      result = await this.#bootstrap();
      return false;
    });
    if (result.code === 0) return { ok: true };
    // 5 has many meanings. One is that the job is loaded already.
    if (isOneOf(result, INPUT_OUTPUT) && (await this.#loaded()) !== null) return { ok: true };
    return changeFailed(result, "loaded");
  }

  #bootstrap(): Promise<CommandResult> {
    return this.#launchctl("bootstrap", this.#domain, this.file);
  }

  /** Without -k, so that a running job stays as it is. */
  async #start(): Promise<Result> {
    const result = await this.#launchctl("kickstart", this.#job);
    return isOneOf(result, 0, ALREADY_IN_PROGRESS) ? { ok: true } : changeFailed(result, "started");
  }

  async #poll(holds: () => Promise<boolean>): Promise<boolean> {
    const polls = (findStopSeconds(await this.found()) + EXTRA_SECONDS) * POLLS_PER_SECOND;
    for (let count = 0; count < polls; count += 1) {
      if (await holds()) return true;
      await sleep(this.#pollMs);
    }
    return false;
  }
}

function launchctl(...args: readonly string[]): Step {
  return { kind: "run", argv: ["launchctl", ...args] };
}

/** Of the agent. */
export function plistTemplate(): string {
  return readFileSync(new URL("service/com.keybearer.plist", packageFolder()), "utf8");
}

/** launchctl exits with the number of the error, or names it: `Bootstrap failed: 5: Input/output error`. */
function isOneOf({ code, stderr }: CommandResult, ...numbers: readonly number[]): boolean {
  const named = /(?:failed|service|error): (\d+):/i.exec(stderr)?.[1];
  const number = named === undefined ? code : Number(named);
  return number !== null && numbers.includes(number);
}

type Job = Omit<ServiceState, "file" | "enabled">;

const NOT_LOADED: Job = {
  active: "stopped",
  description: "not loaded",
  pid: null,
  since: null,
  restarts: null,
  lastExit: null,
  statusText: null,
  inNamespace: null,
};

/** Reads the output of `launchctl print`. Its manual warns that the format may change: what is not found is unknown. */
export function readJob(text: string): Job {
  const fields = new Map<string, string>();
  for (const line of text.split("\n")) {
    // One tab: fields of the job itself. Deeper lines belong to its endpoints.
    const found = /^(?:\t| {4})(\w[\w ]*?) = (.*)$/.exec(line);
    if (found?.[1] !== undefined && !fields.has(found[1])) fields.set(found[1], found[2] ?? "");
  }
  const description = fields.get("state") ?? "unknown";
  const pid = Number(fields.get("pid") ?? 0);
  const runs = fields.get("runs") ?? "";
  const lastExit = readLastExit(fields);
  return {
    ...NOT_LOADED,
    active: readActive(description, lastExit),
    description,
    pid: pid > 0 ? pid : null,
    restarts: /^\d+$/.test(runs) ? Number(runs) : null,
    lastExit,
  };
}

function readActive(state: string, lastExit: LastExit | null): ServiceState["active"] {
  if (state === "running") return "running";
  if (lastExit !== null && (lastExit.signal !== null || lastExit.code !== 0)) return "failed";
  return ["spawn scheduled", "spawning", "xpcproxy"].includes(state) ? "starting" : "stopped";
}

/** `78`, on newer systems `78: EX_CONFIG`, or `(never exited)`. A signal has a line of its own. */
function readLastExit(fields: ReadonlyMap<string, string>): LastExit | null {
  const signal = fields.get("last terminating signal");
  if (signal !== undefined) return { code: null, signal };
  const code = /^(\d+)/.exec(fields.get("last exit code") ?? "")?.[1];
  return code === undefined ? null : { code: Number(code), signal: null };
}

/** `"com.keybearer" => disabled`, on older systems `=> true`. A job that is not listed is not disabled. */
export function isDisabled(text: string): boolean {
  return text.split("\n").some((line) => {
    const found = /^\s*"([^"]+)" => (\w+)/.exec(line);
    return found?.[1] === LABEL && (found[2] === "disabled" || found[2] === "true");
  });
}
