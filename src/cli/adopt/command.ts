import { Command, Option } from "commander";
import type { adopt } from "./adopt.ts";

export function adoptCommand(): Command {
  return new Command("adopt")
    .summary("find keys in your tools' files, and move them here")
    .description(
      "find keys in your tools' files; --write moves them into keybearer. exit code 1: there are some",
    )
    .argument("[folder...]", "also the settings of these projects")
    .option("--write", "move them, one diff at a time")
    .addOption(new Option("--undo [client]", "take back what --write changed").conflicts("write"))
    .option("--only <client>", "this client alone, such as codex")
    .option("--store <place>", "keychain or file; default: keychain, if there is one")
    .option("--rotate", "afterwards, replace the moved keys through the console")
    .option("--no-rotate", "do not replace them, and do not ask")
    .option("-y, --yes", "with --write and --undo: do not ask")
    .option("--force", "with --undo: also what was changed since")
    .option("--json", "print JSON")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (...given: Parameters<typeof adopt>) => (await import("./adopt.ts")).adopt(...given));
}
