import { Command } from "commander";
import { adoptCommand } from "./adopt/command.ts";
import { checkCommand, configCommand } from "./check.ts";
import { completeCommand, completionCommand } from "./completion/completion.ts";
import { confirmCommand } from "./confirm.ts";
import { doctorCommand } from "./doctor/command.ts";
import { eventsCommand } from "./events/command.ts";
import type { add, list } from "./gateways.ts";
import { programWith } from "./help/help.ts";
import type { init } from "./init.ts";
import { keysCommand } from "./keys.ts";
import { metricsCommand } from "./metrics/command.ts";
import { mirrorCommand } from "./mirror/command.ts";
import { modelsCommand } from "./models.ts";
import { notifyCommand } from "./notify/command.ts";
import { openCommand } from "./open.ts";
import { runCommand } from "./run.ts";
import { handOverCommand, logsCommand, serviceCommand } from "./service/command.ts";
import { sessionsCommand } from "./sessions/command.ts";
import type { start } from "./start.ts";
import { statusCommand } from "./status.ts";
import { stopCommand } from "./stop.ts";
import { toolsCommand } from "./tools/command.ts";
import { trustCommand } from "./trust.ts";
import { usageCommand } from "./usage/command.ts";
import { useCommand } from "./use/command.ts";

export function createProgram(): Command {
  const commands = [
    initCommand(),
    runCommand(),
    startCommand(),
    stopCommand(),
    checkCommand(),
    configCommand(),
    statusCommand(),
    doctorCommand(),
    toolsCommand(),
    gatewaysCommand(),
    useCommand(),
    adoptCommand(),
    modelsCommand(),
    keysCommand(),
    trustCommand(),
    usageCommand(),
    sessionsCommand(),
    eventsCommand(),
    mirrorCommand(),
    notifyCommand(),
    metricsCommand(),
    serviceCommand(),
    logsCommand(),
    openCommand(),
    confirmCommand(),
    completionCommand(),
  ];
  return programWith(commands, [completeCommand(), handOverCommand(), copyIndexCommand()]);
}

/** The daemon of a system service starts it: nobody types it. */
function copyIndexCommand(): Command {
  return new Command("__copy-index")
    .argument("<file>")
    .argument("<copy>")
    .action(async (file: string, copy: string) =>
      (await import("./usage/index-file.ts")).copyIndex(file, copy),
    );
}

function startCommand(): Command {
  return new Command("start")
    .description("start the installed service, else in the background; returns once it serves")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (...given: Parameters<typeof start>) => (await import("./start.ts")).start(...given));
}

const INIT_AFTER = `
without a terminal, everything is named, and the key is piped in:
  keybearer init --gateway https://gateway.example.com/v1 --tool codex \\
    --budget 10 --key-stdin < key.txt
it never overwrites a config.yaml: run again, it continues where it stopped`;

function initCommand(): Command {
  return new Command("init")
    .summary("make a config.yaml: gateway, first tool, its key")
    .description("make a config.yaml with your gateway, a first tool and its key, and try the key")
    .option("--gateway <url>", "its base URL, which ends in /v1")
    .option("--tool <name>", "the first tool's name")
    .option("--key-stdin", "read the key from stdin instead of asking for it")
    .option("--store <place>", "keychain or file; default: keychain, if there is one")
    .option("--budget <dollars>", "dollars that the tool may spend in a day, or none")
    .option("-y, --yes", "use defaults instead of asking, and set up nothing else")
    .option("--no-probe", "do not try the key at the gateway")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .addHelpText("after", INIT_AFTER)
    .action(async (...given: Parameters<typeof init>) => (await import("./init.ts")).init(...given));
}

function gatewaysCommand(): Command {
  const gateways = new Command("gateways").description("list the gateways, or add one");
  gateways
    .command("list", { isDefault: true })
    .description("every gateway with its address, groups, console and tools")
    .option("--json", "print JSON")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (...given: Parameters<typeof list>) => (await import("./gateways.ts")).list(...given));
  gateways
    .command("add")
    .description("add a gateway to config.yaml, and show the difference")
    .argument("<name>", "such as work")
    .argument("<url>", "its base URL, which ends in /v1")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (...given: Parameters<typeof add>) => (await import("./gateways.ts")).add(...given));
  return gateways;
}
