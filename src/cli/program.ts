import { Command } from "commander";
import { version } from "../version.ts";
import { checkCommand } from "./check.ts";
import { completeCommand, completionCommand } from "./completion/command.ts";
import { doctorCommand } from "./doctor/command.ts";
import { withHelp } from "./help/help.ts";
import { initCommand } from "./init/init.ts";
import { keysCommand } from "./keys.ts";
import { mirrorCommand } from "./mirror/command.ts";
import { modelsCommand } from "./models.ts";
import { openCommand } from "./open.ts";
import { runCommand } from "./run.ts";
import { serviceCommand } from "./service/command.ts";
import { statusCommand } from "./status.ts";
import { toolsCommand } from "./tools/command.ts";
import { trustCommand } from "./trust.ts";
import { usageCommand } from "./usage/command.ts";
import { useCommand } from "./use/command.ts";

/** A screen is 24 lines of 80 columns, and commander wraps everything but this. */
const AFTER = `
exit codes: 0 fine, 1 failed, 2 usage, 69 port taken, 75 runs already, 78 config
more: keybearer help <command>. config: $KEYBEARER_HOME or ~/.config/keybearer`;

export function createProgram(): Command {
  const program = new Command("keybearer")
    .description("keeps your model gateway keys in one place; tools call localhost instead")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .addHelpText("after", AFTER)
    .exitOverride()
    // What stands behind a command belongs to it: `usage` and `usage export` have options of the same names.
    .enablePositionalOptions();
  for (const command of [
    initCommand(),
    runCommand(),
    checkCommand(),
    statusCommand(),
    doctorCommand(),
    toolsCommand(),
    useCommand(),
    modelsCommand(),
    keysCommand(),
    trustCommand(),
    usageCommand(),
    mirrorCommand(),
    serviceCommand(),
    openCommand(),
    completionCommand(),
  ]) {
    program.addCommand(command);
  }
  program.addCommand(completeCommand(), { hidden: true });
  return withHelp(program);
}
