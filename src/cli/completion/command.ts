import { Argument, Command } from "commander";
import { findPaths } from "../../core/paths.ts";
import { bashScript } from "./bash.ts";
import { fishScript } from "./fish.ts";
import { grammarOf } from "./grammar.ts";
import { zshScript } from "./zsh.ts";

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

export function completionCommand(): Command {
  const command = new Command("completion")
    .summary("print the script for tab completion in your shell")
    .description("print a script that makes your shell complete commands, options and names")
    .addArgument(new Argument("<shell>", "bash, zsh or fish").choices(Object.keys(SCRIPTS)));
  return command.action((shell: keyof typeof SCRIPTS) => {
    if (command.parent !== null) process.stdout.write(SCRIPTS[shell](grammarOf(command.parent)));
  });
}

const LISTS = ["tools", "gateways", "clients", "held"] as const;

/** The scripts run it at every press of Tab: it reads config.yaml, but no key, and does not ask the daemon. */
export function completeCommand(): Command {
  return new Command("__complete")
    .addArgument(new Argument("<what>").choices(LISTS))
    .action(async (what: (typeof LISTS)[number]) => {
      const names = await namesOf(what);
      process.stdout.write(
        names
          .filter(isPlain)
          .map((name) => `${name}\n`)
          .join(""),
      );
    });
}

async function namesOf(what: (typeof LISTS)[number]): Promise<readonly string[]> {
  if (what === "clients") {
    const { CLIENTS } = await import("../../clients/table.ts");
    return CLIENTS.map(({ id }) => id);
  }
  const { loadConfig } = await import("../../config/load.ts");
  const paths = findPaths();
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  const tools = Object.keys(config?.tools ?? {});
  const gateways = Object.keys(config?.gateways ?? {});
  return what === "tools" ? tools : what === "gateways" ? gateways : [...tools, ...gateways];
}

/** Shells expand these names, so one that a shell would treat as code is left out. */
function isPlain(name: string): boolean {
  return /^[\p{L}\p{N}][\p{L}\p{N}_.@-]*$/u.test(name);
}
