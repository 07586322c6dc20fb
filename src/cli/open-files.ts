import { closeSync, openSync } from "node:fs";
import { advice } from "../core/advice.ts";
import { hasCode } from "../core/errors.ts";

/** An idle daemon has 32 files open and each request two more; 64 are too few to load its modules. */
const FOR_RUN = 128;
/** The commands need up to 48, most of them while their modules are loaded. */
const FOR_COMMANDS = 64;

/**
 * Why the limit of open files is too low for this command; null: it is not. Node has raised the soft limit to the hard one by
 * now, and has no way to ask for it, so it is tried. Imported before everything else, which could not be loaded otherwise.
 */
export function openFilesProblem(command: string | undefined): string | null {
  const needed = command === "run" ? FOR_RUN : FOR_COMMANDS;
  const limit = findLimit(needed);
  if (limit === null) return null;
  const name = command === "run" ? advice.run() : "keybearer";
  return `the limit of open files is ${limit} (ulimit -Hn), and ${name} needs ${needed} → start it where the limit is at least 1024: in a new shell, with LimitNOFILE=1024 in a systemd unit, or with docker run --ulimit nofile=1024`;
}

/** null: it is at least this. The system gives the lowest free number, so the last one that it gives is the limit less one. */
function findLimit(needed: number): number | null {
  const opened: number[] = [];
  try {
    while ((opened.at(-1) ?? 0) < needed - 1) opened.push(openSync("/dev/null", "r"));
    return null;
  } catch (error) {
    // Whatever else is wrong with /dev/null shows where it is needed.
    return hasCode(error, "EMFILE") ? (opened.at(-1) ?? -1) + 1 : null;
  } finally {
    for (const descriptor of opened) closeSync(descriptor);
  }
}
