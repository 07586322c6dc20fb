import { Command } from "commander";
import { version } from "../version.ts";
import { checkCommand } from "./check.ts";
import { keysCommand } from "./keys.ts";
import { mirrorCommand } from "./mirror/command.ts";
import { runCommand } from "./run.ts";
import { statusCommand } from "./status.ts";
import { toolsCommand } from "./tools/command.ts";
import { trustCommand } from "./trust.ts";
import { usageCommand } from "./usage/command.ts";

/** A screen is 24 lines of 80 columns, and commander wraps everything but this. */
const AFTER = `
exit codes: 0 fine, 1 failed, 2 wrong usage, 69 port taken, 75 already running,
            78 bad configuration
config.yaml: $KEYBEARER_HOME/config.yaml, else ~/.config/keybearer/config.yaml`;

export function createProgram(): Command {
  const program = new Command("keybearer")
    .description("keeps your model gateway keys in one place; tools call localhost instead")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print help for a command")
    .addHelpText("after", AFTER)
    .exitOverride()
    // What stands behind a command belongs to it: `usage` and `usage export` have options of the same names.
    .enablePositionalOptions()
    .configureHelp({ showGlobalOptions: true });
  for (const command of [
    runCommand(),
    checkCommand(),
    statusCommand(),
    toolsCommand(),
    keysCommand(),
    trustCommand(),
    usageCommand(),
    mirrorCommand(),
  ]) {
    program.addCommand(inherit(command));
  }
  return program;
}

function inherit(command: Command): Command {
  command.exitOverride();
  for (const inner of command.commands) inherit(inner);
  return command;
}
