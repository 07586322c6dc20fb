import type { Config } from "./shape.ts";

/**
 * Settings that are read and checked but do nothing yet. Somebody who writes a limit must not believe that it holds;
 * each line goes when its behaviour comes.
 */
export function notYetHeld(config: Config): { path: string; message: string }[] {
  const found: { path: string; message: string }[] = [];
  const say = (path: string, what: string) => {
    found.push({ path, message: `${what} is read, but this version does not act on it yet` });
  };
  for (const tool of Object.values(config.tools)) {
    const path = `tools.${tool.name}`;
    const { requests, tokens, spend, concurrent, wait } = tool.limits;
    const limited = requests.length + tokens.length + spend.length > 0 || concurrent !== null || wait > 0;
    if (limited) say(`${path}.limits`, "limits");
    if (tool.quota !== null) say(`${path}.quota`, "quota");
    if (tool.watchOnly) say(`${path}.watch_only`, "watch_only");
    if (tool.keysElsewhere) say(`${path}.keys_elsewhere`, "keys_elsewhere");
  }
  for (const gateway of Object.values(config.gateways)) {
    for (const [name, group] of Object.entries(gateway.groups)) {
      const restricted = group.models.some((model) => model !== "*");
      if (restricted) say(`gateways.${gateway.name}.groups.${name}.models`, "a group's list of models");
    }
    if (gateway.console !== null) say(`gateways.${gateway.name}.console`, "console");
  }
  if (config.dashboard.when === "always") say("dashboard", "dashboard");
  return found;
}
