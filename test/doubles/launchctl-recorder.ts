import type { Ran, RunCommand } from "../../src/service/command-runner.ts";

const ONLY_LOOKS = ["print", "print-disabled", "getenv"];

const NOT_FOUND = {
  code: 113,
  stderr: 'Could not find service "com.keybearer" in domain for user gui: 501\n',
};
/** With the advice that newer systems add. */
const LOADED_ALREADY = {
  code: 5,
  stderr: "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.\n",
};

/**
 * Runs in the place of launchctl. It answers with launchctl's own codes and words, as far as they are known from its
 * manual and from reports, and keeps what was asked. It is no launchd.
 */
export class LaunchctlRecorder {
  /** What launchd knows of the job. */
  readonly job = { loaded: false, pid: null as number | null, disabled: false, runs: 0 };
  /** Answers to give first to a command, each once. */
  readonly next = new Map<string, Partial<Ran>[]>();
  readonly variables = new Map<string, string>();
  /** After how many looks a job is gone after a bootout, or has ended after a signal. */
  slow = 0;
  readonly #domain: string;
  readonly #asked: string[] = [];
  #leaving: { looks: number; readonly then: () => void } | null = null;

  constructor(uid: number) {
    this.#domain = `gui/${uid}`;
  }

  readonly run: RunCommand = async ([program, verb = "", ...rest]) => {
    if (program !== "launchctl") return ran({ missing: true, code: null });
    this.#asked.push([verb, ...rest].join(" "));
    return ran(this.next.get(verb)?.shift() ?? this.#answer(verb, rest[0] ?? ""));
  };

  /** Everything that was asked, in order. */
  asked(): string[] {
    return this.#asked;
  }

  /** The same without what only looks. */
  changes(): string[] {
    return this.#asked.filter((each) => !ONLY_LOOKS.includes(each.split(" ")[0] ?? ""));
  }

  #answer(verb: string, name: string): Partial<Ran> {
    const { job } = this;
    switch (verb) {
      case "print":
        if (name === this.#domain) return { stdout: `${name} = {\n\ttype = login\n}\n` };
        this.#look();
        return job.loaded ? { stdout: this.#printed() } : NOT_FOUND;
      case "print-disabled":
        return { stdout: `\t\t"com.keybearer" => ${job.disabled ? "disabled" : "enabled"}\n` };
      case "getenv":
        return { stdout: this.variables.has(name) ? `${this.variables.get(name)}\n` : "" };
      case "enable":
        job.disabled = false;
        return {};
      case "bootstrap":
        if (job.disabled) return { code: 119, stderr: "Bootstrap failed: 119: Service is disabled\n" };
        if (this.#leaving !== null)
          return { code: 37, stderr: "Bootstrap failed: 37: Operation already in progress\n" };
        if (job.loaded) return LOADED_ALREADY;
        job.loaded = true;
        this.#begin();
        return {};
      case "bootout":
        if (!job.loaded) return { code: 3, stderr: "Boot-out failed: 3: No such process\n" };
        this.#leave(() => Object.assign(job, { loaded: false, pid: null }));
        if (this.#leaving === null) return {};
        return { code: 36, stderr: "Boot-out failed: 36: Operation now in progress\n" };
      case "kill":
        if (!job.loaded) return NOT_FOUND;
        if (job.pid === null) return { code: 3, stderr: "No process to signal.\n" };
        this.#leave(() => Object.assign(job, { pid: null }));
        return {};
      case "kickstart":
        if (!job.loaded) return NOT_FOUND;
        if (job.pid === null) this.#begin();
        return {};
      default:
        return { code: 64, stderr: `Unrecognized subcommand: ${verb}\n` };
    }
  }

  #begin(): void {
    this.job.pid = 4000 + this.job.runs;
    this.job.runs += 1;
  }

  #leave(then: () => void): void {
    this.#leaving = { looks: this.slow, then };
    if (this.slow === 0) this.#look();
  }

  #look(): void {
    if (this.#leaving === null) return;
    if (this.#leaving.looks > 0) {
      this.#leaving.looks -= 1;
      return;
    }
    this.#leaving.then();
    this.#leaving = null;
  }

  #printed(): string {
    const { pid, runs } = this.job;
    const lines = [
      `state = ${pid === null ? "not running" : "running"}`,
      `runs = ${runs}`,
      ...(pid === null ? [] : [`pid = ${pid}`]),
      `last exit code = ${runs > 1 || pid === null ? "0" : "(never exited)"}`,
    ];
    return `${this.#domain}/com.keybearer = {\n\t${lines.join("\n\t")}\n}\n`;
  }
}

function ran(answer: Partial<Ran>): Ran {
  return { code: 0, stdout: "", stderr: "", missing: false, ...answer };
}
