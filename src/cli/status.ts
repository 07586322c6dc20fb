import { Command } from "commander";
import { problemsInWords } from "../config/problem.ts";
import { askDaemon } from "../control/client.ts";
import type { Status, ToolStatus } from "../control/status.ts";
import { findPlaces } from "../places.ts";
import { EXIT } from "../start-failure.ts";
import { ago, table, visibleLines } from "./table.ts";

export function statusCommand(): Command {
  return new Command("status")
    .description("what the running daemon does, and what needs you")
    .option("--json", "for programs")
    .action(async (options: { json?: boolean }) => {
      const asked = await askDaemon<Status>(findPlaces().socket, "GET", "/status");
      if (!asked.ok) {
        process.stderr.write(`${visibleLines(asked.reason)}\n`);
        process.exitCode = EXIT.failed;
        return;
      }
      process.stdout.write(
        options.json ? `${JSON.stringify(asked.value, null, 2)}\n` : inWords(asked.value, Date.now()),
      );
    });
}

function inWords(status: Status, now: number): string {
  const { config, problems, tools, gateways } = status;
  const lines = [
    `keybearer ${status.version}, pid ${status.pid}, up ${ago(status.uptime_s * 1000)}, on ${status.listen.join(" and ")}`,
    status.sandbox
      ? `the sandbox answers; ${config.path} takes over when it is there`
      : `${config.path}, revision ${config.revision}, loaded ${ago(now - config.loaded_at)} ago`,
    "",
    table(
      ["gateway", "address", "tools"],
      gateways.map((gateway) => [gateway.name, gateway.base_url, String(gateway.tools)]),
    ),
    "",
    toolTable(tools, now),
  ];
  for (const tool of tools.filter(({ why }) => why !== null)) {
    lines.push(
      "",
      `${tool.name}: ${tool.why}${tool.refused ? `, for ${ago(now - tool.refused.since)} now` : ""}`,
    );
    if (tool.refused?.words)
      lines.push(`  it says: ${tool.refused.words.replace(/\s+/g, " ").slice(0, 160)}`);
    if (tool.next !== null) lines.push(`  → ${tool.next}`);
  }
  if (problems.length > 0) {
    const bad = problems.some(({ severity }) => severity === "error");
    if (bad) lines.push("", "config.yaml cannot be used as it is; the last good one serves:");
    lines.push("", problemsInWords(config.path, problems));
  }
  return `${visibleLines(lines.join("\n"))}\n`;
}

export function toolTable(tools: readonly ToolStatus[], now: number): string {
  return table(
    ["tool", "state", "gateway", "key", "tokens", "last use"],
    tools.map((tool) => [
      tool.name,
      tool.state,
      tool.group === null ? tool.gateway : `${tool.gateway}/${tool.group}`,
      tool.key ?? "-",
      String(tool.tokens),
      tool.last_use === null ? "-" : `${ago(now - tool.last_use)} ago`,
    ]),
  );
}
