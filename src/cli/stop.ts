import { setTimeout as sleep } from "node:timers/promises";
import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { Status } from "../control/status.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import type { Result } from "../service/service.ts";
import { fail, printText } from "./ui/messages.ts";
import { commandPaths } from "./ui/stdio.ts";

export function stopCommand(): Command {
  return new Command("stop").description("stop it, once its requests have finished").action(async () => {
    await stop(commandPaths());
  });
}

/** false: it still runs, and the reason was printed. */
export async function stop(paths: Paths): Promise<boolean> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (!asked.ok) return failFalse(asked);
  const { pid } = asked.value;
  // Loaded on demand: other commands need no service manager.
  const { createContext } = await import("./service/context.ts");
  const { withDrainProgress } = await import("./service/restart.ts");
  const { manager } = await createContext();
  // A service manager may restart a process that stops without it.
  const isService = manager !== null && (await manager.state()).pid === pid;
  const change = isService ? manager.stop() : stopProcess(paths, pid);
  const result = await withDrainProgress(change, paths, pid);
  if (!result.ok) return failFalse(result);
  printText(
    isService
      ? { problem: "the service is stopped until your next login", next: advice.start() }
      : `keybearer is stopped, it was pid ${pid}`,
  );
  return true;
}

function failFalse(problem: Problem): false {
  fail(problem, EXIT.failed);
  return false;
}

const POLL_MS = 100;

/** By the control socket and not by a signal: in a container the process may have another pid. */
async function stopProcess(paths: Paths, pid: number): Promise<Result> {
  const asked = await askDaemon(paths, "POST", "/stop", {});
  if (!asked.ok) return asked;
  for (;;) {
    const status = await askDaemon<Status>(paths, "GET", "/status");
    // Another pid is a new daemon.
    const isGone = status.ok ? status.value.pid !== pid : !status.running;
    if (isGone) return { ok: true };
    await sleep(POLL_MS);
  }
}
