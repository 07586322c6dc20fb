import { Command } from "commander";
import type { init } from "./make.ts";

const AFTER = `
without a terminal, everything is named, and the key is piped in:
  keybearer init --gateway https://gateway.example.com/v1 --tool codex \\
    --key-stdin < key.txt
it never overwrites a config.yaml: run again, it continues where it stopped`;

export function initCommand(): Command {
  return new Command("init")
    .summary("make a config.yaml: gateway, first tool, its key")
    .description("make a config.yaml with your gateway, a first tool and its key, and try the key")
    .option("--gateway <url>", "its base URL, which ends in /v1")
    .option("--tool <name>", "the first tool's name")
    .option("--key-stdin", "read the key from stdin instead of asking for it")
    .option("--store <place>", "keychain or file; default the keychain where there is one")
    .option("-y, --yes", "do not ask where a default will do")
    .option("--no-probe", "do not try the key at the gateway")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .addHelpText("after", AFTER)
    .action(async (...given: Parameters<typeof init>) => (await import("./make.ts")).init(...given));
}
