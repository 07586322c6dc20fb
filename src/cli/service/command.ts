import { Command } from "commander";
import { chosenMode } from "../ui/stdio.ts";
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
    .option("--owner <name>", "with --system: who may call and steer it; default: who typed sudo")
    .option("--from <folder>", "with --system: a KEYBEARER_HOME to move, if not the owner's own folders")
    .addHelpText("after", SYSTEM_AFTER)
    .action(async (options: InstallOptions & { owner?: string; from?: string }) => {
      if (isSystem() && process.platform === "darwin")
        (await import("./system/launch-daemon.ts")).installOnMac(options);
      else if (isSystem()) await (await import("./system/install.ts")).installSystem(options);
      else await (await import("./install.ts")).install(options);
    });
  service
    .command("uninstall")
    .description("stop it when its requests have finished, and remove it; config.yaml and data stay")
    .option("--purge", "remove config.yaml, key files and the usage log, too")
    .option("--dry-run", "only print what would be removed and run")
    .option("-y, --yes", "do not ask")
    .option("--owner <name>", "with --system: to whom everything goes back, if not to the first owner")
    .action(async (options: UninstallOptions & { owner?: string }) => {
      if (isSystem()) await (await import("./system/uninstall.ts")).uninstallSystem(options);
      else await (await import("./uninstall.ts")).uninstall(options);
    });
  service
    .command("status")
    .description("whether it is installed, runs and answers, and what to do if not; exit code 0: it serves")
    .option("-c, --config <file>", "the config.yaml it should use, if not your own")
    .option("--json", "print JSON")
    .action(async (options: { json?: boolean; config?: string }) => {
      if (isSystem()) await (await import("./system/manage.ts")).statusSystem();
      else await (await import("./status.ts")).status(options);
    });
  service
    .command("restart")
    .description("restart it when its requests have finished; refused if config.yaml has problems")
    .action(async () => {
      if (isSystem()) await (await import("./system/manage.ts")).restartSystem();
      else await (await import("./restart.ts")).restart();
    });
  service
    .command("update")
    .description("with --system: run the version that is installed now")
    .action(async () => (await import("./system/manage.ts")).updateSystem());
  service.addCommand(logsCommand());
  return service;
}

const SYSTEM_AFTER = `
with --system, keybearer moves to a system service with a user of its own, whose
keys no program of yours can read (macOS: only --dry-run, which shows a draft):
  sudo keybearer service install --system --owner alice
  sudo keybearer service uninstall --system    gives everything back`;

function isSystem(): boolean {
  return chosenMode() === "system";
}

/** The half of a move that root starts as the owner: nobody types it. */
export function handOverCommand(): Command {
  const handOver = new Command("__hand-over");
  handOver
    .command("give")
    .option("--check")
    .action(async (options: { check?: boolean }) => (await import("./system/hand-over.ts")).give(options));
  handOver.command("stop").action(async () => (await import("./system/hand-over.ts")).stopHere());
  handOver
    .command("program <node> <main>")
    .action(async (node: string, main: string) =>
      (await import("./system/hand-over.ts")).giveProgram({ node, main }),
    );
  handOver.command("take").action(async () => (await import("./system/hand-over.ts")).take());
  handOver.command("remove").action(async () => (await import("./system/hand-over.ts")).removeMoved());
  return handOver;
}

/** `service logs`, and `logs` for short. */
export function logsCommand(): Command {
  return new Command("logs")
    .description("show the log of the service, or of a daemon in the background")
    .option("-f, --follow", "keep printing new lines")
    .option("-n, --lines <count>", "how many lines to begin with", "50")
    .option("--json", "print the lines as JSON")
    .action(async (options: LogsOptions) => {
      if (isSystem()) await (await import("./system/manage.ts")).logsSystem(options);
      else await (await import("./logs.ts")).logs(options);
    });
}
