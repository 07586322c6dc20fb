#!/usr/bin/env node
import type { Command } from "commander";
import { runCommandLine } from "./command-line.ts";
import { programWith } from "./help/help.ts";
import { runCommand } from "./run.ts";

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
const args = process.argv.slice(2);
await runCommandLine(await programFor(args[0]), args);
