import { Command } from "commander";
import { version } from "../core/version.ts";
import { withHelp } from "./help/help.ts";

/** A screen is 24 lines of 80 columns, and commander wraps everything but this. */
const AFTER = `
exit codes: 0 fine, 1 failed, 2 usage, 69 port taken, 75 runs already, 78 config
more: keybearer help <command>. config: $KEYBEARER_HOME or ~/.config/keybearer`;

/** The program with some of its commands. */
export function framed(commands: readonly Command[], hidden: readonly Command[] = []): Command {
  const program = new Command("keybearer")
    .description("keeps your model gateway keys in one place; tools call localhost instead")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .addHelpText("after", AFTER)
    .exitOverride()
    // What stands behind a command belongs to it: `usage` and `usage export` have options of the same names.
    .enablePositionalOptions();
  for (const command of commands) program.addCommand(command);
  for (const command of hidden) program.addCommand(command, { hidden: true });
  return withHelp(program);
}
