#!/usr/bin/env node
import { type Command, CommanderError } from "commander";
import { EXIT } from "../core/errors.ts";
import { framed } from "./frame.ts";
import { runCommand } from "./run.ts";
import { handleOutputErrors } from "./ui/messages.ts";

/** A daemon never needs the other commands, and would wait for them and hold them in memory. */
async function programFor(word: string | undefined): Promise<Command> {
  return word === "run" ? framed([runCommand()]) : (await import("./program.ts")).createProgram();
}

// Without a listener it opens a debugger on a port that every user of this machine can connect to.
process.on("SIGUSR1", () => {});
// With these the yaml package prints what it reads, keys in config.yaml too.
delete process.env.LOG_TOKENS;
delete process.env.LOG_STREAM;
handleOutputErrors();
/** Everything a command prints goes through here, so that nothing else touches the process. */
try {
  const program = await programFor(process.argv[2]);
  await program.parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has said what is wrong; asking for help or the version is no mistake.
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    process.stderr.write(`keybearer: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = EXIT.failed;
  }
}
