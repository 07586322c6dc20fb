import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadConfig } from "../../config/load.ts";
import type { Config } from "../../config/schema.ts";
import { type Asked, askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { ToolStatus } from "../../control/tool-status.ts";
import { advice } from "../../core/advice.ts";
import { quoteForShell } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { packageFolder, version } from "../../core/version.ts";
import { isHealthy } from "../../service/health.ts";
import { parseStartProblem } from "../../service/notify.ts";
import type { LastExit, ServiceState } from "../../service/service.ts";
import {
  describeBlindness,
  describeProcess,
  FORMAT,
  type InstalledService,
  mayHaveNamespaces,
  NO_NAMESPACES_COST,
  stopSecondsFor,
} from "../../service/spec.ts";
import { isSameFile } from "../config-change.ts";
import { formatNote, type Note, printJson, printLayout } from "../ui/messages.ts";
import { setExitCode } from "../ui/stdio.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { printable } from "../ui/text.ts";
import { ago } from "../ui/units.ts";
import {
  type ContextOptions,
  createContext,
  installedPaths,
  reachManager,
  type ServiceContext,
  type ServiceManager,
} from "./context.ts";

const INSTALL = advice.serviceInstall();
const RESTART = advice.serviceRestart();
const LOGS = advice.serviceLogs();

interface ServiceNote extends Note {
  /** A stable name for programs. */
  readonly id: string;
  /** It keeps the service from serving, now or after its next start. */
  readonly grave: boolean;
}

interface ServiceReport {
  readonly kind: ServiceManager["kind"];
  readonly path: string;
  readonly state: ServiceState;
  /** null: nothing of ours is installed. */
  readonly installed: InstalledService | null;
  readonly asked: Asked<Status>;
  /** The daemon that answers is the service's process. */
  readonly own: boolean;
  /** /healthz returned 200. */
  readonly answers: boolean;
  readonly serving: boolean;
  /** null: unknown, or launchd. */
  readonly namespaces: boolean | null;
  /** What should be fixed, each with the command that does it. */
  readonly notes: readonly ServiceNote[];
}

const ANSWER_MS = 3000;

/** Everything that is known about the service now. */
export async function examineService(
  context: ServiceContext,
  manager: ServiceManager,
): Promise<ServiceReport> {
  const state = await manager.state();
  const installed = state.file.kind === "ours" ? state.file.service : null;
  const paths = installed === null ? context.paths : installedPaths(installed, context);
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, ANSWER_MS);
  const own = asked.ok && asked.value.pid === state.pid;
  const answers = asked.ok && (await isHealthy(asked.value.listen.slice(0, 1), ANSWER_MS));
  const report: Omit<ServiceReport, "notes"> = {
    kind: manager.kind,
    path: manager.file,
    state,
    installed,
    asked,
    own,
    answers,
    serving: installed !== null && state.active === "running" && own && answers,
    namespaces:
      manager.kind === "systemd" && installed !== null ? (state.inNamespace ?? installed.namespaces) : null,
  };
  const notes: ServiceNote[] = [];
  if (state.file.kind === "foreign") {
    notes.push(note("foreign", true, state.file.problem, state.file.next));
  }
  if (installed !== null) {
    notes.push(...(await fileNotes(installed, state, context)));
    const { home } = context.paths;
    const { config } = await loadConfig(installed.config, { home, strict: false });
    if (config !== null) notes.push(...configNotes(config, installed, report));
    notes.push(...runNotes(report, checkCommand(installed.config, usualConfig(context))));
    if (asked.ok && own && report.kind === "systemd") notes.push(...restrictionNotes(asked.value.tools));
  }
  return { ...report, notes };
}

function note(id: string, grave: boolean, what: string, next: string | null): ServiceNote {
  return { id, grave, what, next };
}

/** Whether the next start will find what the service file names. */
async function fileNotes(
  installed: InstalledService,
  { enabled }: ServiceState,
  context: ServiceContext,
): Promise<ServiceNote[]> {
  const { paths, env } = context;
  const { node, main, environment, format } = installed;
  const notes: ServiceNote[] = [];
  if (!existsSync(node)) notes.push(note("node", true, `node is no longer at ${node}`, INSTALL));
  else if (!(await isSameFile(node, context.node)))
    notes.push(note("node", false, `it starts ${node}, and this command runs on ${context.node}`, INSTALL));
  if (!existsSync(main)) notes.push(note("package", true, `keybearer is no longer at ${main}`, INSTALL));
  else if (!(await isSameFile(main, context.main)))
    notes.push(note("package", false, `it starts another copy, ${main}; this is ${context.main}`, INSTALL));
  if (env.KEYBEARER_HOME && installedPaths(installed, context).socket !== paths.socket) {
    const folder = environment.KEYBEARER_HOME ?? "the usual folders";
    const what = `its files are in ${folder}, and this shell has another KEYBEARER_HOME`;
    notes.push(note("home", false, what, INSTALL));
  }
  if (format < FORMAT) notes.push(note("older", false, "an older keybearer wrote its file", INSTALL));
  if (!enabled) notes.push(note("disabled", false, "it does not start at your login", INSTALL));
  return notes;
}

/** Whether the service file still fits config.yaml. */
function configNotes(
  config: Config,
  { stopSeconds, namespaces }: InstalledService,
  { kind, state }: Pick<ServiceReport, "kind" | "state">,
): ServiceNote[] {
  const notes: ServiceNote[] = [];
  // A shorter time ends in SIGKILL while requests finish: streams break off, and their records are lost.
  if (stopSeconds !== null && stopSeconds < stopSecondsFor(config.drain)) {
    const what = `it is killed ${stopSeconds} s after a stop, but requests may take ${config.drain / 1000} s to finish`;
    notes.push(note("stop-timeout", false, what, INSTALL));
  }
  const blind = processNote(config, state);
  if (blind !== null) notes.push(blind);
  if (kind === "systemd" && !namespaces && mayHaveNamespaces(config)) {
    const what = `its unit has no user namespaces, and config.yaml has no process: and no usage.project that needs that. ${NO_NAMESPACES_COST}`;
    // Only the person knows why it has none: a `process:` or `usage.project` that is gone, or a system that would not start it with them.
    const next = `${INSTALL}. if your system does not let users create namespaces, before that: ${turnNamespacesOff()}`;
    notes.push(note("namespaces", false, what, next));
  }
  return notes;
}

/** A `process:` that was added after the installation shuts its tool out, and a record has no project. Nothing else says why. */
function processNote(config: Config, { file, inNamespace }: ServiceState): ServiceNote | null {
  const inside = inNamespace ?? (file.kind === "ours" && file.service.namespaces);
  if (!inside || mayHaveNamespaces(config)) return null;
  const what = `${describeProcess(config)}, and the unit was written for a config.yaml without that: from its namespaces ${describeBlindness(config)}`;
  // Without its project a request is served all the same.
  const isGrave = Object.values(config.tools).some(({ process }) => process !== null);
  return note("process", isGrave, what, INSTALL);
}

function runNotes(report: Omit<ServiceReport, "notes">, check: string): ServiceNote[] {
  const { state, asked, own, answers, kind } = report;
  const { active, lastExit } = state;
  if (asked.ok && !own) {
    const { pid } = asked.value;
    const next = `stop that one (kill ${pid}), then ${RESTART}`;
    return [note("by-hand", true, `keybearer runs as pid ${pid}, and not as the service`, next)];
  }
  if (active === "failed") {
    const exit = lastExit === null ? null : describeExit(lastExit, state.statusText, check);
    const what = exit === null ? "it has failed" : `it has failed: ${exit.what}`;
    return [note("failed", true, what, exit?.next ?? LOGS)];
  }
  if (active === "stopped") return [note("stopped", true, "it does not run", RESTART)];
  // Between two of its failures a service looks like any that starts. launchd counts all starts, so its number says nothing.
  if (active === "starting" && kind === "systemd" && (state.restarts ?? 0) > 0) {
    const times = state.restarts === 1 ? "once" : `${state.restarts} times`;
    return [note("failing", true, `it does not come up: it failed ${times} already`, LOGS)];
  }
  if (active !== "running")
    return [note(active, false, `it is ${active}`, `${advice.serviceStatus()}, in a moment`)];
  if (!asked.ok || !answers) return [note("silent", true, "it runs, but does not answer", LOGS)];
  return [];
}

/** The tools whose `command:` fails because of the unit's restrictions. */
export function restrictionNotes(
  tools: readonly Pick<ToolStatus, "name" | "state" | "why">[],
): ServiceNote[] {
  return tools.flatMap(({ name, state, why }) => {
    const next = state === "key-unavailable" && why !== null ? liftRestriction(why) : null;
    return next === null ? [] : [note("restricted", false, `tool ${name}: ${why}`, next)];
  });
}

/** What lets such a command do what it tried; null: it fails for another reason. */
function liftRestriction(problem: string): string | null {
  if (/SSH_AUTH_SOCK|authentication agent/i.test(problem))
    return `systemctl --user import-environment SSH_AUTH_SOCK at your login, then ${RESTART}`;
  if (!/read-only file system|\bEROFS\b/i.test(problem)) return null;
  const file = /(\/[^\s'"`’:]+)['"`’]?: read-only/i.exec(problem)?.[1];
  const folder = file === undefined ? "the folder it writes to" : file.slice(0, file.lastIndexOf("/"));
  return `let it write there: systemctl --user edit keybearer, with the lines [Service] and ReadWritePaths=${folder}, then ${RESTART}`;
}

/** The config.yaml that commands read if none is named. */
export function usualConfig({ env, paths }: ServiceContext): string {
  return findPaths({ env, home: paths.home }).config;
}

/** The command that shows the problems of the service's config.yaml. */
export function checkCommand(config: string, usual: string): string {
  return config === usual ? advice.check() : advice.check(quoteForShell(config));
}

const NO_NAMESPACES = "the system does not let users create namespaces";
/** systemd's exit codes when it cannot make the unit's namespaces. */
const NAMESPACE_EXITS: Readonly<Record<number, string>> = {
  217: NO_NAMESPACES,
  218: "the system does not grant what the unit asks for",
  226: NO_NAMESPACES,
};

/** Our own exit codes, and those with which systemd ends before the program starts: systemd.exec(5). */
const EXITS: Readonly<Record<number, { readonly what: string; readonly next: string }>> = {
  [EXIT.usage]: { what: "its command line is not valid", next: INSTALL },
  [EXIT.portTaken]: { what: "its port is taken by another program", next: advice.doctor() },
  [EXIT.alreadyRunning]: { what: "another keybearer ran here already", next: advice.status() },
  [EXIT.badConfig]: { what: "config.yaml cannot be used", next: advice.check() },
  200: { what: "its working folder does not exist", next: INSTALL },
  203: { what: "its node could not be started", next: INSTALL },
  228: {
    what: "the system does not know the unit's system call filter",
    next: "systemctl --user status keybearer",
  },
  233: {
    what: "its folder for the control socket cannot be created",
    next: "systemctl --user status keybearer",
  },
};

/** How the service's last process ended, and what to do. `check`: see checkCommand. */
export function describeExit(
  { code, signal }: LastExit,
  statusText: string | null,
  check: string,
): { readonly what: string; readonly next: string } {
  if (code === null) return { what: `it was ended by ${signal}`, next: LOGS };
  const notStarted = parseStartProblem(statusText ?? "");
  if (notStarted !== null && (code === EXIT.badConfig || code === EXIT.portTaken)) {
    const { problem, next } = notStarted;
    return {
      what: `it did not start: ${problem} (exit code ${code})`,
      next: next ?? nextFor(code, problem, check),
    };
  }
  const refused = NAMESPACE_EXITS[code];
  if (refused !== undefined)
    return { what: `${refused} (exit code ${code})`, next: `${turnNamespacesOff()}, then ${RESTART}` };
  const known = EXITS[code];
  if (known === undefined) return { what: `it ended with exit code ${code}`, next: LOGS };
  return { what: `${known.what} (exit code ${code})`, next: code === EXIT.badConfig ? check : known.next };
}

/** With this drop-in, which every installation leaves as it is, the service starts whatever its unit says. */
function turnNamespacesOff(): string {
  const file = fileURLToPath(new URL("service/README.md", packageFolder()));
  return `systemctl --user edit keybearer, with the lines at the end of ${quoteForShell(file)}`;
}

function nextFor(code: number, problem: string, check: string): string {
  if (code === EXIT.portTaken) return advice.doctor();
  // The unit's view of the file system does not let the daemon create it. `restart` does.
  return problem.startsWith("cannot make the folder") ? RESTART : check;
}

export async function status(
  options: { readonly json?: boolean; readonly config?: string },
  overrides: ContextOptions = {},
): Promise<void> {
  const context = await createContext({ ...overrides, config: options.config ?? overrides.config });
  if (options.json && (await printUnavailable(context))) return;
  const manager = await reachManager(context);
  if (manager === null) return;
  const report = await examineService(context, manager);
  const { width } = stdoutScreen();
  if (options.json) printJson(toJson(report));
  else printLayout(`${describeReport(report, width, Date.now()).join("\n")}\n`);
  setExitCode(report.serving ? EXIT.ok : EXIT.failed);
}

/** Programs get JSON even if no manager answers. */
async function printUnavailable({ manager }: ServiceContext): Promise<boolean> {
  const answer = await manager?.available();
  if (answer?.ok) return false;
  const file = await manager?.found();
  const fields = {
    manager: manager?.kind ?? null,
    file: manager?.file ?? null,
    available: false,
    why: answer?.problem ?? "this system has neither systemd nor launchd",
    installed: file?.kind === "ours",
    foreign: file?.kind === "foreign",
    serving: false,
    notes: [],
  };
  printJson(fields);
  setExitCode(EXIT.failed);
  return true;
}

function describeReport(report: ServiceReport, width: number, now: number): string[] {
  const { state, installed, path, asked, own } = report;
  if (installed === null && state.file.kind === "none")
    return [`not installed: there is no ${printable(path)}`, `→ ${INSTALL}`];
  if (installed === null) return report.notes.map((each) => formatNote(each, width));
  const { node, main, config, environment } = installed;
  const lines = [
    `installed: ${printable(path)}`,
    `  starts ${printable(`${node} ${main}`)}`,
    `  with ${printable(config)}`,
  ];
  if (environment.KEYBEARER_HOME !== undefined)
    lines.push(`  and its files in ${printable(environment.KEYBEARER_HOME)}`);
  if (report.namespaces === false)
    lines.push("  without user namespaces, so the file system is not read-only for it");
  const pid = state.pid === null ? "" : `, pid ${state.pid}`;
  const since = state.since === null ? "" : `, for ${ago(now - state.since)}`;
  lines.push(`${printable(state.description)}${pid}${since}${startCount(report)}`);
  if (asked.ok && own) {
    const on = asked.value.listen.join(" and ");
    lines.push(`keybearer ${printable(asked.value.version)}, on ${on}${report.answers ? ", answers" : ""}`);
  }
  if (state.enabled) lines.push("starts at your login");
  for (const each of report.notes) lines.push("", formatNote(each, width));
  return lines;
}

function startCount({ kind, state: { restarts } }: ServiceReport): string {
  if (restarts === null || restarts === 0) return "";
  const times = `${restarts} time${restarts === 1 ? "" : "s"}`;
  return kind === "launchd" ? `, started ${times}` : `, restarted ${times} after a failure`;
}

function toJson({ state, installed, asked, own, ...report }: ServiceReport): unknown {
  return {
    manager: report.kind,
    file: report.path,
    available: true,
    installed: installed !== null,
    foreign: state.file.kind === "foreign",
    serving: report.serving,
    active: state.active,
    words: state.description,
    pid: state.pid,
    since: state.since,
    restarts: state.restarts,
    enabled: state.enabled,
    last_exit: state.lastExit,
    answers: own && report.answers,
    version: asked.ok && own ? asked.value.version : null,
    version_here: version(),
    node: installed?.node ?? null,
    node_there: installed === null ? null : existsSync(installed.node),
    main: installed?.main ?? null,
    main_there: installed === null ? null : existsSync(installed.main),
    config: installed?.config ?? null,
    home: installed?.environment.KEYBEARER_HOME ?? null,
    namespaces: report.namespaces,
    format: installed?.format ?? null,
    notes: report.notes,
  };
}
