import { Command, Option } from "commander";
import type { add } from "./add.ts";
import type { lift } from "./lift.ts";
import type { list } from "./list.ts";
import type { remove } from "./remove.ts";
import type { rename } from "./rename.ts";
import type { rotate } from "./rotate.ts";
import type { set } from "./set.ts";
import type { disable, enable } from "./switch.ts";
import type { revoke, token, tokens } from "./token.ts";

const LIFT_AFTER = `
amounts: 50, 200k, 1.5M; money in dollars, without the sign: --spend 5
times:   18:00 (the next), 2026-11-16 (the whole day), 2026-11-16T18:00Z
it ends with the current windows. with --until it counts in every window until
then: with a limit per day, --spend 5 is $5 more on each day`;

export function toolsCommand(): Command {
  const tools = new Command("tools").description("list the tools, or change one");
  tools
    .command("list", { isDefault: true })
    .description("list every tool with its state and how much of its limits is used")
    .option("--json", "print JSON")
    .action(async (...given: Parameters<typeof list>) => (await import("./list.ts")).list(...given));
  tools.addCommand(addCommand()).addCommand(rotateCommand());
  onFile(tools.command("token"))
    .description("add a token for one more client, print it once, and write its hash into config.yaml")
    .argument("<tool>", "the tool it is for")
    .option("--name <name>", "a name for the token, such as laptop; default: the tool's name")
    .option("--replace", "revoke all other tokens of the tool")
    .addOption(new Option("--add").hideHelp())
    .action(async (...given: Parameters<typeof token>) => (await import("./token.ts")).token(...given));
  onFile(tools.command("tokens"))
    .description("list a tool's tokens: name, created, last use")
    .argument("<tool>", "name of the tool")
    .option("--json", "print JSON")
    .action(async (...given: Parameters<typeof tokens>) => (await import("./token.ts")).tokens(...given));
  onFile(tools.command("revoke"))
    .description("revoke one token of a tool; the others keep working")
    .argument("<tool>", "name of the tool")
    .argument("<name>", "the token's name, as `tools tokens` shows it")
    .option("-y, --yes", "do not ask")
    .action(async (...given: Parameters<typeof revoke>) => (await import("./token.ts")).revoke(...given));
  onFile(tools.command("set"))
    .description("change settings of a tool in config.yaml, if they are valid, and show the difference")
    .argument("<tool>", "name of the tool")
    .argument("<setting...>", "name=value, such as limits.spend=5/day; name= for the default")
    .action(async (...given: Parameters<typeof set>) => (await import("./set.ts")).set(...given));
  onFile(tools.command("rename"))
    .description("give a tool another name; its counters, key and tokens stay")
    .argument("<tool>", "name of the tool")
    .argument("<new-name>", "its new name")
    .action(async (...given: Parameters<typeof rename>) => (await import("./rename.ts")).rename(...given));
  onFile(tools.command("disable"))
    .description("refuse a tool's requests from now on (enabled: false in config.yaml)")
    .argument("<tool>", "name of the tool")
    .option("--now", "also cut its requests in flight")
    .option("--at-gateway", "also disable its key at the gateway's console")
    .option("-y, --yes", "do not ask")
    .action(async (...given: Parameters<typeof disable>) => (await import("./switch.ts")).disable(...given));
  onFile(tools.command("enable"))
    .description("allow a tool's requests again")
    .argument("<tool>", "name of the tool")
    .option("--at-gateway", "also enable its key at the gateway's console")
    .option("-y, --yes", "do not ask")
    .action(async (...given: Parameters<typeof enable>) => (await import("./switch.ts")).enable(...given));
  onFile(tools.command("remove"))
    .description("remove a tool from config.yaml, and the key that keybearer stored for it; its records stay")
    .argument("<tool>", "name of the tool")
    .option("--now", "also cut its requests in flight")
    .option("--keep-key", "leave the key where it is")
    .option("--at-gateway", "also delete its key at the gateway's console")
    .option("-y, --yes", "do not ask")
    .action(async (...given: Parameters<typeof remove>) => (await import("./remove.ts")).remove(...given));
  tools
    .command("lift")
    .description("give a tool one extra allowance, or take it back; needs a person at a terminal")
    .argument("<tool>", "name of the tool")
    .option("--requests [count]", "this many more requests")
    .option("--tokens [count]", "this many more tokens")
    .option("--spend [dollars]", "this much more money; default: what is needed")
    .option("--until <time>", "in every window until then, not only in the current ones")
    .option("--take-back", "take back everything that was given")
    .option("--machine <name>", "release what this lost machine holds of shared limits")
    .addHelpText("after", LIFT_AFTER)
    .action(async (...given: Parameters<typeof lift>) => (await import("./lift.ts")).lift(...given));
  return tools;
}

function onFile(command: Command): Command {
  return command.option("-c, --config <file>", "use this config.yaml instead of your own");
}

const ADD_AFTER = `
limits are written as in config.yaml, several with a comma between them, and the
dollar sign may be left out: --spend 5/day,60/month --requests 60/minute
  keybearer tools add codex --group coding --spend 5/day
  keybearer tools add codex --create --group coding --quota 20 --expires 90d
  keybearer tools add scripts --from env:SCRIPTS_GATEWAY_KEY
  pass show gateway/zed | keybearer tools add zed --key-stdin --store file`;

const ROTATE_AFTER = `
with a console login, the console makes the new key and deletes the old one.
otherwise you type the new key, or pipe it in. it is tried first; requests in
flight finish with the old one
  keybearer tools rotate codex
  keybearer tools rotate --older-than 90d
  pass show gateway/codex | keybearer tools rotate codex --key-stdin`;

export function addCommand(): Command {
  return withKey(new Command("add"))
    .description("add a tool: take its key, try it, write config.yaml, print its token once")
    .argument("<tool>", "name of the tool")
    .option("--gateway <name>", "which gateway; optional if there is only one")
    .option("--group <name>", "the key's group, as the console shows it")
    .option("--model <name>", "for the settings that `use` prints")
    .option("--requests <limits>", "such as 60/minute")
    .option("--tokens <limits>", "such as 400k/minute")
    .option("--spend <limits>", "such as 5/day,60/month")
    .option("--concurrent <count>", "requests at the same time")
    .option("--quota <dollars>", "total spend, ever")
    .option("--expires <day>", "such as 2027-03-31, or 90d from now")
    .option("--create", "the console makes the key, and enforces --quota and --expires")
    .option("--account <name>", "with --create: whose key, of several accounts")
    .option("--rate <limits>", "with --create: dollars, such as 5/5h,20/1d,50/7d")
    .option("--models <names>", "with --create: only these, such as gpt-5.1,gpt-5.1-mini")
    .option(
      "--token-stdin",
      "read your own token from stdin; a new one is safer, because nothing has seen it",
    )
    .addHelpText("after", ADD_AFTER)
    .action(async (...given: Parameters<typeof add>) => (await import("./add.ts")).add(...given));
}

function rotateCommand(): Command {
  return withKey(new Command("rotate"))
    .description("give a tool a new key, and print the fingerprints of the old and the new one")
    .argument("[tool]", "name of the tool")
    .option("--all", "every tool whose key the console can make")
    .option("--older-than <age>", "every tool whose key is older, such as 90d")
    .option("--manual", "type the new key, even if the console could make it")
    .option("--force", "even if other machines use the key, which ends there, too")
    .addHelpText("after", ROTATE_AFTER)
    .action(async (...given: Parameters<typeof rotate>) => (await import("./rotate.ts")).rotate(...given));
}

function withKey(command: Command): Command {
  return command
    .option("--key-stdin", "read the key from stdin instead of asking for it")
    .addOption(new Option("--key <dash>", "- is --key-stdin").choices(["-"]).hideHelp())
    .option("--from <source>", "where the key is: env:NAME, file:/PATH or keychain:keybearer/NAME")
    .option("--store <place>", "keychain or file; default: keychain, if there is one")
    .option("--no-probe", "do not try the key at the gateway")
    .option("-y, --yes", "use defaults instead of asking")
    .option("--json", "print JSON")
    .option("-c, --config <file>", "use this config.yaml instead of your own");
}
