import { realpathSync } from "node:fs";
import { join } from "node:path";
import type { RunCommand } from "../command-runner.ts";
import { readProperties } from "./systemd-answers.ts";

export interface UnitFolder {
  readonly folder: string;
  /** The manager would never look there, in words; null: it does, or did not say. */
  readonly fault: string | null;
}

const ANSWER_MS = 3000;
const USUAL = "/.config/systemd/user";

/**
 * Where the user manager looks: below its own HOME or XDG_CONFIG_HOME, which need not be the shell's, as after su, with
 * sudo, or with a HOME that was set for one command. Without an answer, where it looks unless told otherwise.
 */
export async function unitFolder(
  run: RunCommand,
  { home, configHome }: { readonly home: string; readonly configHome: string | undefined },
): Promise<UnitFolder> {
  const usual = `${home}${USUAL}`;
  const own = configHome?.startsWith("/") ? join(configHome, "systemd", "user") : usual;
  const asked = await run(["systemctl", "--user", "show", "--property=UnitPath"], { timeoutMs: ANSWER_MS });
  const known = (readProperties(asked.stdout).get("UnitPath") ?? "").split(" ").filter((path) => path !== "");
  const folder = known.includes(own) ? own : usual;
  // A path that systemctl writes in quotes is not told apart from its neighbours: then nothing is said.
  if (known.length === 0 || known.includes(folder) || !/^[\w/.@+-]+$/.test(folder))
    return { folder, fault: null };
  const theirs = known.find((path) => path.endsWith(USUAL))?.slice(0, -USUAL.length);
  if (theirs !== undefined && isSame(theirs, home)) return { folder, fault: null };
  const where = theirs === undefined ? `only in ${known[0]} and the like` : `below ${theirs}`;
  const fault = `HOME is ${home} here, but the user manager looks for units ${where}, and would never find ${folder}`;
  return { folder, fault };
}

/** One of them may lead through a link. */
function isSame(one: string, other: string): boolean {
  try {
    return realpathSync(one) === realpathSync(other);
  } catch {
    return false;
  }
}
