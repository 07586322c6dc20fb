import { askDaemon } from "../control/client.ts";
import type { ConfigAnswer } from "../control/routes.ts";
import type { Paths } from "../core/paths.ts";
import { printText } from "./ui/messages.ts";

/** Which settings of the system service do not come from root's config.yaml. */
export async function printSources(paths: Paths): Promise<void> {
  const asked = await askDaemon<ConfigAnswer>(paths, "GET", "/config");
  if (asked.ok) for (const path of asked.value.overridden) printText(`${path}: from ${paths.overrides}`);
}
