import { setEnabled } from "../../config/edit-tools.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { fail, print } from "../ui/messages.ts";
import { editConfig, endInFlight, waitUntilActive } from "./config-change.ts";

export async function disable(name: string, options: { now?: boolean; config?: string }): Promise<void> {
  const paths = findPaths({ config: options.config });
  const edited = await editConfig(paths.config, (text) => setEnabled(text, name, false));
  if (edited === null) return;
  print(edited.changed ? `${name} is disabled` : `${name} is disabled already`);
  const effect = await waitUntilActive(paths, name, (tool) => tool?.state === "disabled");
  await endInFlight(paths, name, effect, {
    now: options.now ?? false,
    again: `keybearer tools disable ${name} --now`,
  });
}

export async function enable(name: string, options: { config?: string }): Promise<void> {
  const paths = findPaths({ config: options.config });
  const edited = await editConfig(paths.config, (text) => setEnabled(text, name, true));
  if (edited === null) return;
  print(edited.changed ? `${name} is enabled` : `${name} is enabled already`);
  const effect = await waitUntilActive(
    paths,
    name,
    (tool) => tool !== undefined && tool.state !== "disabled",
  );
  if (effect.state === "not in force") return fail(`but ${effect.reason}`, EXIT.failed);
  // Enabled is not yet usable: it may have expired, or have no key.
  if (effect.state === "in force" && effect.tool?.why) print(`but ${effect.tool.why} → ${effect.tool.next}`);
}
