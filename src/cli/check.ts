import { Command } from "commander";
import { formatProblems } from "../config/problems.ts";
import type { Config } from "../config/schema.ts";
import { EXIT } from "../core/errors.ts";
import { findPaths } from "../core/paths.ts";
import { printableLines } from "./ui/text.ts";

export function checkCommand(): Command {
  return new Command("check")
    .description("check a config.yaml and name every problem in it")
    .argument("[file]", "another file than your own config.yaml")
    .option("--json", "for programs")
    .action(async (file: string | undefined, options: { json?: boolean }) => {
      // Here and not above: reading YAML is a good part of the time that other commands take.
      const { loadConfig } = await import("../config/load.ts");
      const paths = findPaths({ config: file });
      const { config, problems } = await loadConfig(paths.config, {
        home: paths.home,
        strict: file === undefined,
      });
      if (options.json) {
        process.stdout.write(`${JSON.stringify({ ok: config !== null, problems }, null, 2)}\n`);
      } else {
        const words = formatProblems(paths.config, problems);
        if (words !== "") process.stderr.write(`${printableLines(words)}\n`);
        if (config !== null) process.stdout.write(`${printableLines(summary(paths.config, config))}\n`);
        else
          process.stderr.write(
            `\n${count(problems.filter((p) => p.severity === "error").length, "problem")}\n`,
          );
      }
      process.exitCode = config === null ? EXIT.badConfig : EXIT.ok;
    });
}

function summary(file: string, config: Config): string {
  const gateways = Object.values(config.gateways);
  const groups = gateways.reduce((sum, gateway) => sum + Object.keys(gateway.groups).length, 0);
  const tools = Object.values(config.tools);
  const lines = [
    `${file} is fine: ${count(tools.length, "tool")}, ${count(gateways.length, "gateway")}, ${count(groups, "group")}`,
    ...gateways.map((gateway) => {
      const names = Object.keys(gateway.groups);
      return `  gateway ${gateway.name}  ${gateway.baseUrl}${names.length > 0 ? `  groups ${names.join(", ")}` : ""}`;
    }),
    ...tools
      .slice(0, 50)
      .map((tool) => `  tool ${tool.name}  ${tool.gateway}${tool.group === null ? "" : `/${tool.group}`}`),
  ];
  if (tools.length > 50) lines.push(`  and ${tools.length - 50} more tools`);
  return lines.join("\n");
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
