#!/usr/bin/env node
import type { Command } from "commander";
import { EXIT } from "../core/errors.ts";
import { openFilesProblem } from "./open-files.ts";

// Everything else is imported once it is known that there are enough file descriptors to load it.

/** `run` does not load the other commands: the daemon would start later and keep them in memory. */
async function programFor(command: string | undefined): Promise<Command> {
  if (command !== "run") return (await import("./program.ts")).createProgram();
  const { programWith } = await import("./help/help.ts");
  const { runCommand } = await import("./run.ts");
  return programWith([runCommand()]);
}

// Without a listener, SIGUSR1 opens a debugger on a port that every user of this machine can connect to.
process.on("SIGUSR1", () => {});
// With these the yaml package prints what it reads, keys in config.yaml included.
delete process.env.LOG_TOKENS;
delete process.env.LOG_STREAM;
const args = process.argv.slice(2);
const problem = openFilesProblem(args[0]);
if (problem === null) {
  const program = await programFor(args[0]);
  const { runCommandLine } = await import("./command-line.ts");
  await runCommandLine(program, args);
} else {
  process.stderr.write(`keybearer: ${problem}\n`);
  process.exitCode = EXIT.badConfig;
}
