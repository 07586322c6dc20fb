import { setTimeout as wait } from "node:timers/promises";
import { notDone } from "../answer-words.ts";
import type { Ran, RunCommand } from "../command-runner.ts";
import type { Done } from "../manager.ts";
import { FAULT, faultIn, isDisabled, jobIn } from "./launchd-answers.ts";

export type Job = ReturnType<typeof jobIn>;

export interface LaunchctlDeps {
  readonly run: RunCommand;
  readonly uid: number;
  readonly label: string;
  /** How often to look whether a job has gone or may be loaded, and how long between. Default 150 times 200 ms. */
  readonly looks?: number | undefined;
  readonly betweenMs?: number | undefined;
}

/** One job of the person's own session, with launchctl's answers told apart. */
export class Launchctl {
  readonly #deps: LaunchctlDeps;
  readonly domain: string;
  readonly job: string;

  constructor(deps: LaunchctlDeps) {
    this.#deps = deps;
    this.domain = `gui/${deps.uid}`;
    this.job = `${this.domain}/${deps.label}`;
  }

  say(...words: readonly string[]): Promise<Ran> {
    return this.#deps.run(["launchctl", ...words], { timeoutMs: 30_000 });
  }

  /** null: launchd does not know it. */
  async loaded(): Promise<Job | null> {
    const ran = await this.say("print", this.job);
    return ran.code === 0 ? jobIn(ran.stdout) : null;
  }

  async disabled(): Promise<boolean> {
    return isDisabled((await this.say("print-disabled", this.domain)).stdout, this.#deps.label);
  }

  /** The agent gets a SIGTERM and its ExitTimeOut, in which it drains. */
  async unload(): Promise<Done> {
    const ran = await this.say("bootout", this.job);
    const gone: readonly (number | null)[] = [0, FAULT.noSuchProcess, FAULT.notFound, FAULT.nowInProgress];
    if (!gone.includes(faultIn(ran))) return { ok: false, why: notDone(ran, "stopped") };
    if (await this.#until(async () => (await this.loaded()) === null)) return { ok: true };
    return { ok: false, why: "the service did not stop in time" };
  }

  /** While the one before is still on its way out, launchd says so, and can be asked again. */
  async load(file: string): Promise<Done> {
    let last: Ran = { code: null, stdout: "", stderr: "", missing: false };
    const settled = await this.#until(async () => {
      last = await this.say("bootstrap", this.domain, file);
      const fault = faultIn(last);
      return fault !== FAULT.alreadyInProgress && fault !== FAULT.nowInProgress;
    });
    if (settled && last.code === 0) return { ok: true };
    // 5 stands for many things, one of them that it is loaded already: then there is nothing left to do.
    if (faultIn(last) === FAULT.inputOutput && (await this.loaded()) !== null) return { ok: true };
    return { ok: false, why: notDone(last, "loaded") };
  }

  /** Without -k: one that runs is left as it is. */
  async start(): Promise<Done> {
    const ran = await this.say("kickstart", this.job);
    const fine = ran.code === 0 || faultIn(ran) === FAULT.alreadyInProgress;
    return fine ? { ok: true } : { ok: false, why: notDone(ran, "started") };
  }

  /**
   * By a signal, and not by `kickstart -k`, which does not say how it kills: the agent ends by itself once it has
   * drained. Ended well, it is not started again by KeepAlive, so that whoever wants it back says so.
   */
  async drain(pid: number): Promise<Done> {
    const ran = await this.say("kill", "SIGTERM", this.job);
    const gone: readonly (number | null)[] = [0, FAULT.noSuchProcess, FAULT.notFound];
    if (!gone.includes(faultIn(ran))) return { ok: false, why: notDone(ran, "stopped") };
    if (await this.#until(async () => (await this.loaded())?.pid !== pid)) return { ok: true };
    return { ok: false, why: "the service did not stop in time" };
  }

  /** A drain takes longer than launchctl waits; looked for until it is over. */
  async #until(holds: () => Promise<boolean>): Promise<boolean> {
    for (let look = 0; look < (this.#deps.looks ?? 150); look += 1) {
      if (await holds()) return true;
      await wait(this.#deps.betweenMs ?? 200);
    }
    return false;
  }
}
