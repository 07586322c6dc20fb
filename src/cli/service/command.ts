import { Command } from "commander";
import type { install } from "./install/install.ts";
import type { logs } from "./logs/logs.ts";
import type { restart } from "./restart.ts";
import type { status } from "./status/status.ts";
import type { uninstall } from "./uninstall/uninstall.ts";

export function serviceCommand(): Command {
  const service = new Command("service").description(
    "have keybearer started at your login and after a crash, by systemd or launchd",
  );
  service
    .command("install")
    .description(
      "install it, start it, and wait until it answers; again after an upgrade of node or keybearer",
    )
    .option("-c, --config <file>", "another file than your own config.yaml")
    .option("--dry-run", "only print what would be written and run")
    .option("-y, --yes", "do not ask")
    .action(async (options: Parameters<typeof install>[0]) =>
      (await import("./install/install.ts")).install(options),
    );
  service
    .command("uninstall")
    .description("stop it, once its requests have finished, and take it away; config.yaml and data stay")
    .option("--purge", "remove config.yaml, key files and the usage log, too")
    .option("--dry-run", "only print what would be removed and run")
    .option("-y, --yes", "do not ask")
    .action(async (options: Parameters<typeof uninstall>[0]) =>
      (await import("./uninstall/uninstall.ts")).uninstall(options),
    );
  service
    .command("status")
    .description("whether it is installed, runs and answers, and what to do if not; exit code 0: it serves")
    .option("-c, --config <file>", "the config.yaml it should go by, if not your own")
    .option("--json", "for programs")
    .action(async (options: Parameters<typeof status>[0]) =>
      (await import("./status/status.ts")).status(options),
    );
  service
    .command("restart")
    .description("start it anew once its requests have finished; not with a config.yaml that has problems")
    .action(async (options: Parameters<typeof restart>[0]) =>
      (await import("./restart.ts")).restart(options),
    );
  service
    .command("logs")
    .description("what it has said")
    .option("-f, --follow", "go on with what it says next")
    .option("-n, --lines <count>", "so many of the last lines", "50")
    .option("--json", "the lines as they are written, for programs")
    .action(async (options: Parameters<typeof logs>[0]) => (await import("./logs/logs.ts")).logs(options));
  return service;
}
