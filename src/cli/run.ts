import { closeSync, existsSync, openSync } from "node:fs";
import { url as inspectorUrl } from "node:inspector";
import { Command } from "commander";
import { background } from "../core/background.ts";
import { EXIT, StartFailure } from "../core/errors.ts";
import { LogStream } from "../core/log-stream.ts";
import { findPaths } from "../core/paths.ts";
import { version } from "../core/version.ts";
import type { Daemon } from "../daemon/daemon.ts";
import { unsafeStart } from "../daemon/unsafe-start.ts";
import type * as Health from "../service/health.ts";
import { Notify } from "../service/notify.ts";
import { giveBackSoon } from "./give-back.ts";
import { printableLines } from "./ui/text.ts";

/** How long a failed start may take to end by itself. */
const EXIT_GUARD_MS = 6000;
/** A daemon that needs longer to say that it is there is of no use to anybody. */
const HEALTH_MS = 10_000;

export function runCommand(): Command {
  return new Command("run")
    .description("serve in the foreground; without a config.yaml, serve the sandbox")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .action(run);
}

async function run(options: { config?: string }): Promise<void> {
  const { env, execArgv } = process;
  const paths = findPaths({ config: options.config });
  const hasConfig = paths.explicit || existsSync(paths.config);
  const unsafe = unsafeStart({ env, execArgv, inspected: inspectorUrl() !== undefined, hasConfig });
  if (unsafe !== null) {
    process.stderr.write(`${printableLines(unsafe)}\n`);
    process.exitCode = EXIT.badConfig;
    return;
  }
  // Before any file is made: state, socket and log are nobody else's business.
  process.umask(0o077);
  // A reader of our output that goes away must not take the daemon with it.
  process.stdout.on("error", () => {});
  process.stderr.on("error", () => {});
  // With this http-proxy-3 would use fetch(), which follows redirects with the key.
  delete process.env.FORCE_FETCH_PATH;
  const onSignal = deferSignals();
  const onTerminal = process.stderr.isTTY === true;
  let daemon: Daemon | null = null;
  const logTo = new LogStream(process.stderr.fd, (lines) =>
    daemon?.log.error({ lines }, "log lines were dropped: their reader or the disk did not keep up"),
  );
  let health: typeof Health;
  const onTrouble = (words: string) => daemon?.log.warn(words);
  // Before there is anything that starts programs: they must not be able to speak for the daemon.
  const notify = new Notify(process.env, process.pid, { onTrouble });
  try {
    // Only now: every other command would wait for all of it, too. And not later: once it serves, the package may be
    // replaced under it.
    const { startDaemon } = await import("../daemon/daemon.ts");
    health = await import("../service/health.ts");
    const logForPeople = onTerminal;
    daemon = await startDaemon({ paths, env: process.env, logTo, logForPeople });
  } catch (error) {
    logTo.end();
    // Whatever a failed start may have left open must not keep the process alive.
    setTimeout(() => process.exit(), EXIT_GUARD_MS).unref();
    if (!(error instanceof StartFailure)) throw error;
    process.stderr.write(`${printableLines(error.message)}\n`);
    process.exitCode = error.exitCode;
    await notify.failed(`did not start: ${error.message.split("\n", 1)[0]}`);
    return;
  }
  process.stdout.write(greeting(daemon, paths.config));
  // In one go with the greeting: whoever has read it may send a signal.
  const stopped = untilStopped(daemon, { onTerminal, notify, onSignal });
  announce(daemon, notify, health);
  giveBackSoon();
  const exitCode = await stopped;
  logTo.end();
  // Nothing that was forgotten may keep a stopped daemon alive.
  process.exit(exitCode);
}

function greeting(daemon: Daemon, config: string): string {
  const base = `http://localhost:${daemon.port}`;
  const first = `keybearer ${version()} serves ${base}\n`;
  if (daemon.sandboxSession === null) return first;
  const { token, model, gatewayKey, sandbox } = daemon.sandboxSession;
  const auth = `-H "Authorization: Bearer ${token}"`;
  const body = (stream: boolean) =>
    `'{"model":"${model}"${stream ? ',"stream":true' : ""},"messages":[{"role":"user","content":"hello"}]}'`;
  const chat = `${base}/v1/chat/completions ${auth} -H "Content-Type: application/json" -d`;
  return [
    first,
    "there is no config.yaml yet, so the sandbox answers: no account needed. paste one of these:",
    "",
    `curl ${base}/v1/models ${auth}`,
    `curl ${chat} ${body(false)}`,
    `curl -N ${chat} ${body(true)}`,
    "",
    "and what somebody would do who got hold of the key: past keybearer, straight to the gateway. half a minute later",
    "keybearer mirror raises the alarm:",
    "",
    `curl ${sandbox.baseUrl}/chat/completions -H "Authorization: Bearer ${gatewayKey}" -H "Content-Type: application/json" -d ${body(false)}`,
    "",
    `your own gateway: keybearer init (or write ${config}, see config.example.yaml); it takes over as soon as it is saved`,
    "",
  ].join("\n");
}

/**
 * While it starts there is nothing to stop yet, and dying would leave the socket behind: a signal waits until then,
 * a second one does not. A reload needs nothing: the file is looked at once more before it serves.
 *
 * One listener from the start to the end: between taking one off and putting the next on, a signal would kill the
 * process or be lost.
 */
function deferSignals(): OnSignal {
  let deferred: string | null = null;
  let handle = (signal: string) => {
    if (deferred !== null) process.exit(0);
    deferred = signal;
  };
  process.on("SIGHUP", () => {});
  // Without a listener it would end the process.
  process.on("SIGUSR2", () => {});
  process.on("SIGTERM", (signal) => handle(signal));
  process.on("SIGINT", (signal) => handle(signal));
  return (stop) => {
    handle = stop;
    if (deferred !== null) stop(deferred);
  };
}

/** Sets what a signal to stop does; called at once if there was one already. */
type OnSignal = (stop: (signal: string) => void) => void;

/** Everything answers by now: the service manager may start what waits for keybearer, and is told again and again. */
function announce(daemon: Daemon, notify: Notify, { probeHealth, isHung }: typeof Health): void {
  background(notify.ready(standing(daemon)), daemon.log, "telling the service manager");
  const watching = notify.watch(async () => {
    const results = await probeHealth(daemon.addresses, HEALTH_MS);
    if (isHung(results)) return null;
    const lost = daemon.addresses.filter((_, index) => results[index] !== "ok");
    return `${standing(daemon)}${lost.length === 0 ? "" : `; no new connection gets through to ${lost.join(", ")}`}`;
  });
  background(watching, daemon.log, "the watchdog");
}

/** For whoever asks the service manager. */
function standing(daemon: Daemon): string {
  const tools = Object.keys(daemon.snapshot().config.tools).length;
  return `serving http://localhost:${daemon.port}, ${tools} ${tools === 1 ? "tool" : "tools"}`;
}

interface Stopping {
  readonly onTerminal: boolean;
  readonly notify: Notify;
  readonly onSignal: OnSignal;
}

/** Resolves with the exit code, once everything is closed. */
function untilStopped(daemon: Daemon, { onTerminal, notify, onSignal }: Stopping): Promise<number> {
  const { log } = daemon;
  const inBackground = (work: Promise<unknown>, what: string) => background(work, log, what);
  const reload = async () => {
    inBackground(notify.reloading(), "telling the service manager");
    await daemon.reload();
    inBackground(notify.ready(standing(daemon)), "telling the service manager");
  };
  return new Promise((resolve) => {
    let signals = 0;
    const stop = (why: string, exitCode: number) => {
      signals += 1;
      if (signals === 2) return daemon.cut();
      if (signals > 2) process.exit(EXIT.failed);
      inBackground(notify.stopping("requests in flight may finish"), "telling the service manager");
      log.info(
        `${why}: stopping; requests in flight may finish, a second signal cuts them, a third exits at once`,
      );
      inBackground(
        daemon.stop().then(() => resolve(exitCode)),
        "the stop",
      );
    };
    process.on("SIGHUP", () => {
      // The same signal says "reload" to a service and "your terminal is gone" to a program in one.
      if (onTerminal && terminalIsGone()) stop("SIGHUP", EXIT.ok);
      else if (signals === 0) inBackground(reload(), "the reload");
    });
    // Rejections that nothing handles come here, too. The state is unknown now, but records and limits can still be closed
    // in order; the service manager starts a new daemon.
    process.on("uncaughtException", (error) => {
      log.fatal({ err: error }, "this is a bug in keybearer, which stops because of it");
      if (signals === 0) stop("bug", EXIT.failed);
    });
    onSignal((signal) => stop(signal, EXIT.ok));
  });
}

function terminalIsGone(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch {
    return true;
  }
}
