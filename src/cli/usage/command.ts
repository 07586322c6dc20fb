import { Command, Option } from "commander";
import type { ExportOptions } from "./export.ts";
import type { ReportOptions } from "./report.ts";

// Each verb is imported when it is typed: every other command would wait for the database as well.

const AFTER = `
times: 7d 12h 30m 2w today yesterday monday 10:07 2026-11-01 2026-11
       2026-11-01T10:07Z now; local unless a zone is written`;

export function usageCommand(): Command {
  const usage = new Command("usage")
    .summary("what was used and what it cost")
    .description("what was used and what it cost; alone: the last 7 days by tool")
    .enablePositionalOptions()
    .option("--by <what>", "tool, model, day, hour, key, group, gateway; or two: day,tool")
    .option("--json", "for programs")
    .option("--csv", "for spreadsheets")
    .addHelpText("after", AFTER)
    .action(async (options: ReportOptions) => (await import("./report.ts")).report(options));
  filters(usage);
  filters(usage.command("export"))
    .description("every record, all of them unless a period is named")
    .option("--json", "an array, the default")
    .option("--jsonl", "one record a line")
    .option("--csv", "for spreadsheets; formulas are made text by an apostrophe")
    .option("-o, --output <file>", "into a new file, for you alone")
    .action(async (options: ExportOptions) => (await import("./export.ts")).exportRecords(options));
  usage
    .command("show")
    .description("one record whole, and what it means")
    .argument("<id>", "its id or the beginning of it, an id the gateway gave, or: last")
    .option("--json", "for programs")
    .action(async (id: string, options: { json?: boolean }) => (await import("./show.ts")).show(id, options));
  usage
    .command("tail")
    .description("one line for each request as it ends, until Ctrl-C")
    .addOption(new Option("-n, --lines <count>", "begin with so many that have ended").default("10"))
    .option("--json", "one record a line")
    .action(async (options: { lines: string; json?: boolean }) => (await import("./tail.ts")).tail(options));
  usage
    .command("rebuild")
    .description("rebuild the index that reports read, from the usage log")
    .action(async () => (await import("./rebuild.ts")).rebuild());
  return usage;
}

function filters(command: Command): Command {
  const gather = (name: string, before: string[] = []) => [...before, name];
  return command
    .option("--since <time>", "from then on; all: everything")
    .option("--until <time>", "before then; a day counts whole")
    .option("--tool <name>", "only this tool; * stands for anything; may be repeated", gather)
    .option("--model <name>", "only this model; the same", gather);
}
