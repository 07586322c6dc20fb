import { Command, Option } from "commander";
import { SHELLS } from "../../clients/snippets.ts";
import type { use } from "./use.ts";

export function useCommand(): Command {
  return new Command("use")
    .description("the settings that point a client at keybearer, ready to paste")
    .argument("[tool]", "its name says for which client, or --for does")
    .option("--for <client>", "for this client; list: show all of them")
    .addOption(new Option("--shell <shell>", "write variables for this shell").choices(SHELLS))
    .option("--new-token", "make a token beside the tool's others, and put it in")
    .addOption(exclusive("link", "make a token, and print a link that cc-switch imports"))
    .addOption(exclusive("write", "make a token, and merge the settings into the client's own file"))
    .addOption(exclusive("undo", "take back what --write changed, and end its token"))
    .option("-y, --yes", "with --write and --undo: do not ask")
    .option("--force", "with --undo: also what was changed since")
    .option("--json", "print JSON")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (...given: Parameters<typeof use>) => (await import("./use.ts")).use(...given));
}

/** These options exclude each other. */
function exclusive(name: string, description: string): Option {
  const others = ["newToken", "link", "write", "undo"].filter((other) => other !== name);
  return new Option(`--${name}`, description).conflicts(others);
}
