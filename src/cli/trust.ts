import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { HeldTool, TrustAnswer } from "../control/routes.ts";
import { EXIT } from "../core/errors.ts";
import { findPaths } from "../core/paths.ts";
import { fail } from "./ui/messages.ts";
import { confirm } from "./ui/prompts.ts";
import { isInteractive } from "./ui/terminal.ts";
import { printable } from "./ui/text.ts";

export function trustCommand(): Command {
  return new Command("trust")
    .summary("let a key go where config.yaml newly sends it")
    .description("let a key go where config.yaml newly sends it, after you looked")
    .argument("<tool|gateway>", "what is held")
    .action(trust);
}

async function trust(name: string): Promise<void> {
  // Whoever may write files must not be able to move keys: a person at a terminal has to say yes.
  if (!isInteractive()) {
    return fail(`trust wants a person at a terminal. open one and type: keybearer trust ${name}`, EXIT.usage);
  }
  const { socket } = findPaths();
  const path = encodeURIComponent(name);
  const held = await askDaemon<HeldTool[]>(socket, "GET", `/held/${path}`);
  if (!held.ok) return fail(held.reason, EXIT.failed);
  if (held.value.length === 0) {
    process.stdout.write(`nothing of ${name} is held\n`);
    return;
  }
  for (const { tool, what, from, to } of held.value) {
    process.stdout.write(
      `tool ${printable(tool)}: ${printable(what)}\n  was  ${printable(from)}\n  now  ${printable(to)}\n`,
    );
  }
  if (!(await confirm("trust this?"))) return fail("not trusted; nothing changed", EXIT.failed);
  const done = await askDaemon<TrustAnswer>(socket, "POST", `/trust/${path}`, held.value);
  if (!done.ok) return fail(done.reason, EXIT.failed);
  for (const granted of done.value.granted) process.stdout.write(`trusted ${printable(granted)}\n`);
  if (done.value.problems.length > 0) fail(done.value.problems.join("\n"), EXIT.failed);
}
