import { type Command, CommanderError } from "commander";
import { EXIT, errorMessage } from "../core/errors.ts";
import { handleOutputErrors } from "./ui/messages.ts";
import { setExitCode, stdio } from "./ui/stdio.ts";

/** Runs what was typed, and sets the exit code. */
export async function runCommandLine(program: Command, args: readonly string[]): Promise<void> {
  handleOutputErrors();
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) {
      // Commander has printed the mistake. --help and --version end with an exception, too.
      setExitCode(error.exitCode === 0 ? EXIT.ok : EXIT.usage);
    } else {
      stdio().stderr.write(`keybearer: ${errorMessage(error)}\n`);
      setExitCode(EXIT.failed);
    }
  }
}
