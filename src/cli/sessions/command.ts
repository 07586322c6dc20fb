import { Command } from "commander";
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
  return sessions;
}
