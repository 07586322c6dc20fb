import { basename, isAbsolute, relative } from "node:path";

/**
 * How the running program is called again: by its name if it is installed, otherwise by its file. In a clone there is no
 * `keybearer` in the PATH, and `npx keybearer` would fetch a package from the registry.
 */
export function commandName(program = process.argv[1] ?? "", folder = process.cwd()): string {
  const isInstalled = program.includes("/node_modules/keybearer/") && !program.includes("/_npx/");
  if (isInstalled || basename(program) !== "main.js") return "keybearer";
  const path = relative(folder, program);
  const shown = path.startsWith("..") || isAbsolute(path) ? program : path;
  return /[^\w./@+-]/.test(shown) ? `node '${shown.replaceAll("'", "'\\''")}'` : `node ${shown}`;
}

const COMMANDS =
  "init|run|stop|logs|check|config|status|doctor|tools|gateways|trust|use|models|keys|usage|mirror|service|open|completion";
/** Not in a path, an address, or another name. */
const COMMAND = new RegExp(`(?<![\\w./@-])keybearer (?=(?:${COMMANDS})\\b)`, "g");

/** The commands in a text as they can be typed here. */
export function typeable(text: string): string {
  if (!text.includes("keybearer ")) return text;
  const name = commandName();
  return name === "keybearer" ? text : text.replace(COMMAND, `${name} `);
}
