import { Command } from "commander";
import type { ListOptions } from "./list.ts";
import type { MuteOptions } from "./mute.ts";

export function eventsCommand(): Command {
  const events = new Command("events")
    .summary("what happened: leaks, refused keys, used-up limits")
    .description("what keybearer reported: leaks, refused keys, used-up limits, outages");
  events
    .command("list", { isDefault: true })
    .description("the last 20 events, the newest one last")
    .option("-f, --follow", "then print each event as it comes")
    .option("--desktop", "with --follow: show new events on the desktop instead of printing them")
    .option("--all", "every event that is kept")
    .option("--json", "print JSON; with --follow one line for each event")
    .action(async (options: ListOptions) => (await import("./list.ts")).list(options));
  events
    .command("mute")
    .description("send no events of a tool, gateway, console, key or session for some time")
    .argument("<subject...>", "as events name it, such as tool codex")
    .option("--for <time>", "how long, such as 8h or 2d; at most 31d")
    .option("--off", "send them again")
    .action(async (subject: string[], options: MuteOptions) =>
      (await import("./mute.ts")).mute(subject, options),
    );
  return events;
}
