import type { Command } from "commander";
import { checkCommand, configCommand } from "./check.ts";
import { completeCommand, completionCommand } from "./completion/command.ts";
import { doctorCommand } from "./doctor/command.ts";
import { gatewaysCommand } from "./gateways/command.ts";
import { programWith } from "./help/help.ts";
import { initCommand } from "./init/init.ts";
import { keysCommand } from "./keys.ts";
import { mirrorCommand } from "./mirror/command.ts";
import { modelsCommand } from "./models.ts";
import { openCommand } from "./open.ts";
import { runCommand } from "./run.ts";
import { logsCommand, serviceCommand } from "./service/command.ts";
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
    stopCommand(),
    checkCommand(),
    configCommand(),
    statusCommand(),
    doctorCommand(),
    toolsCommand(),
    gatewaysCommand(),
    useCommand(),
    modelsCommand(),
    keysCommand(),
    trustCommand(),
    usageCommand(),
    mirrorCommand(),
    serviceCommand(),
    logsCommand(),
    openCommand(),
    completionCommand(),
  ];
  return programWith(commands, [completeCommand()]);
}
