import { existsSync } from "node:fs";
import { connect } from "node:net";
import type { Listen } from "../../config/schema.ts";
import { type Asked, startCommand } from "../../control/client.ts";
import type {
  GatewayStatus,
  KeyChangeStatus,
  MetricsStatus,
  Status,
  UsageStatus,
} from "../../control/status.ts";
import { type ToolStatus, usedUpLimit } from "../../control/tool-status.ts";
import { advice } from "../../core/advice.ts";
import type { Paths } from "../../core/paths.ts";
import { describePortOwner } from "../../core/process-lookup.ts";
import { version } from "../../core/version.ts";
import { aboutTool, type Finding } from "../../doctor/findings.ts";
import { notifyFindings } from "../../doctor/notify-findings.ts";
import { sharedFindings } from "../../doctor/shared-findings.ts";
import type { Alarm, ConsoleStatus } from "../../mirror/report/shape.ts";
import {
  alarmSentence,
  alarmTitle,
  consoleProblem,
  formatKind,
  formatLastSync,
  formatRemedy,
} from "../mirror/messages.ts";
import { answeringManager, type ServiceContext } from "../service/context.ts";
import { examineService } from "../service/status.ts";
import { describeFailing } from "../status.ts";
import { ago, fileSize } from "../ui/units.ts";

/* Findings about the daemon, the service, and what only the running daemon knows. */

/** Whether the daemon runs, how, and what would prevent its start. `listen` null: config.yaml cannot be used. */
export async function daemonFindings(
  asked: Asked<Status>,
  paths: Paths,
  listen: Listen | null,
  service: ServiceContext,
): Promise<Finding[]> {
  // A daemon that is started by hand would take the port from the service.
  const isService = (await service.manager?.found())?.kind === "ours";
  const restart = isService ? advice.serviceRestart() : `stop it, and start it again: ${startCommand(paths)}`;
  const findings: Finding[] = [];
  if (asked.ok) findings.push(...runningFindings(asked.value, paths, listen, restart));
  else if (asked.running) {
    const what = `keybearer is running, but does not answer as it should: ${asked.problem}`;
    findings.push(aboutDaemon("problem", "daemon", what, restart));
  } else {
    const start = isService ? restart : startCommand(paths);
    findings.push(aboutDaemon("problem", "daemon", "keybearer is not running", start));
    findings.push(...(await startFindings(paths, listen)));
  }
  const what = `this is keybearer ${version()} on node ${process.version}, ${process.execPath}`;
  findings.push(aboutDaemon("ok", "node", what, null));
  return findings;
}

function aboutDaemon(level: Finding["level"], id: string, what: string, next: string | null): Finding {
  return { id, level, about: "the daemon", what, next };
}

function runningFindings(status: Status, paths: Paths, listen: Listen | null, restart: string): Finding[] {
  const { pid, uptime_s: uptime, config } = status;
  const running = `running as pid ${pid} for ${ago(uptime * 1000)}, on ${status.listen.join(" and ")}`;
  const findings = [aboutDaemon("ok", "daemon", running, null)];
  if (status.version !== version()) {
    const what = `the daemon is keybearer ${status.version}, this command is keybearer ${version()}`;
    findings.push(aboutDaemon("warning", "version", what, restart));
  }
  if (config.path !== paths.config) {
    const what = `it uses another file, ${config.path}`;
    findings.push(aboutDaemon("warning", "config", what, advice.check(config.path)));
  }
  // Port 0 is any port, and without a config.yaml the sandbox is served on the default one.
  const port = status.sandbox ? 0 : (listen?.port ?? 0);
  if (port !== 0 && !status.listen.some((address) => address.endsWith(`:${port}`))) {
    const what = `config.yaml has port ${port}, which needs a restart`;
    findings.push(aboutDaemon("warning", "port", what, restart));
  }
  return findings;
}

/** What the next start would find. */
async function startFindings(paths: Paths, listen: Listen | null): Promise<Finding[]> {
  const findings: Finding[] = [];
  if (existsSync(paths.socket)) {
    const what = `${paths.socket} was left by a daemon that was killed; the next start removes it`;
    findings.push(aboutDaemon("ok", "socket", what, null));
  }
  const port = listen?.port ?? 0;
  if (port !== 0 && (await isTaken(port))) {
    const by = await describePortOwner(port);
    const next = "stop it, or change listen in config.yaml";
    findings.push(aboutDaemon("problem", "port", `port ${port} is taken by ${by}`, next));
  }
  return findings;
}

/** keybearer needs the port on both addresses. */
export async function isTaken(port: number): Promise<boolean> {
  const answers = await Promise.all(["127.0.0.1", "::1"].map((host) => accepts(host, port)));
  return answers.includes(true);
}

const CONNECT_TIMEOUT_MS = 500;

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: CONNECT_TIMEOUT_MS });
    const end = (isAccepted: boolean) => {
      socket.destroy();
      resolve(isAccepted);
    };
    socket.once("connect", () => end(true));
    socket.once("timeout", () => end(false));
    socket.once("error", () => end(false));
  });
}

/** Whether the service is installed, and whether it would still start. */
export async function serviceFindings(service: ServiceContext): Promise<Finding[]> {
  const { manager } = service;
  if (manager === null) return [];
  const about = "the service";
  const found = await manager.found();
  if (found.kind === "none") {
    const canBeService = (await answeringManager(service)) !== null;
    const next = canBeService ? advice.serviceInstall() : startCommand(service.shellPaths);
    const what = `not installed: you have to start keybearer yourself (${next})`;
    return [{ id: "service", level: "ok", about, what, next: null }];
  }
  const answer = await manager.available();
  if (!answer.ok) {
    const what = `${manager.file} exists, but ${answer.problem}`;
    return [{ id: "service", level: "warning", about, what, next: advice.serviceStatus() }];
  }
  const { notes, state } = await examineService(service, manager);
  if (notes.length === 0)
    return [{ id: "service", level: "ok", about, what: `installed, ${state.description}`, next: null }];
  return notes.map(({ id, grave, what, next }) => {
    return { id: `service-${id}`, level: grave ? "problem" : "warning", about, what, next };
  });
}

/** What only the running daemon knows: failing gateways, limits, the usage log, the mirror and its alarms. */
export function statusFindings(status: Status, now: number): Finding[] {
  const { gateways, tools, usage, consoles = [], key_changes: keyChanges = [] } = status;
  return [
    ...gateways.flatMap((gateway) => failingGateway(gateway, now)),
    ...tools.flatMap((tool) => limitFindings(tool, now)),
    ...keyChanges.map(unfinishedChange),
    ...usageFindings(usage),
    ...consoles.flatMap((console) => consoleFindings(console, now)),
    ...metricsFindings(status.metrics ?? null),
    // A daemon from before an update sends nothing about it.
    ...sharedFindings(status.shared ?? null, now),
    ...notifyFindings(status.notify ?? null),
  ];
}

function unfinishedChange({ tool, why, next }: KeyChangeStatus): Finding {
  const what = `a change of its key is not finished: ${why}`;
  return { id: "key-change", level: "warning", about: `tool ${tool}`, what, next };
}

/** Only a warning, because doctor's own probe finds out whether the gateway answers now. */
function failingGateway(gateway: GatewayStatus, now: number): Finding[] {
  const failing = describeFailing(gateway, now);
  if (failing === null) return [];
  const what = `according to its tools' last requests: ${failing}`;
  return [{ id: "gateway", level: "warning", about: `gateway ${gateway.name}`, what, next: null }];
}

function limitFindings(tool: ToolStatus, now: number): Finding[] {
  const full = usedUpLimit(tool, now);
  if (full === null) return [];
  const { problem: what, next, isFinal } = full;
  // A limit that fills up does its job; a quota stays full until the owner acts.
  return [{ id: "limit", level: isFinal ? "problem" : "warning", about: aboutTool(tool.name), what, next }];
}

function usageFindings(usage: UsageStatus): Finding[] {
  const about = "the usage log";
  const warnings = usage.warnings.map(
    (what): Finding => ({ id: "usage", level: "warning", about, what, next: null }),
  );
  if (usage.state === "ok") {
    const what = `${usage.folder}, ${fileSize(usage.bytes)}`;
    return [{ id: "usage", level: "ok", about, what, next: null }, ...warnings];
  }
  const what = `requests are refused: ${usage.why ?? "it cannot be written"}`;
  return [{ id: "usage", level: "problem", about, what, next: usage.next }, ...warnings];
}

function metricsFindings(metrics: MetricsStatus | null): Finding[] {
  if (metrics === null) return [];
  const about = "the metrics";
  const { address, why } = metrics;
  if (why !== null)
    return [{ id: "metrics", level: "warning", about, what: `they cannot be read: ${why}`, next: null }];
  return [{ id: "metrics", level: "ok", about, what: `they can be read at ${address}`, next: null }];
}

/** These do not end by themselves. */
const OWNER_STATES: readonly ConsoleStatus["state"][] = [
  "login-needed",
  "login-refused",
  "needs-trust",
  "not-a-console",
];

function consoleFindings(console: ConsoleStatus, now: number): Finding[] {
  const about = `mirror ${console.gateway}`;
  const alarms = console.alarms.map((alarm) => alarmFinding(alarm, about, now));
  const problem = consoleProblem(console, now);
  const isQuiet = problem === null || console.state === "syncing" || console.state === "waiting";
  const what = problem?.what ?? `${formatKind(console)}, ${formatLastSync(console, now)}`;
  const level = isQuiet ? "ok" : OWNER_STATES.includes(console.state) ? "problem" : "warning";
  return [...alarms, { id: "mirror", level, about, what, next: problem?.next ?? null }];
}

/** A suspicion is a warning, because the rows may belong to requests of ours. */
function alarmFinding(alarm: Alarm, about: string, now: number): Finding {
  const { certain, reason, gateway } = alarm;
  const doubt = certain || reason === null ? "" : ` (${reason})`;
  return {
    id: "alarm",
    level: certain ? "problem" : "warning",
    about,
    what: `${alarmTitle(alarm)} ${alarmSentence(alarm, now)}${doubt}`,
    next: `${formatRemedy(alarm, now)}; then ${advice.mirrorAck(gateway)}`,
  };
}
