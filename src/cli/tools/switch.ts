import { setEnabled } from "../../config/edit-tools.ts";
import { findPaths } from "../../core/paths.ts";
import { editConfig, endInFlight, reportEffect, waitUntilActive } from "../config-change.ts";
import { print } from "../ui/messages.ts";

/** `keybearer tools disable` */
export async function disable(name: string, options: { now?: boolean; config?: string }): Promise<void> {
  const paths = findPaths({ config: options.config });
  const edited = await editConfig(paths.config, (text) => setEnabled(text, name, false));
  if (edited === null) return;
  print(edited.changed ? `${name} is disabled` : `${name} is disabled already`);
  const effect = await waitUntilActive(paths, name, (tool) => tool?.state === "disabled");
  const cutLater = `keybearer tools disable ${name} --now`;
  await endInFlight(paths, name, effect, { now: options.now ?? false, cutLater });
}

/** `keybearer tools enable` */
export async function enable(name: string, options: { config?: string }): Promise<void> {
  const paths = findPaths({ config: options.config });
  const edited = await editConfig(paths.config, (text) => setEnabled(text, name, true));
  if (edited === null) return;
  print(edited.changed ? `${name} is enabled` : `${name} is enabled already`);
  const isEnabled = (state: string | undefined) => state !== undefined && state !== "disabled";
  reportEffect(await waitUntilActive(paths, name, (tool) => isEnabled(tool?.state)));
}
