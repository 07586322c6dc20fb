import { existsSync, readFileSync } from "node:fs";
import { basename, relative } from "node:path";
import { advice } from "./advice.ts";
import { quoteForShell } from "./display.ts";

/**
 * How the running program is called again: by its name if it is installed, otherwise by its file. In a clone there is no
 * `keybearer` in the PATH, nor after `npx ./keybearer-….tgz`, and `npx keybearer` would fetch a package from the registry.
 * @param folder where the command is typed; null: anywhere
 */
export function commandName(program = process.argv[1] ?? "", folder: string | null = process.cwd()): string {
  const isInstalled = program.includes("/node_modules/keybearer/") && !program.includes("/_npx/");
  const isFile = basename(program) === "main.js" || program.includes("/node_modules/.bin/");
  if (isInstalled || !isFile) return "keybearer";
  const path = folder === null ? program : relative(folder, program);
  const shown = path.startsWith("..") ? program : path;
  return `node ${quoteForShell(shown)}`;
}

const COMMAND = commandPattern();

/** A command that messages advise: every one of them comes from advice.ts. "keybearer runs" in a sentence is none. */
function commandPattern(): RegExp {
  const names = Object.values(advice).flatMap((command) => {
    const typed = (command as (...words: readonly string[]) => string)("x", "x", "x");
    // asRoot() is given its command.
    return /keybearer (\w+)/.exec(typed)?.[1] ?? [];
  });
  // Not in a path, an address, or another name.
  return new RegExp(`(?<![\\w./@-])keybearer (?=(?:${[...new Set(names)].join("|")})\\b)`, "g");
}

/** The commands in a text as they can be typed here, or in any folder. */
export function typeable(text: string, place: "here" | "anywhere" = "here"): string {
  if (!text.includes("keybearer ")) return text;
  const shown = text.includes("sudo keybearer ") ? nameRootsCommand(text) : text;
  const name = place === "here" ? commandName() : commandName(process.argv[1], null);
  return name === "keybearer" ? shown : shown.replace(COMMAND, () => `${name} `);
}

const SYSTEM_UNIT = "/etc/systemd/system/keybearer.service";
/** Where a program that was not root's alone is copied, and the command that runs the copy. */
export const LIBRARY = "/usr/local/lib/keybearer";
export const ROOT_COMMAND = "/usr/local/bin/keybearer";

function nameRootsCommand(text: string): string {
  if (!existsSync(SYSTEM_UNIT)) return text;
  const command = rootsCommand(readFileSync(SYSTEM_UNIT, "utf8"));
  return text.replaceAll("sudo keybearer ", () => `sudo ${command} `);
}

/**
 * How root runs the program that a unit of the system service runs: only root can change that one. The name alone could find
 * the owner's program, which other programs of the owner can change.
 */
export function rootsCommand(unit: string): string {
  const [, node, main] = /^ExecStart=:"([^"\\%]+)" "([^"\\%]+)" /m.exec(unit) ?? [];
  if (node === undefined || main === undefined || main.startsWith(`${LIBRARY}/`)) return ROOT_COMMAND;
  return `${quoteForShell(node)} ${quoteForShell(main)}`;
}
