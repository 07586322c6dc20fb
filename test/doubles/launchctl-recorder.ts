import type { CommandResult, RunCommand } from "../../src/service/service.ts";

const QUERIES = ["print", "print-disabled", "getenv"];

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
 * Stands in for launchctl. It answers with launchctl's codes and messages, as far as its manual and bug reports show them, and
 * records the calls. It is no launchd.
 */
export class LaunchctlRecorder {
  /** What launchd knows of the job. */
  readonly job = { loaded: false, pid: null as number | null, disabled: false, runs: 0 };
  /** The next answers to a command, each given once. */
  readonly next = new Map<string, Partial<CommandResult>[]>();
  readonly variables = new Map<string, string>();
  /** How many `print` calls a job survives after a bootout or a signal. */
  slow = 0;
  readonly #domain: string;
  readonly #calls: string[] = [];
  #leaving: { polls: number; readonly then: () => void } | null = null;

  constructor(uid: number) {
    this.#domain = `gui/${uid}`;
  }

  readonly run: RunCommand = async ([program, verb = "", ...rest]) => {
    if (program !== "launchctl") return result({ missing: true, code: null });
    this.#calls.push([verb, ...rest].join(" "));
    return result(this.next.get(verb)?.shift() ?? this.#answer(verb, rest[0] ?? ""));
  };

  /** All calls, in order. */
  calls(): string[] {
    return this.#calls;
  }

  /** The calls that change something. */
  changes(): string[] {
    return this.#calls.filter((each) => !QUERIES.includes(each.split(" ")[0] ?? ""));
  }

  #answer(verb: string, name: string): Partial<CommandResult> {
    const { job } = this;
    switch (verb) {
      case "print":
        if (name === this.#domain) return { stdout: `${name} = {\n\ttype = login\n}\n` };
        this.#advance();
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
    this.#leaving = { polls: this.slow, then };
    if (this.slow === 0) this.#advance();
  }

  #advance(): void {
    if (this.#leaving === null) return;
    if (this.#leaving.polls > 0) {
      this.#leaving.polls -= 1;
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

function result(answer: Partial<CommandResult>): CommandResult {
  return { code: 0, stdout: "", stderr: "", missing: false, ...answer };
}
