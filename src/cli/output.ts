import { EXIT, errorMessage } from "../core/errors.ts";
import { fail } from "./fail.ts";

/**
 * A reader that has seen enough (`| head`) is no mistake: without this, node ends the program with a stack trace, and
 * in the middle of what it does. It goes on to its end, without a word. Output that cannot be written for another
 * reason (`> file` on a full disk) is said once.
 */
export function outliveReaders(): void {
  let told = false;
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE" || told) return;
    told = true;
    fail(`the output cannot be written: ${errorMessage(error)} → write it somewhere else`, EXIT.failed);
  });
  // There is nobody left to tell.
  process.stderr.on("error", () => {});
}

/** For a command that does nothing but print, on top of that: it has nothing left to do. */
export function endWithOutput(): void {
  process.stdout.on("error", () => process.exit());
}
