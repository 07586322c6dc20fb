import { closeSync, existsSync, openSync } from "node:fs";
import { Command, InvalidArgumentError } from "commander";
import { DEFAULT_LISTEN } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import { typeable } from "../core/command-name.ts";
import { EXIT, StartError } from "../core/errors.ts";
import { LogStream } from "../core/log-stream.ts";
import type { Mode } from "../core/paths.ts";
import { version } from "../core/version.ts";
import type { Daemon } from "../daemon/daemon.ts";
import { ineffectiveStart } from "../daemon/unsafe-start.ts";
import type * as Health from "../service/health.ts";
import { logFileIn, ServiceLog } from "../service/log-file.ts";
import { formatStartProblem, Notify } from "../service/notify.ts";
import { isSafeStart } from "./safe-start.ts";
import { fail } from "./ui/messages.ts";
import { commandPaths } from "./ui/stdio.ts";
import { outputWidth, readScreen } from "./ui/terminal.ts";
import { printableLines, wrap } from "./ui/text.ts";
import { joinNames } from "./ui/units.ts";

/** A failed start that does not end by itself is ended after this time. */
const EXIT_GUARD_MS = 6000;
/** A daemon that needs longer for a health check counts as hung. */
const HEALTH_MS = 10_000;

export function runCommand(): Command {
  return new Command("run")
    .description("serve in the foreground; without a config.yaml, serve the sandbox")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .option("-p, --port <number>", "the port of the sandbox; with a config.yaml, listen decides", parsePort)
    .action((_options, command: Command) => run(command.optsWithGlobals()));
}

function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port >= 1 && port <= 65_535) return port;
  throw new InvalidArgumentError("it must be a number from 1 to 65535");
}

interface RunOptions {
  readonly config?: string;
  readonly port?: number;
  /** What --system or --user chose; null: neither was typed. */
  readonly mode: Mode | null;
}

async function run(options: RunOptions): Promise<void> {
  const paths = commandPaths(options.config, options.mode);
  const hasConfig = paths.explicit || existsSync(paths.config);
  if (hasConfig && options.port !== undefined)
    return fail(
      { problem: "--port is for the sandbox", next: `change listen in ${paths.config}` },
      EXIT.usage,
    );
  // Before any file is created: state, socket and log are private.
  process.umask(0o077);
  const serviceLog = ServiceLog.find(process.stderr.fd, logFileIn(paths));
  // At each start: launchd repeats a start that fails, and each one writes its reason.
  if (serviceLog !== null) await serviceLog.keepSmall();
  if (!isSafeStart()) return;
  // The daemon goes on when the reader of its output goes away.
  process.stdout.on("error", () => {});
  process.stderr.on("error", () => {});
  // With this http-proxy-3 would use fetch(), which follows redirects with the key.
  delete process.env.FORCE_FETCH_PATH;
  const onSignal = deferSignals();
  const onTerminal = process.stderr.isTTY === true;
  let daemon: Daemon | null = null;
  const logTo = new LogStream(
    serviceLog?.descriptor ?? process.stderr.fd,
    (lines) =>
      daemon?.log.error(
        { lines },
        "log lines were dropped because the disk or the log's reader was too slow",
      ),
    serviceLog && (() => serviceLog.keepSmall()),
  );
  let health: typeof Health;
  // Before anything starts a program: Notify removes the variables with which a child could speak for the daemon.
  const notify = new Notify(process.env, process.pid, { onProblem: (message) => daemon?.log.warn(message) });
  try {
    // Loaded here, because every other command would wait for it. Not later: once the daemon serves, an update may replace
    // the package's files.
    const { startDaemon } = await import("../daemon/daemon.ts");
    health = await import("../service/health.ts");
    const port =
      options.port === undefined ? {} : { sandboxListen: { ...DEFAULT_LISTEN, port: options.port } };
    const ineffective = hasConfig ? ineffectiveStart(process.env) : null;
    const warnings = ineffective === null ? [] : [ineffective];
    daemon = await startDaemon({
      paths,
      env: process.env,
      logTo: onTerminal ? wrapped(logTo) : logTo,
      logForPeople: onTerminal,
      warnings,
      ...port,
    });
  } catch (error) {
    logTo.end();
    // Something that the failed start left open must not keep the process alive.
    setTimeout(() => process.exit(), EXIT_GUARD_MS).unref();
    if (!(error instanceof StartError)) throw error;
    fail(error.problems, error.exitCode);
    await notify.failed(formatStartProblem(error.problems));
    return;
  }
  process.stdout.write(greeting(daemon, paths.config));
  // Without an await after the greeting: a program that has read it may send a signal.
  const stopped = untilStopped(daemon, { onTerminal, notify, onSignal });
  announce(daemon, notify, health);
  const exitCode = await stopped;
  logTo.end();
  // Something left open must not keep a stopped daemon alive.
  process.exit(exitCode);
}

/** Between words, not where the terminal's line ends. */
function wrapped(log: LogStream): Pick<LogStream, "write"> {
  const width = () => readScreen(process.env, process.stderr.columns).width;
  return { write: (line) => log.write(`${wrap(line.trimEnd(), width())}\n`) };
}

function greeting(daemon: Daemon, config: string): string {
  const base = `http://localhost:${daemon.port}`;
  const first = `keybearer ${version()} serves ${base}\n`;
  if (daemon.sandboxSession === null)
    return typeable(`${first}${printableLines(describeConfig(daemon, config))}\n`);
  const { token, model, gatewayKey, sandbox } = daemon.sandboxSession;
  const wanted = daemon.snapshot().config.listen.port;
  const isOther = wanted !== 0 && wanted !== daemon.port;
  const message = '"messages":[{"role":"user","content":"hello"}]';
  // Two lines: one would be too wide for 80 columns.
  const streamed = `'{"model":"${model}","stream":true,\n      ${message}}'`;
  const plain = `'{"model":"${model}",${message}}'`;
  return typeable(
    [
      first,
      ...(isOther ? [`port ${wanted} is taken, so the sandbox uses another one.\n`] : []),
      "There is no config.yaml yet, so the sandbox answers. It needs no account. Try:\n",
      `curl ${base}/v1/models \\\n  -H "Authorization: Bearer ${token}"\n`,
      `${curlChat(`${base}/v1`, token, plain)}\n`,
      `${curlChat(`-N ${base}/v1`, token, streamed)}\n`,
      `Then see what it cost: ${advice.usage()}\n`,
      "A thief who has the key goes straight to the gateway, past keybearer.",
      `Half a minute later, ${advice.mirror()} shows the alarm:\n`,
      `${curlChat(sandbox.baseUrl, gatewayKey, plain)}\n`,
      `Your own gateway: ${advice.init()}`,
      wrap(
        `  or write ${printableLines(config)}, see config.example.yaml; it takes over as soon as it is saved`,
        outputWidth(),
      ),
      "",
    ].join("\n"),
  );
}

/** One argument a line, so that it can be read, and copied, in a terminal of 80 columns. */
function curlChat(base: string, bearer: string, body: string): string {
  return [
    `curl ${base}/chat/completions`,
    `-H "Authorization: Bearer ${bearer}"`,
    '-H "Content-Type: application/json"',
    `-d ${body}`,
  ].join(" \\\n  ");
}

/** The gateways and tools of config.yaml, and what to type next. */
function describeConfig(daemon: Daemon, file: string): string {
  const { config } = daemon.snapshot();
  const tools = Object.keys(config.tools);
  return [
    `  config   ${file}`,
    ...Object.values(config.gateways).map(({ name, baseUrl }) => `  gateway  ${name}  ${baseUrl}`),
    `  tools    ${tools.length === 0 ? `none → ${advice.addTool("<tool>")}` : joinNames(tools, 10)}`,
    `  next     ${advice.status()}, ${advice.use("<tool>")}, ${advice.open()}`,
  ].join("\n");
}

/**
 * During the start there is nothing to stop yet, and ending would leave the socket behind. So the first signal waits until
 * the daemon serves; a second one ends the process. SIGHUP needs nothing: the file is read again before it serves.
 *
 * One listener stays from the start to the end: between removing one and adding the next, a signal would kill the process
 * or be lost.
 */
function deferSignals(): OnSignal {
  let deferred: string | null = null;
  let handle = (signal: string) => {
    if (deferred !== null) process.exit(0);
    deferred = signal;
  };
  process.on("SIGHUP", () => {});
  // Without a listener SIGUSR2 would end the process.
  process.on("SIGUSR2", () => {});
  process.on("SIGTERM", (signal) => handle(signal));
  process.on("SIGINT", (signal) => handle(signal));
  return (stop) => {
    handle = stop;
    if (deferred !== null) stop(deferred);
  };
}

/** Sets what a stop signal does. Calls it at once if one has arrived already. */
type OnSignal = (stop: (signal: string) => void) => void;

/** The daemon serves: the service manager may start what depends on it. Then it gets a message per health check. */
function announce(daemon: Daemon, notify: Notify, { probeHealth, isHung }: typeof Health): void {
  background(notify.ready(statusLine(daemon)), daemon.log, "a message to the service manager");
  const watching = notify.watch(async () => {
    const results = await probeHealth(daemon.addresses, HEALTH_MS);
    if (isHung(results)) return null;
    const lost = daemon.addresses.filter((_, index) => results[index] !== "ok");
    return `${statusLine(daemon)}${lost.length === 0 ? "" : `; no new connection gets through to ${lost.join(", ")}`}`;
  });
  background(watching, daemon.log, "the watchdog");
}

/** The status line that the service manager shows. */
function statusLine(daemon: Daemon): string {
  const tools = Object.keys(daemon.snapshot().config.tools).length;
  return `serving http://localhost:${daemon.port}, ${tools} ${tools === 1 ? "tool" : "tools"}`;
}

interface Stopping {
  readonly onTerminal: boolean;
  readonly notify: Notify;
  readonly onSignal: OnSignal;
}

/** Resolves with the exit code when everything is closed. */
function untilStopped(daemon: Daemon, { onTerminal, notify, onSignal }: Stopping): Promise<number> {
  const { log } = daemon;
  const inBackground = (work: Promise<unknown>, what: string) => background(work, log, what);
  const reload = async () => {
    inBackground(notify.reloading(), "a message to the service manager");
    await daemon.reload();
    inBackground(notify.ready(statusLine(daemon)), "a message to the service manager");
  };
  return new Promise((resolve) => {
    let signals = 0;
    const stop = (cause: string, exitCode: number) => {
      signals += 1;
      if (signals === 2) return daemon.cut();
      if (signals > 2) process.exit(EXIT.failed);
      inBackground(notify.stopping("requests in flight may finish"), "a message to the service manager");
      log.info(
        `${cause}: stopping; requests in flight may finish, a second signal cuts them, a third exits at once`,
      );
      inBackground(
        daemon.stop().then(() => resolve(exitCode)),
        "the stop",
      );
    };
    process.on("SIGHUP", () => {
      // SIGHUP means "reload" to a service and "your terminal is gone" to a program in a terminal.
      if (onTerminal && terminalIsGone()) stop("SIGHUP", EXIT.ok);
      else if (signals === 0) inBackground(reload(), "the reload");
    });
    // Unhandled rejections arrive here, too. The state is unknown now, but open records can still be closed in order; the
    // service manager starts a new daemon.
    process.on("uncaughtException", (error) => {
      log.fatal({ err: error }, "a bug in keybearer: it stops now");
      if (signals === 0) stop("bug", EXIT.failed);
    });
    inBackground(
      daemon.lostLock.then((problem) => {
        if (signals === 0) stop(problem, EXIT.alreadyRunning);
      }),
      "the stop without a lock",
    );
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
