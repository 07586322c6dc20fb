import { Command, Option } from "commander";
import type { AckModelOptions } from "./ack-model.ts";
import type { ExportOptions } from "./export.ts";
import type { ReportOptions } from "./report.ts";

// Each subcommand is imported when it is used, because loading the database would slow down every other command.

const AFTER = `
times: 7d 12h 30m 2w today yesterday monday 10:07 2026-11-01 2026-11
       2026-11-01T10:07Z now; local unless a zone is written`;

export function usageCommand(): Command {
  const usage = new Command("usage")
    .summary("what was used and what it cost")
    .description("what was used and what it cost; by default the last 7 days by tool")
    .enablePositionalOptions()
    .option(
      "--by <what>",
      "one or two of tool model day hour key group gateway machine project branch session token",
    )
    .option("--today", "today, beside the last 7 days, and the month's forecast")
    .option("--json", "print JSON")
    .option("--csv", "print CSV, for spreadsheets")
    .addHelpText("after", AFTER)
    .action(async (options: ReportOptions) => (await import("./report.ts")).report(options));
  filters(usage);
  filters(usage.command("export"))
    .description("every record, or those of a period")
    .option("--json", "an array, the default")
    .option("--jsonl", "one record per line")
    .option("--csv", "for spreadsheets; an apostrophe makes formulas text")
    .option("-o, --output <file>", "write to a new file that only you can read")
    .action(async (options: ExportOptions) => (await import("./export.ts")).exportRecords(options));
  usage
    .command("show")
    .description("one whole record, and what it means")
    .argument("<id>", "a record's id or its beginning, an id from the gateway, or: last")
    .option("--json", "print JSON")
    .action(async (id: string, options: { json?: boolean }) => (await import("./show.ts")).show(id, options));
  usage
    .command("tail")
    .description("one line for each request as it ends, until Ctrl-C")
    .addOption(new Option("-n, --lines <count>", "begin with this many past requests").default("10"))
    .option("--json", "one record per line")
    .action(async (options: { lines: string; json?: boolean }) => (await import("./tail.ts")).tail(options));
  usage
    .command("ack-model")
    .summary("one model's answers count as another's")
    .description("from now on, answers of the second model count as those of the first, which was asked for")
    .argument("<asked>", "the model that was asked for")
    .argument("<answered>", "the model that answered")
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .action(async (asked: string, answered: string, options: AckModelOptions) =>
      (await import("./ack-model.ts")).ackModel(asked, answered, options),
    );
  usage
    .command("rebuild")
    .description("rebuild the index that reports read, from the usage log")
    .action(async () => (await import("./index-file.ts")).rebuild());
  return usage;
}

function filters(command: Command): Command {
  const collect = (name: string, names: string[] = []) => [...names, name];
  return command
    .option("--since <time>", "from then on; all: from the first record")
    .option("--until <time>", "until then; a day is included whole")
    .option("--tool <name>", "only this tool; * matches anything; can be repeated", collect)
    .option("--model <name>", "only this model; the same way", collect)
    .option("--machine <name>", "only this machine; the same way", collect)
    .option("--project <folder>", "only this project; the same way", collect)
    .option("--session <id>", "only this session; its beginning is enough, or *", collect);
}
