import { Command } from "commander";
import { type ConfigProblem, formatProblems, warning } from "../config/problems.ts";
import type { Config, Tool } from "../config/schema.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import type { Secret } from "../core/secret.ts";
import { count } from "../usage/reports/format.ts";
import { printJson, printLayout, printText } from "./ui/messages.ts";
import { commandPaths, isOwners, setExitCode, stdio } from "./ui/stdio.ts";
import { printableLines } from "./ui/text.ts";

export function checkCommand(): Command {
  return new Command("check")
    .description("check a config.yaml and name every problem in it")
    .argument("[file]", "use this config.yaml instead of your own")
    .option("--json", "print JSON")
    .action(check);
}

export function configCommand(): Command {
  const config = new Command("config").description("edit config.yaml; it is checked before it is saved");
  config
    .command("edit")
    .description("open config.yaml in $VISUAL, $EDITOR or vi; it is saved once it has no problems")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (options: { config?: string }) => (await import("./config-edit.ts")).edit(options));
  return config;
}

async function check(file: string | undefined, options: { json?: boolean }): Promise<void> {
  // Loaded on demand: the YAML parser would slow down the start of every other command.
  const { loadHere } = await import("./config-here.ts");
  const paths = commandPaths(file);
  const { config, problems: found, overridden } = await loadHere(paths, { strict: true });
  const problems = config === null ? found : [...found, ...(await cautions(config, paths))];
  setExitCode(config === null ? EXIT.badConfig : EXIT.ok);
  if (options.json) return printJson({ ok: config !== null, problems });
  if (problems.length > 0)
    printLayout(`${printableLines(formatProblems(paths.config, problems))}\n`, stdio().stderr);
  if (config !== null) stdio().stdout.write(`${printableLines(summary(paths.config, config))}\n`);
  for (const path of overridden) printText(`${path}: from ${paths.overrides}`);
  if (config === null) {
    const errors = problems.filter(({ severity }) => severity === "error").length;
    stdio().stderr.write(`\n${count(errors, "problem")}\n`);
  }
}

/** Only what a file holds: a keychain or a program may ask the person, and a variable is set where keybearer is started. */
async function cautions(config: Config, paths: Paths): Promise<ConfigProblem[]> {
  const { readKey } = await import("../keys/sources.ts");
  const { configCautions } = await import("../config/cautions.ts");
  const { missingKey } = await import("../proxy/key-health/key-problem.ts");
  const keys = new Map<Tool, Secret>();
  const missing: ConfigProblem[] = [];
  for (const tool of Object.values(config.tools)) {
    const { name, key } = tool;
    // An owner of the system service cannot read its files: the daemon says whether it can.
    if ((key.kind !== "file" && key.kind !== "literal") || isOwners(paths)) continue;
    const read = await readKey(key, { env: stdio().env, home: paths.own, notKeys: paths.notKeys });
    if (read.ok) keys.set(tool, read.key);
    else {
      const { problem, next } = missingKey(tool, { state: "unavailable", ...read });
      missing.push(warning(`tools.${name}.key`, problem, next));
    }
  }
  return [...missing, ...configCautions(config, (tool) => keys.get(tool) ?? null)];
}

const MAX_TOOLS = 50;

function summary(file: string, config: Config): string {
  const gateways = Object.values(config.gateways);
  const tools = Object.values(config.tools);
  const groups = gateways.flatMap((gateway) => Object.keys(gateway.groups));
  const lines = [
    `${file} is fine: ${count(tools.length, "tool")}, ${count(gateways.length, "gateway")}, ${count(groups.length, "group")}`,
  ];
  for (const gateway of gateways) {
    const names = Object.keys(gateway.groups);
    const ending = names.length === 0 ? "" : `  groups ${names.join(", ")}`;
    lines.push(`  gateway ${gateway.name}  ${gateway.baseUrl}${ending}`);
  }
  for (const tool of tools.slice(0, MAX_TOOLS))
    lines.push(`  tool ${tool.name}  ${tool.gateway}${tool.group === null ? "" : `/${tool.group}`}`);
  if (tools.length > MAX_TOOLS) lines.push(`  and ${tools.length - MAX_TOOLS} more tools`);
  return lines.join("\n");
}
