import type { Ran, RunCommand } from "../../src/service/command-runner.ts";

/**
 * Stands where launchctl is run: it answers with launchctl's own codes and words, as far as they are known from its
 * manual and from what people report, and keeps what was asked. It is no launchd.
 */
export interface Launchctl {
  readonly run: RunCommand;
  /** What was asked, in order, without those that only look. */
  changes(): string[];
  asked(): string[];
  /** What launchd knows of the job. */
  readonly job: {
    loaded: boolean;
    pid: number | null;
    disabled: boolean;
    lastExit: string;
    runs: number;
  };
  /** Answers to be given first to a command, each once. */
  readonly next: Map<string, Partial<Ran>[]>;
  /** How many looks a job takes to be gone after a bootout, or to end after a signal. */
  slow: number;
  readonly variables: Map<string, string>;
}

const LOOKS = ["print", "print-disabled", "getenv"];

export function createLaunchctl(uid: number): Launchctl {
  const asked: string[] = [];
  const domain = `gui/${uid}`;
  const job = {
    loaded: false,
    pid: null as number | null,
    disabled: false,
    lastExit: "(never exited)",
    runs: 0,
  };
  const next = new Map<string, Partial<Ran>[]>();
  const variables = new Map<string, string>();
  const recorder: Launchctl = {
    run: async (argv) => {
      const [program, verb = "", ...rest] = argv;
      if (program !== "launchctl") return ran({ missing: true, code: null });
      asked.push([verb, ...rest].join(" "));
      const first = next.get(verb)?.shift();
      return first === undefined ? answer(verb, rest) : ran(first);
    },
    changes: () => asked.filter((each) => !LOOKS.includes(each.split(" ")[0] ?? "")),
    asked: () => asked,
    ...{ job, next, slow: 0, variables },
  };
  let leaving: { looks: number; then: () => void } | null = null;

  function leave(then: () => void): void {
    leaving = { looks: recorder.slow, then };
    if (recorder.slow === 0) settle();
  }
  function settle(): void {
    if (leaving === null) return;
    if (leaving.looks > 0) {
      leaving.looks -= 1;
      return;
    }
    const { then } = leaving;
    leaving = null;
    then();
  }
  function begin(): void {
    job.pid = 4000 + job.runs;
    job.runs += 1;
  }

  function answer(verb: string, [first = ""]: readonly string[]): Ran {
    switch (verb) {
      case "print":
        if (first === domain) return ran({ stdout: `${domain} = {\n\ttype = login\n}\n` });
        settle();
        return job.loaded ? ran({ stdout: printed(domain, job) }) : ran(NOT_FOUND);
      case "print-disabled":
        return ran({
          stdout: `disabled services = {\n\t\t"com.keybearer" => ${job.disabled ? "disabled" : "enabled"}\n}\n`,
        });
      case "enable":
        job.disabled = false;
        return ran({});
      case "bootstrap":
        if (job.disabled) return ran({ code: 119, stderr: "Bootstrap failed: 119: Service is disabled\n" });
        if (leaving !== null)
          return ran({ code: 37, stderr: "Bootstrap failed: 37: Operation already in progress\n" });
        if (job.loaded) return ran(LOADED_ALREADY);
        job.loaded = true;
        begin();
        return ran({});
      case "bootout":
        if (!job.loaded) return ran({ code: 3, stderr: "Boot-out failed: 3: No such process\n" });
        leave(() => Object.assign(job, { loaded: false, pid: null }));
        return leaving === null
          ? ran({})
          : ran({ code: 36, stderr: "Boot-out failed: 36: Operation now in progress\n" });
      case "kill":
        if (!job.loaded) return ran(NOT_FOUND);
        if (job.pid === null) return ran({ code: 3, stderr: "No process to signal.\n" });
        leave(() => Object.assign(job, { pid: null, lastExit: "0" }));
        return ran({});
      case "kickstart":
        if (!job.loaded) return ran(NOT_FOUND);
        if (job.pid === null) begin();
        return ran({});
      case "getenv":
        return ran({ stdout: variables.has(first) ? `${variables.get(first)}\n` : "" });
      default:
        return ran({ code: 64, stderr: `Unrecognized subcommand: ${verb}\n` });
    }
  }
  return recorder;
}

const NOT_FOUND = {
  code: 113,
  stderr: 'Could not find service "com.keybearer" in domain for user gui: 501\n',
};
/** With the advice that newer systems add. */
const LOADED_ALREADY = {
  code: 5,
  stderr: "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.\n",
};

function printed(domain: string, job: Launchctl["job"]): string {
  const process = job.pid === null ? "" : `\tpid = ${job.pid}\n`;
  return `${domain}/com.keybearer = {
\tactive count = ${job.pid === null ? 0 : 1}
\tpath = /Users/you/Library/LaunchAgents/com.keybearer.plist
\ttype = LaunchAgent
\tstate = ${job.pid === null ? "not running" : "running"}

\tprogram = /usr/local/bin/node
\targuments = {
\t\t/usr/local/bin/node
\t}

\tenvironment = {
\t\tPATH => /usr/bin:/bin
\t}

\tdomain = ${domain} [100021]
\tminimum runtime = 30
\texit timeout = 20
\truns = ${job.runs}
${process}\timmediate reason = speculative
\tlast exit code = ${job.lastExit}

\tspawn type = adaptive (6)
\tjetsam priority = 40
\tendpoints = {
\t\t"elsewhere" = {
\t\t\tport = 0xa0403
\t\t\tstate = idle
\t\t}
\t}
}
`;
}

function ran(answer: Partial<Ran>): Ran {
  return { code: 0, stdout: "", stderr: "", missing: false, ...answer };
}
