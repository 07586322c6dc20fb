import { Command } from "commander";
import type { add, list } from "./gateways.ts";

export function gatewaysCommand(): Command {
  const gateways = new Command("gateways").description("list the gateways, or add one");
  gateways
    .command("list", { isDefault: true })
    .description("every gateway with its address, groups, console and tools")
    .option("--json", "for programs")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .action(async (...given: Parameters<typeof list>) => (await import("./gateways.ts")).list(...given));
  gateways
    .command("add")
    .description("add a gateway to config.yaml, and show the difference")
    .argument("<name>", "such as work")
    .argument("<url>", "its base URL, which ends in /v1")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .action(async (...given: Parameters<typeof add>) => (await import("./gateways.ts")).add(...given));
  return gateways;
}
