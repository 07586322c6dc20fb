import { Command } from "commander";
import { formatProblems } from "../config/problems.ts";
import { askDaemon } from "../control/client.ts";
import type { Action, DashboardStatus, Status, UsageStatus } from "../control/status.ts";
import { EXIT } from "../core/errors.ts";
import { findPaths } from "../core/paths.ts";
import type { ConsoleStatus } from "../mirror/report/shape.ts";
import { failingInWords, gatewayTable } from "./gateway-lines.ts";
import { alarmInWords, certainFirst } from "./mirror/alarm-words.ts";
import { kindInWords, lastSync, trouble } from "./mirror/headline.ts";
import { toolTable } from "./tools/tool-table.ts";
import { withNote } from "./ui/table.ts";
import { stdoutScreen } from "./ui/terminal.ts";
import { printableLines, wrap } from "./ui/text.ts";
import { ago } from "./ui/units.ts";

export function statusCommand(): Command {
  return new Command("status")
    .description("what the running daemon does, and what needs you")
    .option("--json", "for programs")
    .action(async (options: { json?: boolean }) => {
      const asked = await askDaemon<Status>(findPaths().socket, "GET", "/status");
      if (!asked.ok) {
        process.stderr.write(`${printableLines(asked.reason)}\n`);
        process.exitCode = EXIT.failed;
        return;
      }
      process.stdout.write(
        options.json
          ? `${JSON.stringify(asked.value, null, 2)}\n`
          : inWords(asked.value, Date.now(), stdoutScreen().width),
      );
    });
}

export function inWords(status: Status, now: number, width: number): string {
  // A daemon that was started before an update tells of no consoles.
  const { config, problems, tools, gateways, consoles = [] } = status;
  const lines = [
    ...certainFirst(consoles.flatMap(({ alarms }) => alarms)).flatMap((alarm) => [
      ...alarmInWords(alarm, now, width),
      "",
    ]),
    `keybearer ${status.version}, pid ${status.pid}, up ${ago(status.uptime_s * 1000)}, on ${status.listen.join(" and ")}`,
    status.sandbox
      ? `the sandbox answers; ${config.path} takes over when it is there`
      : `${config.path}, revision ${config.revision}, loaded ${ago(now - config.loaded_at)} ago`,
    "",
    ...gatewayTable(gateways, width),
    "",
    ...withNote(toolTable(tools, now, width)),
  ];
  for (const gateway of gateways) {
    const failing = failingInWords(gateway, now);
    if (failing === null) continue;
    lines.push("", wrap(`gateway ${gateway.name}: ${failing}`, width));
    if (gateway.next !== null) lines.push(wrap(`  → ${gateway.next}`, width));
  }
  for (const tool of tools.filter(({ why }) => why !== null)) {
    const since = tool.refused ? `, for ${ago(now - tool.refused.since)} now` : "";
    lines.push("", wrap(`${tool.name}: ${tool.why}${since}`, width));
    if (tool.refused?.words)
      lines.push(wrap(`  it says: ${tool.refused.words.replace(/\s+/g, " ").slice(0, 160)}`, width));
    if (tool.next !== null) lines.push(wrap(`  → ${tool.next}`, width));
  }
  if (consoles.length > 0)
    lines.push("", ...consoles.flatMap((console) => consoleInWords(console, now, width)));
  lines.push("", ...usageInWords(status.usage, now), ...dashboardInWords(status.dashboard));
  lines.push(...actionsInWords(status.actions, now, width));
  if (problems.length > 0) {
    const bad = problems.some(({ severity }) => severity === "error");
    if (bad) lines.push("", "config.yaml cannot be used as it is; the last good one serves:");
    lines.push("", formatProblems(config.path, problems));
  }
  return `${printableLines(lines.join("\n"))}\n`;
}

/** mirror main  sub2api (detected), last sync 12 s ago */
function consoleInWords(console: ConsoleStatus, now: number, width: number): string[] {
  const problem = trouble(console, now);
  const name = `mirror ${console.gateway}  ${kindInWords(console)}, `;
  if (problem === null) return [`${name}${lastSync(console, now)}`];
  const next = problem.next === null ? [] : [wrap(`  → ${problem.next}`, width)];
  return [wrap(`${name}${problem.what}`, width), ...next];
}

/** undefined: from a daemon before an update. */
function actionsInWords(actions: readonly Action[] | undefined, now: number, width: number): string[] {
  if (actions === undefined || actions.length === 0) return [];
  const lines = actions.map(({ at, what }) => wrap(`  ${ago(now - at)} ago: ${what}`, width));
  return ["", "allowed through the control socket, by you or a program of yours:", ...lines];
}

/** Nothing for one that is closed because nobody asked. undefined: from a daemon before an update. */
function dashboardInWords(dashboard: DashboardStatus | undefined): string[] {
  const { address = null, why = null } = dashboard ?? {};
  if (why !== null) return [`dashboard: not open, and tried again soon. ${why}`];
  return address === null ? [] : [`dashboard: open on ${address} → keybearer open`];
}

function usageInWords(usage: UsageStatus, now: number): string[] {
  const size = `${(usage.bytes / 1e6).toFixed(1)} MB`;
  const lines =
    usage.state === "ok"
      ? [`usage log: ${usage.folder}, ${size}`]
      : [
          `usage log: requests are refused, for ${ago(now - (usage.since ?? now))} now. ${usage.why}`,
          `  → ${usage.next}`,
        ];
  if (usage.waiting > 0) lines.push(`  ${usage.waiting} finished records wait to be written`);
  if (usage.lost > 0) lines.push(`  ${usage.lost} records found no room while the disk said no`);
  if (usage.refusals_not_recorded > 0)
    lines.push(`  ${usage.refusals_not_recorded} refusals were only counted, not recorded`);
  const behind = indexInWords(usage.index);
  if (behind !== null) lines.push(`  ${behind}`);
  for (const words of usage.warnings) lines.push(`  ${words}`);
  return lines;
}

/** null: nothing to say. An index that waits for its next turn is as it should be. */
function indexInWords({ share, rebuilding, waiting_for }: UsageStatus["index"]): string | null {
  if (waiting_for !== null) return `the index waits: ${waiting_for}`;
  return rebuilding ? `the index is being rebuilt: ${Math.floor(share * 100)} %` : null;
}
