import { spawn } from "node:child_process";
import { StringDecoder } from "node:string_decoder";
import { hasCode } from "../core/errors.ts";

/** What a program answered. */
export interface Ran {
  /** null: it did not end by itself, but was ended: by a signal, or because it took too long. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** There is no such program. */
  readonly missing: boolean;
}

export interface RunOptions {
  /** Default 30 s; 0: as long as it takes. */
  readonly timeoutMs?: number;
  /** Called for every line of its output, which is then not collected. */
  readonly onLine?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** Runs a program of the system. The one door to launchctl, systemctl and journalctl, so that a test can stand in it. */
export type RunCommand = (argv: readonly string[], options?: RunOptions) => Promise<Ran>;

const USUAL_MS = 30_000;
/** No answer that is read here is longer. */
const MOST_CHARACTERS = 1_000_000;

/** Without a shell: no word of a path is ever more than a word. Never rejects. */
export function createRunner(env: NodeJS.ProcessEnv): RunCommand {
  // Answers are told apart by their words and their times are read: both must not follow the person's settings.
  const plain = { ...env, LC_ALL: "C", TZ: "UTC", SYSTEMD_COLORS: "0", SYSTEMD_PAGER: "" };
  return ([program = "", ...rest], options = {}) =>
    new Promise((done) => {
      const child = spawn(program, rest, { env: plain, stdio: ["ignore", "pipe", "pipe"] });
      const stdout = options.onLine === undefined ? collect() : lines(options.onLine);
      const stderr = collect();
      const timer = options.timeoutMs === 0 ? null : setTimeout(kill, options.timeoutMs ?? USUAL_MS);
      function kill(): void {
        child.kill("SIGKILL");
      }
      function end(code: number | null, missing: boolean): void {
        if (timer !== null) clearTimeout(timer);
        options.signal?.removeEventListener("abort", kill);
        done({ code, stdout: stdout.end(), stderr: stderr.end(), missing });
      }
      options.signal?.addEventListener("abort", kill);
      if (options.signal?.aborted) kill();
      child.stdout.on("data", stdout.take);
      child.stderr.on("data", stderr.take);
      child.once("error", (error) => end(null, hasCode(error, "ENOENT")));
      child.once("close", (code) => end(code, false));
    });
}

interface Taker {
  take(chunk: Buffer): void;
  end(): string;
}

function collect(): Taker {
  const decoder = new StringDecoder("utf8");
  let text = "";
  return {
    take(chunk) {
      if (text.length < MOST_CHARACTERS) text += decoder.write(chunk);
    },
    end: () => text,
  };
}

function lines(tell: (line: string) => void): Taker {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  return {
    take(chunk) {
      const parts = (rest + decoder.write(chunk)).split("\n");
      // A line without an end must not fill the memory.
      rest = (parts.pop() ?? "").slice(0, MOST_CHARACTERS);
      for (const part of parts) tell(part);
    },
    end() {
      if (rest !== "") tell(rest);
      return "";
    },
  };
}
