import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { errorMessage } from "../../core/errors.ts";

/**
 * Tells the service manager how the daemon is, as sd_notify(3) does. Does nothing where no manager asks for it.
 *
 * Node has no datagrams on unix sockets, and every package that adds them is native code. The program systemd-notify
 * belongs to systemd itself, so it is there wherever it is asked for, and it waits until the manager has read the
 * message: a sender that is gone before that cannot be told apart from a stranger, and its message is dropped.
 */
export interface Notify {
  /** It serves. Also ends a reload. */
  ready(status: string): Promise<void>;
  reloading(): Promise<void>;
  stopping(status: string): Promise<void>;
  /** It cannot start: what `systemctl status` shows beside the exit code. */
  failed(status: string): Promise<void>;
  /**
   * At intervals: all is well, and `look` says how in words. When it finds that all is not well, it answers null and is
   * asked again soon: one bad moment is not the end. Each time READY is said anew, in case the first was lost.
   */
  watch(look: () => Promise<string | null>): void;
}

export interface NotifyDeps {
  /** Where systemd-notify may be; the first that is there is taken. Default where systems have it. */
  readonly programs?: readonly string[];
  /** Hears what went wrong, in words. */
  readonly onTrouble?: (words: string) => void;
}

const PROGRAMS = [
  "/usr/bin/systemd-notify",
  "/bin/systemd-notify",
  "/run/current-system/sw/bin/systemd-notify",
];
/** A manager that does not read its socket for so long has other worries. */
const PATIENCE_MS = 5000;
/** After a look that found nothing, or a message that did not arrive. */
const SOON_MS = 1500;
/** One line for a person: `systemctl status` cuts it anyway. */
const LONGEST_STATUS = 200;
const VARIABLES = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/**
 * Takes the variables out of `env`: what the daemon starts must not speak for it. `pid` is the process that the
 * watchdog is meant for.
 */
export function createNotify(env: NodeJS.ProcessEnv, pid: number, deps: NotifyDeps = {}): Notify {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: usec, WATCHDOG_PID: watched } = env;
  for (const name of VARIABLES) delete env[name];
  const { programs = PROGRAMS, onTrouble = () => {} } = deps;
  // A path or, with @, a name in the abstract namespace. Anything else is for other kinds of managers.
  if (socket === undefined || !/^[/@]./.test(socket)) return silent();

  const post = createPost(programs, socket, onTrouble);
  let ticker: NodeJS.Timeout | undefined;
  let over = false;
  let reloads = 0;
  // After STOPPING, a reload that was under way has nothing more to say.
  const unlessOver = (...lines: readonly string[]) => (over ? post.idle() : post.send(...lines));

  const check = async (look: () => Promise<string | null>): Promise<boolean> => {
    const status = await look().catch(() => null);
    if (status === null) {
      if (!over) post.complain("no answer at its own address: the watchdog of the service is not told");
      return false;
    }
    // In the middle of a reload, READY would end it, and the status is the reload's.
    if (reloads > 0) await unlessOver("WATCHDOG=1");
    else await unlessOver("READY=1", "WATCHDOG=1", statusLine(status));
    return post.arrived();
  };

  return {
    ready(status) {
      reloads = Math.max(reloads - 1, 0);
      return unlessOver("READY=1", statusLine(status));
    },
    reloading() {
      reloads += 1;
      return unlessOver("RELOADING=1", statusLine("reading config.yaml and every key again"));
    },
    stopping(status) {
      over = true;
      clearTimeout(ticker);
      return post.send("STOPPING=1", statusLine(status));
    },
    failed: (status) => post.send(statusLine(status)),
    watch(look) {
      const every = intervalOf(usec, watched, pid);
      if (every === null) return;
      const next = (well: boolean) => {
        if (over) return;
        const wait = well ? every : Math.min(SOON_MS, every);
        // It must not be what keeps a stopped daemon alive.
        ticker = setTimeout(() => void check(look).then(next), wait).unref();
      };
      // After what is on its way: if READY does not arrive, it is said again soon.
      void post.idle().then(() => next(post.arrived()));
    },
  };
}

/** Sends one message after the other: READY after RELOADING, and never the other way round. */
function createPost(programs: readonly string[], socket: string, onTrouble: (words: string) => void) {
  let arrived = true;
  let complained = "";
  let last: Promise<void> = Promise.resolve();
  // Not forty times a minute, while it is tried again.
  const complain = (words: string) => {
    if (words !== complained) onTrouble(words);
    complained = words;
  };
  const post = async (lines: readonly string[]) => {
    try {
      await sendNow(programs, socket, lines);
      arrived = true;
      complained = "";
    } catch (error) {
      arrived = false;
      complain(errorMessage(error));
    }
  };
  return {
    complain,
    send(...lines: readonly string[]): Promise<void> {
      last = last.then(() => post(lines));
      return last;
    },
    /** Whether the last message did. */
    arrived: () => arrived,
    /** Resolves when nothing is on its way any more. */
    idle: () => last,
  };
}

/** Why a unit of Type=notify would never count as started here; null: it would. */
export function notifyFault(programs: readonly string[] = PROGRAMS): string | null {
  if (programs.some((program) => existsSync(program))) return null;
  return `there is no ${programs[0] ?? "systemd-notify"}, by which keybearer tells systemd that it is ready → install the package systemd whole`;
}

/** Half of what the manager allows, as sd_watchdog_enabled(3) recommends. */
function intervalOf(usec: string | undefined, watched: string | undefined, pid: number): number | null {
  if (usec === undefined || !/^[1-9]\d{0,15}$/.test(usec)) return null;
  if (watched !== undefined && watched !== String(pid)) return null;
  return Math.min(Math.max(Math.floor(Number(usec) / 2000), 1), 2 ** 31 - 1);
}

function statusLine(status: string): string {
  // A line break would begin another message.
  const line = status.replace(/\s+/g, " ").trim();
  return `STATUS=${line.length > LONGEST_STATUS ? `${line.slice(0, LONGEST_STATUS)}…` : line}`;
}

async function sendNow(programs: readonly string[], socket: string, lines: readonly string[]): Promise<void> {
  for (const program of programs) {
    if (await told(program, socket, lines)) return;
  }
  throw new Error(
    `the service manager cannot be told: there is no program ${programs[0] ?? "systemd-notify"}`,
  );
}

/** false: there is no such program. */
function told(program: string, socket: string, lines: readonly string[]): Promise<boolean> {
  return new Promise((done, fail) => {
    const child = spawn(program, lines, {
      cwd: "/",
      env: { NOTIFY_SOCKET: socket },
      stdio: "ignore",
      timeout: PATIENCE_MS,
      killSignal: "SIGKILL",
    });
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") done(false);
      else fail(new Error(`the service manager cannot be told: ${program} (${error.code ?? "unknown"})`));
    });
    child.once("exit", (code, signal) => {
      if (code === 0) done(true);
      else fail(new Error(`the service manager cannot be told: ${program} ended with ${code ?? signal}`));
    });
  });
}

function silent(): Notify {
  const nothing = () => Promise.resolve();
  return { ready: nothing, reloading: nothing, stopping: nothing, failed: nothing, watch: () => {} };
}
