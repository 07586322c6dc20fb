import { existsSync } from "node:fs";
import type { Config } from "../../config/shape.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { InstalledUnit } from "../../service/spec.ts";
import { failNull } from "../ui/messages.ts";
import { usableConfig } from "./install/before-install.ts";

/** The configuration of the installed service, if it could start anew now. null: told why it could not. */
export async function installedConfig(
  unit: InstalledUnit,
  paths: Paths,
  running: boolean,
): Promise<Config | null> {
  const kept = running ? "the service was not restarted and goes on as it is" : "the service was not started";
  for (const path of [unit.node, unit.main]) {
    if (!existsSync(path))
      return failNull(`there is no ${path} any more → keybearer service install\n${kept}`, EXIT.failed);
  }
  return usableConfig(paths, kept);
}
