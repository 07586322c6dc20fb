import { loadConfig } from "../../config/load.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { Paths } from "../../core/paths.ts";
import { whenInForce } from "../tools/effect.ts";
import { notice } from "../ui/messages.ts";

/** What to type next, and what a daemon that runs already makes of the file. */
export async function tellNext(paths: Paths, tool: string): Promise<void> {
  const asked = await askDaemon<Status>(paths.socket, "GET", "/status");
  const file = paths.explicit ? ` --config ${paths.config}` : "";
  if (!asked.ok && !asked.running) {
    const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
    const port = config?.listen.port ?? 5397;
    notice(
      "next:",
      `  keybearer run${file}`,
      `    serves http://localhost:${port} until Ctrl-C; go on in another terminal`,
    );
  } else {
    const effect = await whenInForce(paths, tool, (found) => found !== undefined);
    if (effect.state === "not in force") notice(`a keybearer runs, but ${effect.reason}`);
    else if (asked.ok && asked.value.sandbox)
      notice("the running keybearer has taken it up by itself: its sandbox has ended", "next:");
    else notice("the running keybearer goes by it", "next:");
    if (effect.state === "in force" && effect.tool?.why && effect.tool.next !== null)
      notice(`  ${effect.tool.next}`, `    because ${effect.tool.why}`);
  }
  notice(
    `  keybearer use ${tool}${file}`,
    "    the settings to paste into it",
    `  keybearer tools add <tool>${file}`,
    "    another one",
  );
}
