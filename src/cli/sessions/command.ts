import { Command } from "commander";
import type { allow, lift, stop } from "./change.ts";
import type { ListOptions } from "./list.ts";
import type { ShowOptions } from "./show.ts";

// Each subcommand is imported when it is used, because loading the database would slow down every other command.

export function sessionsCommand(): Command {
  const collect = (name: string, names: string[] = []) => [...names, name];
  const sessions = new Command("sessions")
    .summary("what each run of an agent used, and what runs now")
    .description("what each run of an agent used");
  sessions
    .command("list", { isDefault: true })
    .description("the sessions with a request in the last 24 hours, the last one first")
    .option("--all", "all sessions in the usage log")
    .option("--tool <name>", "only of this tool; * matches anything; can be repeated", collect)
    .option("--project <folder>", "only of this project; the same way", collect)
    .option("--json", "print JSON")
    .action(async (options: ListOptions) => (await import("./list.ts")).list(options));
  sessions
    .command("show")
    .description("one session: its requests over time, its models, what was refused")
    .argument("<id>", "its id or the beginning of it")
    .option("--tool <name>", "the one of this tool, if several have the id")
    .option("--json", "print JSON")
    .action(async (id: string, options: ShowOptions) => (await import("./show.ts")).show(id, options));
  sessions
    .command("stop")
    .description("cut the requests of a session, and refuse further ones")
    .argument("<id>", "its id or the beginning of it")
    .option("--tool <name>", "the one of this tool, if several have the id")
    .action(async (...given: Parameters<typeof stop>) => (await import("./change.ts")).stop(...given));
  sessions
    .command("allow")
    .description("allow a session again that was stopped; needs a person at a terminal")
    .argument("<id>", "its id or the beginning of it")
    .option("--tool <name>", "the one of this tool, if several have the id")
    .action(async (...given: Parameters<typeof allow>) => (await import("./change.ts")).allow(...given));
  sessions
    .command("lift")
    .description("give a session more than its limit, or take it back; needs a person at a terminal")
    .argument("<id>", "its id or the beginning of it")
    .option("--requests [count]", "this many more requests")
    .option("--tokens [count]", "this many more tokens")
    .option("--spend [dollars]", "this much more money, in dollars, without the sign")
    .option("--take-back", "take back what it was given")
    .option("--tool <name>", "the one of this tool, if several have the id")
    .action(async (...given: Parameters<typeof lift>) => (await import("./change.ts")).lift(...given));
  return sessions;
}
