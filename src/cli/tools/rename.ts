import { renameTool } from "../../config/edit-tools.ts";
import { askDaemon } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { editChecked, reportEffect, waitUntilActive } from "../config-change.ts";
import { fail, printText } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";

/** `keybearer tools rename`. The daemon moves the counters when it reads the new name, so it must run. */
export async function rename(tool: string, name: string, options: { config?: string }): Promise<void> {
  const paths = commandPaths(options.config);
  const path = `/rename/${encodeURIComponent(tool)}`;
  const asked = await askDaemon(paths, "POST", path, { to: name });
  if (!asked.ok) {
    const problem = "the daemon moves the counters of the limits, so it must run for a rename";
    return fail(asked.running ? asked : [asked, problem], EXIT.failed);
  }
  if ((await editChecked(paths, (text) => renameTool(text, tool, name))) === null) return;
  const effect = await waitUntilActive(paths, name, (status) => status !== undefined);
  if (effect.state !== "not in force")
    printText(
      `${tool} is called ${name} now. its counters, key and tokens stay, so clients need no change`,
      `its earlier records keep the name ${tool} in the usage log`,
    );
  reportEffect(effect);
}
