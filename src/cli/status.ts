import { Command } from "commander";
import { formatProblems } from "../config/problems.ts";
import { askDaemon } from "../control/client.ts";
import { type ShownGatewayState, shownGatewayState } from "../control/gateway-state.ts";
import type {
  Action,
  DashboardStatus,
  GatewayStatus,
  KeyChangeStatus,
  MetricsStatus,
  Status,
  UsageStatus,
} from "../control/status.ts";
import type { ToolStatus } from "../control/tool-status.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import { exact } from "../core/units.ts";
import type { ListedEvent } from "../events/event.ts";
import type { ConsoleStatus } from "../mirror/report/shape.ts";
import { holdsInWords, type SharedMachine, type SharedStatus, sharedProblems } from "../shared/status.ts";
import { count } from "../usage/reports/format.ts";
import { alarmLines, certainFirst, consoleProblem, formatKind, formatLastSync } from "./mirror/messages.ts";
import { notifyLines } from "./notify/messages.ts";
import { printSources } from "./sources.ts";
import { toolTable } from "./tools/list.ts";
import { fail, formatNote, printJson, printLayout } from "./ui/messages.ts";
import { commandPaths } from "./ui/stdio.ts";
import { columnsFor, layoutTable, type Table, withNote } from "./ui/table.ts";
import { stdoutScreen } from "./ui/terminal.ts";
import { printable, printableLines, truncate, wrap } from "./ui/text.ts";
import { ago, fileSize, timeOfDay } from "./ui/units.ts";

export function statusCommand(): Command {
  return new Command("status")
    .description("what the daemon is doing, and what needs your attention")
    .option("--json", "print JSON")
    .action(status);
}

async function status(options: { json?: boolean }): Promise<void> {
  const paths = commandPaths();
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (!asked.ok) return fail(asked, EXIT.failed);
  if (options.json) printJson(asked.value);
  else printLayout(formatStatus(asked.value, Date.now(), stdoutScreen().width));
  if (paths.mode === "system" && options.json !== true) await printSources(paths);
}

export function formatStatus(status: Status, now: number, width: number): string {
  // A daemon from before an update sends no consoles, no changes of keys and nothing about a shared store or alerts.
  const { config, problems, tools, gateways, consoles = [], key_changes: keyChanges = [] } = status;
  const { shared = null, notify = null, events = [] } = status;
  const alarms = certainFirst(consoles.flatMap((console) => console.alarms));
  const lines = [
    ...alarms.flatMap((alarm) => [...alarmLines(alarm, now, width), ""]),
    wrap(
      `keybearer ${status.version}, pid ${status.pid}, up ${ago(status.uptime_s * 1000)}, on ${status.listen.join(" and ")}`,
      width,
    ),
    status.sandbox
      ? wrap(`the sandbox answers; ${config.path} takes over when you create it`, width)
      : wrap(`${config.path}, revision ${config.revision}, loaded ${ago(now - config.loaded_at)} ago`, width),
    "",
    ...withNote(gatewayTable(gateways, now - status.uptime_s * 1000, width)),
    "",
    ...withNote(toolTable(tools, now, width)),
    ...gateways.flatMap((gateway) => gatewayProblem(gateway, now, width)),
    ...tools.flatMap((tool) => toolProblem(tool, now, width)),
    ...tools.flatMap((tool) => otherModelLines(tool, width)),
    ...keyChanges.flatMap((change) => ["", keyChange(change, width)]),
  ];
  if (consoles.length > 0) lines.push("", ...consoles.map((console) => formatConsole(console, now, width)));
  if (shared !== null) lines.push("", ...formatShared(shared, now, width));
  if (notify !== null) lines.push("", ...notifyLines(notify, now, width));
  lines.push("", ...usageLines(status.usage, now, width), ...dashboardLines(status.dashboard, width));
  lines.push(...metricsLines(status.metrics, width));
  lines.push(...eventLines(events, now, width), ...actionLines(status.actions, now, width));
  if (problems.length > 0) {
    if (problems.some(({ severity }) => severity === "error"))
      lines.push("", "config.yaml has problems; keybearer keeps using the last valid version:");
    lines.push("", formatProblems(config.path, problems));
  }
  return `${printableLines(lines.join("\n"))}\n`;
}

function gatewayTable(gateways: readonly GatewayStatus[], startedAt: number, width: number): Table {
  const { text } = columnsFor(gateways);
  const columns = [
    text("gateway", 0, ({ name }) => name),
    text("state", 0, (gateway) => gatewayState(gateway, startedAt)),
    text("tools", 1, ({ tools }) => String(tools)),
    text("address", 0, ({ base_url }) => base_url),
  ];
  return layoutTable(columns, width);
}

const GATEWAY_STATES: Readonly<Record<ShownGatewayState, string>> = {
  unknown: "no answer yet",
  reachable: "reachable",
  failing: "failing",
  "no-request": "no request yet",
  "no-request-today": "no request today",
  "requests-today": "{requests} today",
  "none-since-start": "{n} today, none since start",
};

/** A daemon from before an update sends no state, or nothing of the usage log. */
function gatewayState({ state = "unknown", before = null }: GatewayStatus, startedAt: number): string {
  const text = GATEWAY_STATES[shownGatewayState({ state, before }, startedAt)];
  const today = before?.requests_today ?? 0;
  return text.replace("{n}", exact(today)).replace("{requests}", count(today, "request"));
}

function gatewayProblem(gateway: GatewayStatus, now: number, width: number): string[] {
  const failing = describeFailing(gateway, now);
  if (failing === null) return [];
  return ["", formatNote({ what: `gateway ${gateway.name}: ${failing}`, next: gateway.next }, width)];
}

/** failing since 14:02 (180 requests): nothing listens there (ECONNREFUSED). null: it does not fail. */
export function describeFailing({ state, since, failures, why }: GatewayStatus, now: number): string | null {
  if (state !== "failing") return null;
  const which = failures === 0 ? "no request has failed yet" : count(failures, "request");
  return `failing since ${timeOfDay(since ?? now, now)} (${which}): ${why}`;
}

function toolProblem(tool: ToolStatus, now: number, width: number): string[] {
  const { name, why, next, refused } = tool;
  if (why === null) return [];
  const since = refused ? `, for ${ago(now - refused.since)} now` : "";
  const lines = ["", wrap(`${name}: ${why}${since}`, width)];
  if (refused?.words)
    lines.push(wrap(`  it says: ${refused.words.replace(/\s+/g, " ").slice(0, 160)}`, width));
  if (next !== null) lines.push(wrap(`  → ${next}`, width));
  return lines;
}

/** codex: 12 of 340 since the start were answered by another model: gpt-5.1 → gpt-5.1-mini */
function otherModelLines({ name, models_answered: models = null }: ToolStatus, width: number): string[] {
  const first = models?.pairs[0];
  if (models === null || first === undefined) return [];
  const { answered, other, pairs } = models;
  const more = pairs.length > 1 ? ` and ${count(pairs.length - 1, "other pair")}` : "";
  const were = other === 1 ? "was" : "were";
  const what = `${name}: ${exact(other)} of ${exact(answered)} since the start ${were} answered by another model: ${first.asked} → ${first.answered}${more}`;
  const next = `if it is the same model: ${advice.acknowledgeModel(first.asked, first.answered)}`;
  return ["", formatNote({ what, next }, width)];
}

function keyChange({ tool, why, next }: KeyChangeStatus, width: number): string {
  const what = `${tool}: the change of its key is not finished, and is tried again every minute: ${why}`;
  return formatNote({ what, next }, width);
}

/** mirror main  sub2api (detected), last sync 12 s ago */
function formatConsole(console: ConsoleStatus, now: number, width: number): string {
  const problem = consoleProblem(console, now);
  const name = `mirror ${console.gateway}  ${formatKind(console)}, `;
  if (problem === null) return wrap(`${name}${formatLastSync(console, now)}`, width);
  return formatNote({ what: `${name}${problem.what}`, next: problem.next }, width);
}

/** shared: rediss://valkey.example.net:6379, connected, 3 machines. Then each machine, and what is wrong. */
function formatShared(shared: SharedStatus, now: number, width: number): string[] {
  const { address, state, problem, next, machines } = shared;
  const cause = problem === null ? "" : `: ${problem}`;
  const known = state === "connected" ? `, ${count(machines.length, "machine")}` : "";
  const unsigned = machines.filter(({ signature }) => signature === "missing" || signature === "wrong");
  const names = unsigned.map(({ name }) => name).join(", ");
  const signing = names === "" ? "" : `, without a valid signature: ${names}`;
  const remedy = next ?? (names === "" ? null : advice.doctor());
  const lines = [
    formatNote({ what: `shared: ${address}, ${state}${known}${signing}${cause}`, next: remedy }, width),
  ];
  if (state === "connected") lines.push(...machines.map((machine) => machineLine(machine, now, width)));
  for (const found of sharedProblems(shared, now))
    lines.push(formatNote({ what: `  ${found.problem}`, next: found.next }, width));
  return lines;
}

/** desktop: last contact 4 s ago, holds codex requests/day 12. A daemon from before an update sends no holds. */
function machineLine(
  { name, self, stopped, lost, last_contact, holds = [] }: SharedMachine,
  now: number,
  width: number,
): string {
  const contact = `${stopped ? "stopped" : "last contact"} ${ago(Math.max(0, now - last_contact))} ago`;
  const parts = [
    self ? "this machine" : contact,
    lost ? "lost" : null,
    holds.length === 0 ? "holds nothing" : `holds ${holdsInWords(holds)}`,
  ];
  return wrap(`  ${name}: ${parts.filter((part) => part !== null).join(", ")}`, width);
}

/** What was reported and lasts, each on one line. */
function eventLines(events: readonly ListedEvent[], now: number, width: number): string[] {
  if (events.length === 0) return [];
  const lines = events.map(({ at, message, muted }) => {
    const mark = muted ? " (muted)" : "";
    return truncate(printable(`  since ${timeOfDay(at, now)}${mark}: ${message}`), width);
  });
  return ["", `reported, and still so (${advice.events()}):`, ...lines];
}

/** undefined: from a daemon before an update. */
function actionLines(actions: readonly Action[] | undefined, now: number, width: number): string[] {
  if (actions === undefined || actions.length === 0) return [];
  const lines = actions.map(({ at, what }) => wrap(`  ${ago(now - at)} ago: ${what}`, width));
  return ["", "allowed through the control socket, by you or a program of yours:", ...lines];
}

/** Nothing for a dashboard that was not asked for. undefined: from a daemon before an update. */
function dashboardLines(dashboard: DashboardStatus | undefined, width: number): string[] {
  const { address = null, why = null } = dashboard ?? {};
  if (why !== null) return [wrap(`dashboard: not open; keybearer tries again soon. ${why}`, width)];
  if (address === null) return [];
  return [formatNote({ what: `dashboard: open on ${address}`, next: advice.open() }, width)];
}

/** Nothing while they are off. undefined: from a daemon before an update. */
function metricsLines(metrics: MetricsStatus | null | undefined, width: number): string[] {
  const { address = null, why = null } = metrics ?? {};
  if (why !== null) return [wrap(`metrics: not open; keybearer tries again soon. ${why}`, width)];
  return address === null ? [] : [wrap(`metrics: ${address}`, width)];
}

function usageLines(usage: UsageStatus, now: number, width: number): string[] {
  const lines: string[] = [];
  if (usage.state === "ok") lines.push(`usage log: ${usage.folder}, ${fileSize(usage.bytes)}`);
  else
    lines.push(
      `usage log: requests are refused, for ${ago(now - (usage.since ?? now))} now. ${usage.why}`,
      `  → ${usage.next}`,
    );
  if (usage.waiting > 0) lines.push(`  ${usage.waiting} finished records wait to be written`);
  if (usage.lost > 0) lines.push(`  ${usage.lost} records were lost while the disk was full`);
  if (usage.refusals_not_recorded > 0)
    lines.push(`  ${usage.refusals_not_recorded} refusals were not recorded while the disk was full`);
  const { share, rebuilding, waiting_for } = usage.index;
  if (waiting_for !== null) lines.push(`  the index waits: ${waiting_for}`);
  else if (rebuilding) lines.push(`  the index is being rebuilt: ${Math.floor(share * 100)} %`);
  for (const warning of usage.warnings) lines.push(`  ${warning}`);
  return lines.map((line) => wrap(line, width));
}
