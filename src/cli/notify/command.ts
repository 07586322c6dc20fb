import { Command } from "commander";
import { testChannels } from "./test.ts";

export function notifyCommand(): Command {
  const notify = new Command("notify")
    .summary("try whether alerts arrive: notify test")
    .description("the channels to which keybearer sends alerts; docs/alerts.md describes them");
  notify
    .command("test")
    .description("send a test to each channel, or to one, and say what happened")
    .argument("[channel]", "desktop, command, or the name of a webhook")
    .option("--json", "print JSON")
    .action(testChannels);
  return notify;
}
