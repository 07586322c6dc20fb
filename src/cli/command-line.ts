import { type Command, CommanderError } from "commander";
import { typedCommand } from "../control/client.ts";
import { REACH } from "../control/reach.ts";
import { advice } from "../core/advice.ts";
import { typeable } from "../core/command-name.ts";
import { EXIT, errorMessage } from "../core/errors.ts";
import type { Mode } from "../core/paths.ts";
import { handleOutputErrors } from "./ui/messages.ts";
import { commandPaths, isOwners, setExitCode, stdio, withMode } from "./ui/stdio.ts";

/** Runs what was typed, and sets the exit code. */
export async function runCommandLine(program: Command, args: readonly string[]): Promise<void> {
  handleOutputErrors();
  try {
    const { mode, rest } = readMode(args);
    program.hook("preAction", (_program, command) => requireRoot(command));
    const parse = () => program.parseAsync(rest, { from: "user" });
    if (rest[0] === "run") {
      // In an asynchronous context each promise takes 0.2 µs longer (0.07 without), and every request makes some.
      program.setOptionValue("mode", mode);
      await parse();
    } else await withMode(mode, parse);
  } catch (error) {
    if (error instanceof CommanderError) {
      // Commander has printed the mistake. --help and --version end with an exception, too.
      setExitCode(error.exitCode === 0 ? EXIT.ok : EXIT.usage);
    } else {
      stdio().stderr.write(`keybearer: ${typeable(errorMessage(error))}\n`);
      setExitCode(EXIT.failed);
    }
  }
}

/** Tokens of their own tools are for owners to make. */
const FOR_OWNERS = ["tools token", "use"];

/** Throws if an owner of the system service typed what only root may do. The daemon refuses it, too, but later. */
function requireRoot(command: Command): void {
  const names: string[] = [];
  for (let each: Command | null = command; each?.parent; each = each.parent) names.unshift(each.name());
  const name = names.join(" ");
  if (REACH[name] !== "widens" || FOR_OWNERS.includes(name)) return;
  if (!isOwners(commandPaths(command.opts<{ config?: string }>().config))) return;
  throw new Error(
    `that may allow more or move a key, so in the system service only root may do it → ${advice.asRoot(typedCommand())}`,
  );
}

/** Takes --system and --user out of a command line: every command has them. The last one counts. */
function readMode(args: readonly string[]): { readonly mode: Mode | null; readonly rest: string[] } {
  const end = args.includes("--") ? args.indexOf("--") : args.length;
  const options = args.slice(0, end);
  const last = options.findLast((arg) => arg === "--system" || arg === "--user");
  const rest = options.filter((arg) => arg !== "--system" && arg !== "--user");
  const mode = last === undefined ? null : last === "--system" ? "system" : "user";
  return { mode, rest: [...rest, ...args.slice(end)] };
}
