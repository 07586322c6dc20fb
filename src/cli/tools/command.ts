import { Command, Option } from "commander";
import { addCommand, rotateCommand } from "./key-commands.ts";
import type { lift } from "./lift.ts";
import type { list } from "./list.ts";
import type { remove } from "./remove.ts";
import type { disable, enable } from "./switch.ts";
import type { revoke, token, tokens } from "./token.ts";

const LIFT_AFTER = `
amounts: 50, 200k, 1.5M; money in dollars, without the sign: --spend 5
times:   18:00 (the next), 2026-11-16 (the whole day), 2026-11-16T18:00Z
it counts in the windows of now and ends with them; with --until, anew in every
window up to then: with a limit per day, --spend 5 is $5 more on each day`;

export function toolsCommand(): Command {
  const tools = new Command("tools").description("list the tools, or change one");
  tools
    .command("list", { isDefault: true })
    .description("every tool with its state, its limits and how full they are")
    .option("--json", "for programs")
    .action(async (...given: Parameters<typeof list>) => (await import("./list.ts")).list(...given));
  tools.addCommand(addCommand()).addCommand(rotateCommand());
  onFile(tools.command("token"))
    .description("add a token for one more client, print it once, and write its hash into config.yaml")
    .argument("<tool>", "the tool it is for")
    .option("--name <name>", "to find it again, such as laptop; default the tool's name")
    .option("--replace", "end all other tokens of the tool")
    .addOption(new Option("--add").hideHelp())
    .action(async (...given: Parameters<typeof token>) => (await import("./token.ts")).token(...given));
  onFile(tools.command("tokens"))
    .description("a tool's tokens: name, created, last use")
    .argument("<tool>", "its name")
    .option("--json", "for programs")
    .action(async (...given: Parameters<typeof tokens>) => (await import("./token.ts")).tokens(...given));
  onFile(tools.command("revoke"))
    .description("end one token of a tool; the others keep working")
    .argument("<tool>", "its name")
    .argument("<name>", "the token's name, as `tools tokens` shows it")
    .action(async (...given: Parameters<typeof revoke>) => (await import("./token.ts")).revoke(...given));
  onFile(tools.command("disable"))
    .description("refuse a tool's requests from the next one on, by enabled: false in config.yaml")
    .argument("<tool>", "its name")
    .option("--now", "cut its requests under way too")
    .action(async (...given: Parameters<typeof disable>) => (await import("./switch.ts")).disable(...given));
  onFile(tools.command("enable"))
    .description("let a tool be used again")
    .argument("<tool>", "its name")
    .action(async (...given: Parameters<typeof enable>) => (await import("./switch.ts")).enable(...given));
  onFile(tools.command("remove"))
    .description("take a tool out of config.yaml; its records and its key stay where they are")
    .argument("<tool>", "its name")
    .option("--now", "cut its requests under way too")
    .option("-y, --yes", "do not ask")
    .action(async (...given: Parameters<typeof remove>) => (await import("./remove.ts")).remove(...given));
  tools
    .command("lift")
    .description("give a tool one extra allowance; wants a person at a terminal")
    .argument("<tool>", "its name")
    .option("--requests <count>", "so many more requests")
    .option("--tokens <count>", "so many more tokens")
    .option("--spend <dollars>", "so much more money")
    .option("--until <time>", "anew in every window up to then, instead of only in those of now")
    .addHelpText("after", LIFT_AFTER)
    .action(async (...given: Parameters<typeof lift>) => (await import("./lift.ts")).lift(...given));
  return tools;
}

function onFile(command: Command): Command {
  return command.option("-c, --config <file>", "another file than your own config.yaml");
}
