import type { Config } from "./shape.ts";

/**
 * Settings that are read and checked but do nothing yet. Nobody must believe that what they wrote holds;
 * each line goes when its behaviour comes.
 */
export function notYetHeld(config: Config): { path: string; message: string }[] {
  const found: { path: string; message: string }[] = [];
  const say = (path: string, what: string) => {
    found.push({ path, message: `${what} is read, but this version does not act on it yet` });
  };
  for (const tool of Object.values(config.tools)) {
    const path = `tools.${tool.name}`;
    if (tool.watchOnly) say(`${path}.watch_only`, "watch_only");
    if (tool.keysElsewhere) say(`${path}.keys_elsewhere`, "keys_elsewhere");
  }
  for (const gateway of Object.values(config.gateways)) {
    if (gateway.console !== null) say(`gateways.${gateway.name}.console`, "console");
  }
  if (config.dashboard.when === "always") say("dashboard", "dashboard");
  return found;
}
