import { renameTool } from "../../config/edit-tools.ts";
import { askDaemon } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { fail, printText } from "../ui/messages.ts";
import { waitUntilActive } from "./config-change.ts";
import { editChecked } from "./set.ts";

/** The daemon moves the counters, in the moment in which it reads the new name. So it must run. */
export async function rename(
  tool: string,
  name: string,
  options: { readonly config?: string },
): Promise<void> {
  const paths = findPaths({ config: options.config });
  const path = `/rename/${encodeURIComponent(tool)}`;
  const asked = await askDaemon(paths.socket, "POST", path, { to: name });
  if (!asked.ok) {
    const why = "the daemon moves the counters of the limits, so it must run for a rename";
    return fail(asked.running ? asked.reason : `${asked.reason}\n${why}`, EXIT.failed);
  }
  if ((await editChecked(paths, (text) => renameTool(text, tool, name))) === null) return;
  const effect = await waitUntilActive(paths, name, (found) => found !== undefined);
  if (effect.state === "not in force") return fail(`but ${effect.reason}`, EXIT.failed);
  printText(
    `${tool} is called ${name} now. its counters, key and tokens stay, so clients need no change`,
    `its earlier records keep the name ${tool} in the usage log`,
  );
  if (effect.state === "in force" && effect.tool?.why)
    printText(`but ${effect.tool.why} → ${effect.tool.next}`);
}
