import { Command } from "commander";
import { NOTIFY_COMMAND, SHARED_PASSWORD, SHARED_SECRET } from "../config/snapshot.ts";
import { askDaemon } from "../control/client.ts";
import type { HeldTool, TrustAnswer } from "../control/routes.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import { fail, print } from "./ui/messages.ts";
import { agrees } from "./ui/prompts.ts";
import { commandPaths } from "./ui/stdio.ts";
import { isInteractive } from "./ui/terminal.ts";

/** These are no tools, and what is held of them says whose it is. */
function saysWhose(name: string): boolean {
  return [SHARED_PASSWORD, SHARED_SECRET, NOTIFY_COMMAND].includes(name) || name.startsWith("webhook ");
}

export function trustCommand(): Command {
  return new Command("trust")
    .summary("allow a change in where a key goes")
    .description("show a change in where a key comes from or goes, and allow it once you confirm")
    .argument(
      "[tool|gateway]",
      "a tool or gateway that is held, shared for the secrets of the shared store, or notify for webhooks and the command",
    )
    .option("--all", "everything that is held, also after the list of trusted addresses was lost")
    .action(trust);
}

async function trust(name: string | undefined, options: { all?: boolean }): Promise<void> {
  if ((name === undefined) === (options.all !== true))
    return fail({ problem: "name a tool or a gateway, or use --all", next: advice.status() }, EXIT.usage);
  // There is no --yes: a program that can edit files must not be able to move keys.
  if (!isInteractive())
    return fail(
      `trust needs a person at a terminal. open one and type: ${advice.trust(name ?? "--all")}`,
      EXIT.usage,
    );
  const paths = commandPaths();
  const path = name === undefined ? "" : `/${encodeURIComponent(name)}`;
  const held = await askDaemon<HeldTool[]>(paths, "GET", `/held${path}`);
  if (!held.ok) return fail(held, EXIT.failed);
  if (held.value.length === 0)
    return print(name === undefined ? "nothing is held" : `nothing of ${name} is held`);
  for (const { tool, what, from, to } of held.value)
    print(saysWhose(tool) ? what : `tool ${tool}: ${what}`, `  was  ${from}`, `  now  ${to}`);
  if (!(await agrees("trust this?", "no", "trusted"))) return;
  const done = await askDaemon<TrustAnswer>(paths, "POST", `/trust${path}`, held.value);
  if (!done.ok) return fail(done, EXIT.failed);
  for (const granted of done.value.granted) print(`trusted ${granted}`);
  if (done.value.problems.length > 0) fail(done.value.problems.join("\n"), EXIT.failed);
}
