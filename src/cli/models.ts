import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import { EXIT } from "../core/errors.ts";
import { findPaths } from "../core/paths.ts";
import type { FailingName, ListedModel, ToolModels } from "../doctor/models.ts";
import { count } from "../usage/reports/format.ts";
import { fail, formatNote } from "./ui/messages.ts";
import { type Column, renderTable } from "./ui/table.ts";
import { type Screen, stdoutScreen } from "./ui/terminal.ts";
import { printable, wrap } from "./ui/text.ts";
import { formatFactor, joinNames, money } from "./ui/units.ts";

/** The daemon gives itself 16 s for all gateways together. */
const PATIENCE_MS = 20_000;

export function modelsCommand(): Command {
  return new Command("models")
    .description("the gateway's models as a tool sees them, and names that fail")
    .option("--tool <name>", "only this tool's")
    .option("--json", "for programs")
    .action(models);
}

async function models(options: { tool?: string; json?: boolean }): Promise<void> {
  const path = options.tool === undefined ? "/models" : `/models/${encodeURIComponent(options.tool)}`;
  const asked = await askDaemon<ToolModels[]>(findPaths().socket, "GET", path, undefined, PATIENCE_MS);
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  process.stdout.write(
    options.json ? `${JSON.stringify(asked.value, null, 2)}\n` : modelsInWords(asked.value, stdoutScreen()),
  );
  if (asked.value.every(({ problem }) => problem !== null)) process.exitCode = EXIT.failed;
}

/** Tools that see the same stand together: one list of a hundred models is enough. */
export function modelsInWords(tools: readonly ToolModels[], { width }: Screen): string {
  if (tools.length === 0) return "no tool is enabled → keybearer tools\n";
  const kinds = [...new Set(tools.map(sameness))];
  const parts = kinds.map((kind) => tools.filter((tool) => sameness(tool) === kind));
  return `${parts.map((same) => partInWords(same, width)).join("\n\n")}\n`;
}

/** Whatever is printed below the names of the tools. */
function sameness({ gateway, group, models, problem, failing }: ToolModels): string {
  return JSON.stringify([gateway, group, models, problem, failing]);
}

function partInWords(same: readonly ToolModels[], width: number): string {
  const [first] = same;
  if (first === undefined) return "";
  const { gateway, group, multiplier, problem, models } = first;
  const names = joinNames(same.map(({ tool, key }) => (key === null ? tool : `${tool} (key ${key})`)));
  const of = group === null ? `gateway ${gateway}` : `gateway ${gateway}, group ${group}`;
  const times = multiplier === 1 ? "" : `, prices ${formatFactor(multiplier)}`;
  const lines = [wrap(printable(`${names}: ${of}${times}`), width)];
  if (problem !== null)
    return [...lines, formatNote({ what: problem.why, next: problem.next }, width)].join("\n");
  lines.push(models.length === 0 ? "the list is empty" : modelTable(models, multiplier, width));
  return [...lines, ...failingLines(first, width)].join("\n");
}

function modelTable(models: readonly ListedModel[], multiplier: number, width: number): string {
  const price = (amount: number | null) => (amount === null ? "-" : money(amount * multiplier));
  const column = (
    head: string,
    dropOrder: number,
    cell: (model: ListedModel) => string,
    right = false,
  ): Column => ({
    head,
    cells: models.map(cell),
    dropOrder,
    right,
  });
  return renderTable(
    [
      column("model", 0, ({ id }) => id),
      column("input/M", 2, ({ input_microdollars: input }) => price(input), true),
      column("output/M", 3, ({ output_microdollars: output }) => price(output), true),
      ...(models.every(({ in_group }) => in_group)
        ? []
        : [column("", 1, ({ in_group }) => (in_group ? "" : "not in group: refused here"))]),
    ],
    width,
  );
}

function failingLines({ failing }: ToolModels, width: number): string[] {
  if (failing.length === 0) return [];
  const lines = failing.map((name) => formatNote(failingNote(name), width));
  return ["", "names that are not in this list:", ...lines];
}

function failingNote({ name, requests, answered, in_config, instead }: FailingName) {
  const facts = [
    ...(in_config ? ["model: in config.yaml"] : []),
    ...(requests > 0 ? [`${count(requests, "request")} in 30 days, ${answered} answered`] : []),
  ];
  const next = instead.length === 0 ? null : instead.join(", ");
  return { what: `${name}${facts.length === 0 ? "" : ` (${facts.join("; ")})`}`, next };
}
