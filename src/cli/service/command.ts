import { Command } from "commander";
import type { InstallOptions } from "./install.ts";
import type { LogsOptions } from "./logs.ts";
import type { UninstallOptions } from "./uninstall.ts";

/** Each command imports its code when it runs, so that the others start quickly. */
export function serviceCommand(): Command {
  const service = new Command("service").description(
    "have systemd or launchd start keybearer at your login and after a crash",
  );
  service
    .command("install")
    .description(
      "install it, start it, and wait until it answers; run it again after an upgrade of node or keybearer",
    )
    .option("-c, --config <file>", "use this config.yaml instead of your own")
    .option("--dry-run", "only print what would be written and run")
    .option("-v, --verbose", "with --dry-run: print the comments of the files, too")
    .option("-y, --yes", "do not ask")
    .action(async (options: InstallOptions) => (await import("./install.ts")).install(options));
  service
    .command("uninstall")
    .description("stop it when its requests have finished, and remove it; config.yaml and data stay")
    .option("--purge", "remove config.yaml, key files and the usage log, too")
    .option("--dry-run", "only print what would be removed and run")
    .option("-y, --yes", "do not ask")
    .action(async (options: UninstallOptions) => (await import("./uninstall.ts")).uninstall(options));
  service
    .command("status")
    .description("whether it is installed, runs and answers, and what to do if not; exit code 0: it serves")
    .option("-c, --config <file>", "the config.yaml it should use, if not your own")
    .option("--json", "print JSON")
    .action(async (options: { json?: boolean; config?: string }) =>
      (await import("./status.ts")).status(options),
    );
  service
    .command("restart")
    .description("restart it when its requests have finished; refused if config.yaml has problems")
    .action(async () => (await import("./restart.ts")).restart());
  service.addCommand(logsCommand());
  return service;
}

/** `service logs`, and `logs` for short. */
export function logsCommand(): Command {
  return new Command("logs")
    .description("show the log of the service, or of a daemon in the background")
    .option("-f, --follow", "keep printing new lines")
    .option("-n, --lines <count>", "how many lines to begin with", "50")
    .option("--json", "print the lines as JSON")
    .action(async (options: LogsOptions) => (await import("./logs.ts")).logs(options));
}
