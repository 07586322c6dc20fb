import { Command } from "commander";
import type { add } from "./add.ts";
import type { rotate } from "./rotate.ts";

const ADD_AFTER = `
limits are written as in config.yaml, several with a comma between them, and the
dollar sign may be left out: --spend 5/day,60/month --requests 60/minute
  keybearer tools add codex --group coding --spend 5/day
  keybearer tools add scripts --from env:SCRIPTS_GATEWAY_KEY
  pass show gateway/zed | keybearer tools add zed --key-stdin --store file`;

const ROTATE_AFTER = `
the new key is tried first; then one save of config.yaml names it. requests
under way finish with the old one
  keybearer tools rotate codex
  pass show gateway/codex | keybearer tools rotate codex --key-stdin`;

export function addCommand(): Command {
  return withKey(new Command("add"))
    .description("add a tool: take its key, try it, write config.yaml, print its token once")
    .argument("<tool>", "its name")
    .option("--gateway <name>", "which gateway; may be left out where there is one")
    .option("--group <name>", "the key's group, as the console shows it")
    .option("--model <name>", "for the settings that `use` prints")
    .option("--requests <limits>", "such as 60/minute")
    .option("--tokens <limits>", "such as 400k/minute")
    .option("--spend <limits>", "such as 5/day,60/month")
    .option("--concurrent <count>", "calls at once")
    .option("--quota <dollars>", "total spend, ever")
    .option("--expires <day>", "such as 2027-03-31")
    .option("--token-stdin", "take a token by hand; discouraged: a new one is known to nobody")
    .addHelpText("after", ADD_AFTER)
    .action(async (...given: Parameters<typeof add>) => (await import("./add.ts")).add(...given));
}

export function rotateCommand(): Command {
  return withKey(new Command("rotate"))
    .description("give a tool a new key, and print the fingerprints of the old and the new one")
    .argument("<tool>", "its name")
    .addHelpText("after", ROTATE_AFTER)
    .action(async (...given: Parameters<typeof rotate>) => (await import("./rotate.ts")).rotate(...given));
}

function withKey(command: Command): Command {
  return command
    .option("--key-stdin", "read the key from stdin instead of asking for it")
    .option("--from <source>", "where the key lies: env:NAME, file:/PATH or keychain:keybearer/NAME")
    .option("--store <place>", "keychain or file; default the keychain where there is one")
    .option("--no-probe", "do not try the key at the gateway")
    .option("-y, --yes", "do not ask where a default will do")
    .option("--json", "for programs")
    .option("-c, --config <file>", "another file than your own config.yaml");
}
