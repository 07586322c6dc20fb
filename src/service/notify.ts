import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Problem } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";

const PROGRAMS = [
  "/usr/bin/systemd-notify",
  "/bin/systemd-notify",
  "/run/current-system/sw/bin/systemd-notify",
];
const SEND_MS = 20_000;
/** After a failed health check or a message that did not arrive. */
const RETRY_MS = 1500;
/** `systemctl status` shows one line. */
const MAX_STATUS = 200;

const NOT_STARTED = "did not start: ";
const NEXT = " → ";

/** Why the daemon did not start, as the status that `systemctl status` shows. */
export function formatStartProblem([first]: readonly Problem[]): string {
  if (first === undefined) return NOT_STARTED;
  const [problem = ""] = first.problem.split("\n", 1);
  return `${NOT_STARTED}${problem}${first.next === null ? "" : `${NEXT}${first.next}`}`;
}

/** What formatStartProblem() wrote; null: it is another status. */
export function parseStartProblem(status: string): Problem | null {
  if (!status.startsWith(NOT_STARTED)) return null;
  const [problem = "", next = null] = status.slice(NOT_STARTED.length).split(NEXT, 2);
  return { problem, next };
}

interface NotifyOptions {
  /** Where systemd-notify may be. The first that exists is used. */
  readonly programs?: readonly string[];
  readonly onProblem?: (message: string) => void;
}

/**
 * Reports the daemon's state to the service manager, as sd_notify(3) does. Does nothing without NOTIFY_SOCKET.
 *
 * Node has no datagrams on unix sockets, and the packages that add them are native code. systemd-notify is part of systemd.
 * It also waits until the manager has read the message: systemd drops a message whose sender has exited.
 */
export class Notify {
  readonly #programs: readonly string[];
  readonly #onProblem: (message: string) => void;
  /** null: no manager asked for messages. */
  readonly #socket: string | null;
  /** null: the manager does not watch this process. */
  readonly #intervalMs: number | null;
  readonly #stopped = new AbortController();
  #reloads = 0;
  /** Messages are sent one after the other, so that READY never overtakes RELOADING. */
  #lastSend: Promise<void> = Promise.resolve();
  #delivered = true;
  #lastProblem = "";

  /** Removes the variables from `env`, so that no child can speak for the daemon. */
  constructor(env: NodeJS.ProcessEnv, pid: number, options: NotifyOptions = {}) {
    const { NOTIFY_SOCKET = "", WATCHDOG_USEC, WATCHDOG_PID } = env;
    delete env.NOTIFY_SOCKET;
    delete env.WATCHDOG_USEC;
    delete env.WATCHDOG_PID;
    this.#programs = options.programs ?? PROGRAMS;
    this.#onProblem = options.onProblem ?? (() => {});
    // A path, or with @ a name in the abstract namespace. systemd has other kinds of addresses for virtual machines.
    this.#socket = /^[/@]./.test(NOTIFY_SOCKET) ? NOTIFY_SOCKET : null;
    this.#intervalMs = watchdogInterval(WATCHDOG_USEC, WATCHDOG_PID, pid);
  }

  /** The daemon serves, or a reload has ended. */
  async ready(status: string): Promise<void> {
    this.#reloads = Math.max(this.#reloads - 1, 0);
    await this.#sendUnlessStopped("READY=1", statusLine(status));
  }

  async reloading(): Promise<void> {
    this.#reloads += 1;
    await this.#sendUnlessStopped("RELOADING=1", statusLine("reading config.yaml and every key again"));
  }

  async stopping(status: string): Promise<void> {
    this.#stopped.abort();
    await this.#send("STOPPING=1", statusLine(status));
  }

  /** The daemon cannot start: `systemctl status` shows this beside the exit code. */
  async failed(status: string): Promise<void> {
    await this.#send(statusLine(status));
  }

  /**
   * Reports to the watchdog until stopping(). `check` returns a status, or null if the daemon is not healthy; then it runs again
   * soon, because one bad moment is no reason for a restart. READY is repeated each time, in case the first one was lost.
   */
  async watch(check: () => Promise<string | null>): Promise<void> {
    if (this.#socket === null || this.#intervalMs === null) return;
    const { signal } = this.#stopped;
    await this.#lastSend;
    let ok = this.#delivered;
    while (!signal.aborted) {
      const delay = ok ? this.#intervalMs : Math.min(RETRY_MS, this.#intervalMs);
      // Unreferenced: the timer must not keep a stopped daemon alive. An abort ends the loop.
      await sleep(delay, undefined, { ref: false, signal }).catch(() => {});
      if (!signal.aborted) ok = await this.#report(check);
    }
  }

  async #report(check: () => Promise<string | null>): Promise<boolean> {
    const status = await check().catch(() => null);
    if (status === null) {
      if (!this.#stopped.signal.aborted)
        this.#complain("the daemon does not answer at its own address, so the watchdog gets no message");
      return false;
    }
    // During a reload, READY would end it, and the status is the reload's.
    if (this.#reloads > 0) await this.#sendUnlessStopped("WATCHDOG=1");
    else await this.#sendUnlessStopped("READY=1", "WATCHDOG=1", statusLine(status));
    return this.#delivered;
  }

  /** A reload that ends after STOPPING must not report READY. */
  #sendUnlessStopped(...lines: readonly string[]): Promise<void> {
    return this.#stopped.signal.aborted ? this.#lastSend : this.#send(...lines);
  }

  #send(...lines: readonly string[]): Promise<void> {
    const socket = this.#socket;
    if (socket !== null) this.#lastSend = this.#lastSend.then(() => this.#sendNow(socket, lines));
    return this.#lastSend;
  }

  async #sendNow(socket: string, lines: readonly string[]): Promise<void> {
    try {
      await this.#runFirst(socket, lines);
      this.#delivered = true;
      this.#lastProblem = "";
    } catch (error) {
      this.#delivered = false;
      this.#complain(`the service manager cannot be notified: ${errorMessage(error)}`);
    }
  }

  async #runFirst(socket: string, lines: readonly string[]): Promise<void> {
    for (const program of this.#programs) if (await runNotify(program, socket, lines)) return;
    throw new Error(`there is no program ${this.#programs[0]}`);
  }

  /** Once, and not at every retry. */
  #complain(message: string): void {
    if (message !== this.#lastProblem) this.#onProblem(message);
    this.#lastProblem = message;
  }
}

/** Why a unit of Type=notify would never count as started here; null: it would. */
export function findNotifyProblem(programs: readonly string[] = PROGRAMS): Problem | null {
  if (programs.some((program) => existsSync(program))) return null;
  const problem = `there is no ${programs[0]}, with which keybearer reports to systemd that it is ready`;
  return { problem, next: "install the whole systemd package" };
}

/** Half of the manager's timeout, as sd_watchdog_enabled(3) recommends. */
function watchdogInterval(
  usec: string | undefined,
  watchedPid: string | undefined,
  pid: number,
): number | null {
  if (usec === undefined || !/^[1-9]\d{0,15}$/.test(usec)) return null;
  if (watchedPid !== undefined && watchedPid !== String(pid)) return null;
  return Math.min(Math.max(Math.floor(Number(usec) / 2000), 1), 2 ** 31 - 1);
}

function statusLine(status: string): string {
  // A line break would start another field of the message.
  const line = status.replace(/\s+/g, " ").trim();
  return `STATUS=${line.length > MAX_STATUS ? `${line.slice(0, MAX_STATUS)}…` : line}`;
}

/** False if there is no such program. Throws if it fails. */
function runNotify(program: string, socket: string, lines: readonly string[]): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, lines, {
      cwd: "/",
      env: { NOTIFY_SOCKET: socket },
      stdio: "ignore",
      timeout: SEND_MS,
      killSignal: "SIGKILL",
    });
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") resolve(false);
      else reject(new Error(`${program} (${error.code ?? "unknown"})`));
    });
    child.once("exit", (code, signal) => {
      if (code === 0) resolve(true);
      else reject(new Error(`${program} ended with ${code ?? signal}`));
    });
  });
}
