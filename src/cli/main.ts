#!/usr/bin/env node
import { CommanderError } from "commander";
import { EXIT } from "../start-failure.ts";
import { outliveReaders } from "./output.ts";
import { createProgram } from "./program.ts";

outliveReaders();
/** Everything a command prints goes through here, so that nothing else touches the process. */
try {
  await createProgram().parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has said what is wrong; asking for help or the version is no mistake.
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    process.stderr.write(`keybearer: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = EXIT.failed;
  }
}
