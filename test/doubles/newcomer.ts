import { readdirSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import type { Test } from "tap";
import { cellsOf } from "../../src/cli/columns.ts";
import { newKey, startSandbox } from "../sandbox/sandbox-under-test.ts";
import { newHome } from "./command.ts";
import { startHoldingStreams } from "./held-streams.ts";
import { filesBelow } from "./secret-scan.ts";
import { openShell } from "./terminal.ts";

/** A newcomer with a home, a shell and three keys from the console of a gateway. */
export async function arrive(t: Test) {
  const sandbox = await startSandbox(t, { wordDelay: 3 });
  const gateway = await startHoldingStreams(t, Number(new URL(sandbox.origin).port));
  const home = await newHome(t);
  const shell = await openShell(t, home);
  const [first, second, next] = [newKey(sandbox), newKey(sandbox), newKey(sandbox)];
  const parts: Record<string, string> = {};
  let seen = 0;
  return {
    sandbox,
    gateway,
    home,
    shell,
    keys: { first, second, next, mistyped: { text: first.text.slice(0, -4) } },
    parts,
    /** What the screen showed since the last part, under a name. */
    part(name: string): string {
      const text = shell.screen().slice(seen);
      seen += text.length;
      parts[name] = text;
      return text;
    },
  };
}

export type Walk = Awaited<ReturnType<typeof arrive>>;

export function secretsOf({ keys }: Walk): Record<string, string> {
  return Object.fromEntries(Object.entries(keys).map(([name, { text }]) => [`the ${name} key`, text]));
}

/** Arguments of every process here, and the environment of those that are ours. */
export function processes(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const argv = readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ");
      found[`the arguments of ${pid}`] = argv;
      if (argv.includes("cli/main.js"))
        found[`the environment of ${pid}`] = readFileSync(`/proc/${pid}/environ`, "latin1");
    } catch {
      // It has ended, or is another user's.
    }
  }
  return found;
}

/** By where they lie, and byte for character. */
export function filesOf({ home }: Walk): Record<string, string> {
  const paths = filesBelow(home);
  return Object.fromEntries(paths.map((path) => [relative(home, path), readFileSync(path, "latin1")]));
}

/** Lines of more than 80 cells, beside what is typed and what is to be copied whole. */
export function tooWide({ parts }: Walk): string[] {
  return Object.values(parts)
    .flatMap((text) => text.split("\n"))
    .filter((line) => !/^\[\d+\] \$ |^ *→ |kb_|: http:|type yes: /.test(line))
    .filter((line) => cellsOf(line) > 80);
}
