#!/usr/bin/env node
import { type Command, CommanderError } from "commander";
import { EXIT, errorMessage } from "../core/errors.ts";
import { programWith } from "./help/help.ts";
import { runCommand } from "./run.ts";
import { handleOutputErrors } from "./ui/messages.ts";

/** `run` does not load the other commands: the daemon would start later and keep them in memory. */
async function programFor(command: string | undefined): Promise<Command> {
  if (command === "run") return programWith([runCommand()]);
  const { createProgram } = await import("./program.ts");
  return createProgram();
}

// Without a listener, SIGUSR1 opens a debugger on a port that every user of this machine can connect to.
process.on("SIGUSR1", () => {});
// With these the yaml package prints what it reads, keys in config.yaml included.
delete process.env.LOG_TOKENS;
delete process.env.LOG_STREAM;
handleOutputErrors();
try {
  const program = await programFor(process.argv[2]);
  await program.parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has printed the mistake. --help and --version end with an exception, too.
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    process.stderr.write(`keybearer: ${errorMessage(error)}\n`);
    process.exitCode = EXIT.failed;
  }
}
