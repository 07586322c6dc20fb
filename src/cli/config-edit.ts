import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { loadConfig, readText } from "../config/load.ts";
import { formatProblems } from "../config/problems.ts";
import { advice } from "../core/advice.ts";
import { EXIT, errorMessage } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { createPrivateFile } from "../core/private-file.ts";
import { count } from "../usage/reports/format.ts";
import { activeRevision, waitUntilActive } from "./config-change.ts";
import { writeHere } from "./config-here.ts";
import { fail, type Message, notice, printText } from "./ui/messages.ts";
import { confirm } from "./ui/prompts.ts";
import { deferSignals } from "./ui/signals.ts";
import { commandPaths, stdio } from "./ui/stdio.ts";
import { isInteractive } from "./ui/terminal.ts";

/** `keybearer config edit`: the editor works on a copy, so config.yaml never holds a text with a mistake in it. */
export async function edit(options: { readonly config?: string }): Promise<void> {
  const paths = commandPaths(options.config);
  if (!isInteractive())
    return fail(
      {
        problem: `config edit needs a person at a terminal. a script can edit ${paths.config} itself`,
        next: advice.check(),
      },
      EXIT.usage,
    );
  const read = await readText(paths.config);
  if (read.text === null)
    return fail({ problem: read.problem, next: read.found ? null : advice.init() }, EXIT.failed);
  // Beside config.yaml, in a folder that is private. It ends in .yaml, so that editors know its syntax.
  const copy = join(dirname(paths.config), `.config.edit.${randomBytes(12).toString("hex")}.yaml`);
  try {
    await createPrivateFile(copy, read.text);
  } catch (error) {
    return fail(`cannot make a copy beside ${paths.config}: ${errorMessage(error)}`, EXIT.failed);
  }
  // Ctrl-C reaches this program, too, while it is meant for the editor.
  const isDone = await deferSignals(() => editCopy(paths, copy, read.text));
  if (isDone) await rm(copy, { force: true });
  else notice(`your text is kept in ${copy}`);
}

/** False: the copy holds changes that were not applied, and the reason was printed. */
async function editCopy(paths: Paths, copy: string, before: string): Promise<boolean> {
  for (;;) {
    const ended = await runEditor(copy);
    const { found, text, config, problems } = await loadConfig(copy, { home: paths.home, strict: true });
    if (text === before || !found) {
      if (ended !== null) fail(ended, EXIT.failed);
      else printText("nothing was changed");
      return true;
    }
    if (ended !== null) {
      fail(`${ended}; nothing was changed`, EXIT.failed);
      return false;
    }
    if (problems.length > 0) notice(formatProblems(paths.config, problems));
    if (config !== null && text !== null) return apply(paths, before, text);
    const errors = problems.filter(({ severity }) => severity === "error").length;
    if (await confirm(`${count(errors, "problem")}. open the editor again?`, "yes")) continue;
    fail("not applied; nothing was changed", EXIT.badConfig);
    return false;
  }
}

async function apply(paths: Paths, before: string, text: string): Promise<boolean> {
  const revision = await activeRevision(paths);
  const written = await writeHere(paths, before, text);
  if (!written.ok) {
    fail(written, EXIT.failed);
    return false;
  }
  printText(`${paths.config} is saved`);
  const effect = await waitUntilActive(paths, "", (_tool, current) => current > revision);
  if (effect.state === "not in force") fail({ ...effect, problem: `but ${effect.problem}` }, EXIT.failed);
  else if (effect.state === "in force") printText("the running keybearer uses it from the next request on");
  return true;
}

/** By a shell, as git does it: the variable may hold arguments, such as `code --wait`. null: it ended well. */
function runEditor(file: string): Promise<Message | null> {
  const { env } = stdio();
  const editor = env.VISUAL || env.EDITOR || "vi";
  return new Promise((resolve) => {
    const child = spawn("/bin/sh", ["-c", `${editor} "$1"`, "sh", file], { stdio: "inherit", env });
    child.once("error", (error) => resolve(`the editor cannot be started: ${errorMessage(error)}`));
    child.once("close", (code, signal) => {
      if (code === 0) resolve(null);
      // The shell's own codes for a program that is missing or cannot be run.
      else if (code === 126 || code === 127)
        resolve({ problem: `the editor ${editor} cannot be started`, next: "set EDITOR to another" });
      else resolve(`the editor ended with ${code === null ? signal : `exit code ${code}`}`);
    });
  });
}
