import { spawn } from "node:child_process";

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
  /** At intervals: all is well, and `look` says how in words. When it finds that all is not well, it answers null. */
  watch(look: () => Promise<string | null>): void;
}

export interface NotifyMeans {
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
/** One line for a person: `systemctl status` cuts it anyway. */
const LONGEST_STATUS = 200;
const VARIABLES = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/**
 * Takes the variables out of `env`: what the daemon starts must not speak for it. `pid` is the process that the
 * watchdog is meant for.
 */
export function createNotify(env: NodeJS.ProcessEnv, pid: number, means: NotifyMeans = {}): Notify {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: usec, WATCHDOG_PID: watched } = env;
  for (const name of VARIABLES) delete env[name];
  const { programs = PROGRAMS, onTrouble = () => {} } = means;
  // A path or, with @, a name in the abstract namespace. Anything else is for other kinds of managers.
  if (socket === undefined || !/^[/@]./.test(socket)) return silent();

  let beat: NodeJS.Timeout | undefined;
  let over = false;
  let last: Promise<void> = Promise.resolve();
  // One after the other: READY after RELOADING, and never the other way round.
  const send = (...lines: readonly string[]) => {
    last = last
      .then(() => sendNow(programs, socket, lines))
      .catch((error: Error) => onTrouble(error.message));
    return last;
  };
  const end = () => {
    over = true;
    clearTimeout(beat);
  };

  // After STOPPING, a reload that was under way has nothing more to say.
  const unlessOver = (...lines: readonly string[]) => (over ? last : send(...lines));

  return {
    ready: (status) => unlessOver("READY=1", statusLine(status)),
    reloading: () => unlessOver("RELOADING=1", statusLine("reading config.yaml and every key again")),
    stopping(status) {
      end();
      return send("STOPPING=1", statusLine(status));
    },
    failed: (status) => send(statusLine(status)),
    watch(look) {
      const every = intervalOf(usec, watched, pid);
      if (every === null) return;
      const next = () => {
        // It must not be what keeps a stopped daemon alive.
        if (!over) beat = setTimeout(() => void check(), every).unref();
      };
      const check = async () => {
        const status = await look().catch(() => null);
        if (status !== null) await unlessOver("WATCHDOG=1", statusLine(status));
        else if (!over) onTrouble("no answer at its own address: the watchdog of the service is not told");
        next();
      };
      next();
    },
  };
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
