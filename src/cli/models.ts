import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import { exactDollars } from "../core/units.ts";
import type { FailingName, ListedModel, ToolModels } from "../doctor/models.ts";
import { count } from "../usage/reports/format.ts";
import { fail, formatNote, type Note, printJson, printLayout } from "./ui/messages.ts";
import { commandPaths, setExitCode } from "./ui/stdio.ts";
import { columnsFor, renderTable } from "./ui/table.ts";
import { type Screen, stdoutScreen } from "./ui/terminal.ts";
import { printable, wrap } from "./ui/text.ts";
import { formatFactor, joinNames } from "./ui/units.ts";

/** The daemon takes up to 16 s for all gateways together. */
const TIMEOUT_MS = 20_000;

export function modelsCommand(): Command {
  return new Command("models")
    .description("list the models that each tool can use, and model names that fail")
    .option("--tool <name>", "only the models of this tool")
    .option("--json", "print JSON")
    .action(models);
}

async function models(options: { tool?: string; json?: boolean }): Promise<void> {
  const path = options.tool === undefined ? "/models" : `/models/${encodeURIComponent(options.tool)}`;
  const asked = await askDaemon<ToolModels[]>(commandPaths(), "GET", path, undefined, TIMEOUT_MS);
  if (!asked.ok) return fail(asked, EXIT.failed);
  if (options.json) printJson(asked.value);
  else printLayout(formatModels(asked.value, stdoutScreen()));
  if (asked.value.every(({ problem }) => problem !== null)) setExitCode(EXIT.failed);
}

/** Tools that see the same models share one list: it may have a hundred lines. */
export function formatModels(tools: readonly ToolModels[], { width }: Screen): string {
  if (tools.length === 0) return `no tool is enabled → ${advice.tools()}\n`;
  const groups = new Map<string, ToolModels[]>();
  for (const tool of tools) {
    const { gateway, group, models, problem, failing } = tool;
    const content = JSON.stringify([gateway, group, models, problem, failing]);
    groups.set(content, [...(groups.get(content) ?? []), tool]);
  }
  return `${[...groups.values()].map((same) => formatGroup(same, width)).join("\n\n")}\n`;
}

function formatGroup(same: readonly ToolModels[], width: number): string {
  const [first] = same;
  if (first === undefined) return "";
  const { gateway, group, multiplier, problem, models, failing } = first;
  const names = joinNames(same.map(({ tool, key }) => (key === null ? tool : `${tool} (key ${key})`)));
  const source = group === null ? `gateway ${gateway}` : `gateway ${gateway}, group ${group}`;
  const factor = multiplier === 1 ? "" : `, prices ${formatFactor(multiplier)}`;
  const lines = [wrap(printable(`${names}: ${source}${factor}`), width)];
  if (problem !== null)
    return [...lines, formatNote({ what: problem.why, next: problem.next }, width)].join("\n");
  lines.push(models.length === 0 ? "the list is empty" : modelTable(models, multiplier, width));
  if (failing.length > 0)
    lines.push(
      "",
      "names that are not in this list:",
      ...failing.map((name) => formatNote(failingNote(name), width)),
    );
  return lines.join("\n");
}

function modelTable(models: readonly ListedModel[], multiplier: number, width: number): string {
  const price = (amount: number | null) => (amount === null ? "-" : exactDollars(amount * multiplier));
  const { text, number } = columnsFor(models);
  const columns = [
    text("model", 0, ({ id }) => id),
    number("input/M", 2, ({ input_microdollars: input }) => price(input)),
    number("output/M", 3, ({ output_microdollars: output }) => price(output)),
  ];
  if (models.some(({ in_group }) => !in_group))
    columns.push(text("", 1, ({ in_group }) => (in_group ? "" : "not in group: refused here")));
  return renderTable(columns, width);
}

function failingNote({ name, requests, answered, in_config, instead }: FailingName): Note {
  const facts = [
    ...(in_config ? ["model: in config.yaml"] : []),
    ...(requests > 0 ? [`${count(requests, "request")} in 30 days, ${answered} answered`] : []),
  ];
  const next = instead.length === 0 ? null : instead.join(", ");
  return { what: `${name}${facts.length === 0 ? "" : ` (${facts.join("; ")})`}`, next };
}
