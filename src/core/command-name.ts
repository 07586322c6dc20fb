import { basename, relative } from "node:path";

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
  return /[^\w./@+-]/.test(shown) ? `node '${shown.replaceAll("'", "'\\''")}'` : `node ${shown}`;
}

const COMMANDS =
  "init|run|start|stop|logs|check|config|status|doctor|tools|gateways|trust|use|models|keys|usage|mirror|service|open|completion|help";
/** Not in a path, an address, or another name. */
const COMMAND = new RegExp(`(?<![\\w./@-])keybearer (?=(?:${COMMANDS})\\b)`, "g");

/** The commands in a text as they can be typed here, or in any folder. */
export function typeable(text: string, place: "here" | "anywhere" = "here"): string {
  if (!text.includes("keybearer ")) return text;
  const name = place === "here" ? commandName() : commandName(process.argv[1], null);
  return name === "keybearer" ? text : text.replace(COMMAND, () => `${name} `);
}
