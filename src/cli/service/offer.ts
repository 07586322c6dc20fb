import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import type { Paths } from "../../core/paths.ts";
import { start } from "../start.ts";
import { notice } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { createContext } from "./context.ts";
import { install } from "./install.ts";

/**
 * Asks whether to do what `keybearer service install` does, or `keybearer start` where there is no service manager. A
 * keybearer that runs already is left alone: what started it may start it again.
 */
export async function offerService(paths: Paths): Promise<void> {
  const options = paths.explicit ? { config: paths.config } : {};
  const { manager } = await createContext(options);
  if (manager === null || !(await manager.available()).ok) return offerStart(paths, options);
  const { file, active } = await manager.state();
  if (file.kind === "foreign" || active === "running") return;
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (asked.ok || asked.running) {
    const pid = asked.ok ? ` as pid ${asked.value.pid}` : "";
    const next = `${advice.stop()}, then ${advice.serviceInstall()}`;
    return notice(`keybearer runs already${pid}. to have it started at every login, as a service: ${next}`);
  }
  if (await confirm("start keybearer now and at every login, as a service?", "yes")) await install(options);
}

async function offerStart(paths: Paths, options: { config?: string }): Promise<void> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (asked.ok || asked.running) return;
  if (await confirm("start keybearer now, in the background?", "yes")) await start(options);
}
