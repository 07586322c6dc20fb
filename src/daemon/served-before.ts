import { existsSync, readdirSync } from "node:fs";
import { SANDBOX } from "../config/schema.ts";
import type { Paths } from "../core/paths.ts";
import { hasRequestsBeside, journalFiles } from "../usage/journal/files.ts";

/**
 * Whether a config.yaml was served here before, judged by everything but trust.json. The sandbox leaves a usage log, too, and
 * databases made from it.
 */
export function servedBefore({
  state,
  usage,
  oldUsage,
  consoles,
  keyChanges,
  index,
  mirror,
}: Paths): boolean {
  if ([oldUsage, consoles, keyChanges].some((file) => existsSync(file))) return true;
  if (hasRequestsBeside(SANDBOX, usage)) return true;
  // The usage log is gone, and what was made from it is not.
  const hasLog = journalFiles(usage).length > 0;
  const hasSetAside = existsSync(state) && readdirSync(state).some((name) => name.includes(".set-aside-"));
  return hasSetAside || (!hasLog && [index, mirror].some((file) => existsSync(file)));
}
