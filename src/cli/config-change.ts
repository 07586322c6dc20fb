import { realpath } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { redactedDiff } from "../clients/diff.ts";
import { checkedEdit } from "../config/checked-edit.ts";
import type { EditResult } from "../config/edit.ts";
import { type Edited, editFile, editFileIfConfirmed } from "../config/edit-file.ts";
import { noSuchTool } from "../config/edit-tools.ts";
import { formatProblems } from "../config/problems.ts";
import { redactValidConfig } from "../config/redact.ts";
import type { Config, Tool } from "../config/schema.ts";
import { askDaemon } from "../control/client.ts";
import type { CutAnswer } from "../control/routes.ts";
import type { Status } from "../control/status.ts";
import type { ToolStatus } from "../control/tool-status.ts";
import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import type { Failed, Problem } from "../core/display.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { count } from "../usage/reports/format.ts";
import { editSystem, loadHere } from "./config-here.ts";
import { fail, failNull, type Message, print, printDiff, printText } from "./ui/messages.ts";

/* What every command that reads or changes config.yaml shares. */

/** null: the file cannot be used, and its problems were printed. */
export async function readConfig(paths: Paths): Promise<Config | null> {
  const { found, config, problems } = await loadHere(paths, { strict: false });
  if (config !== null) return config;
  if (!found)
    return failNull({ problem: `there is no ${paths.config}`, next: advice.init() }, EXIT.badConfig);
  return failNull(formatProblems(paths.config, problems), EXIT.badConfig);
}

/** null: there is no such tool, and that was printed. */
export function findTool({ tools }: Config, name: string): Tool | null {
  return tools[name] ?? failNull(noSuchTool(name, Object.keys(tools)), EXIT.failed);
}

/** Works without a daemon; a running one reloads the file by itself. null: nothing changed, and the reason was printed. */
export async function editConfig<Result extends { readonly ok: true; readonly text: string }>(
  paths: Paths,
  edit: (text: string) => Result | Failed,
  confirm?: () => Promise<boolean>,
): Promise<Edited<Result> | null> {
  const { config: file, mode } = paths;
  let edited: Edited<Result> | Failed | null;
  if (mode === "system") edited = await editSystem(paths, edit, confirm);
  else if (confirm === undefined) edited = await editFile(file, edit);
  else edited = await editFileIfConfirmed(file, edit, confirm);
  return edited === null || edited.ok ? edited : failNull(edited, EXIT.failed);
}

/**
 * Edits config.yaml if it is valid afterwards, and prints the difference. Returns whether the text changed; null: it was
 * not edited, and the reason was printed.
 */
export async function editChecked(paths: Paths, edit: (text: string) => EditResult): Promise<boolean | null> {
  const { config: file, home } = paths;
  let before = "";
  const edited = await editConfig(paths, (text) => {
    before = text;
    return checkedEdit(text, edit, home);
  });
  if (edited === null) return null;
  printDiff(redactedDiff(file, redactValidConfig(before), redactValidConfig(edited.result.text)));
  return edited.changed;
}

/** Whether the running daemon uses the saved config.yaml. `tools rotate --json` prints the state. */
export type Effect =
  | { readonly state: "not running" }
  /** `tool` is undefined once it is removed. */
  | { readonly state: "in force"; readonly tool: ToolStatus | undefined }
  | ({ readonly state: "not in force" } & Problem);

const MAX_WAIT_MS = 5000;
const POLL_MS = 100;

/** Waits until the running daemon has reloaded the file: until the tool's status or the revision is as expected. */
export async function waitUntilActive(
  paths: Paths,
  name: string,
  isExpected: (tool: ToolStatus | undefined, revision: number) => boolean,
): Promise<Effect> {
  const deadline = systemClock.elapsed() + MAX_WAIT_MS;
  for (;;) {
    const asked = await askDaemon<Status>(paths, "GET", "/status");
    if (!asked.ok) return asked.running ? notInForce(asked) : { state: "not running" };
    const { tools, config } = asked.value;
    if (!(await isSameFile(config.path, paths.config)))
      return notInForce({
        problem: `the running keybearer uses another file, ${config.path}`,
        next: null,
      });
    const tool = tools.find((each) => each.name === name);
    if (isExpected(tool, config.revision)) return { state: "in force", tool };
    if (systemClock.elapsed() >= deadline) return notInForce(await explainInactive(paths));
    await pause(POLL_MS);
  }
}

/** The revision that the daemon uses; 0 without a daemon, which is before every revision. */
export async function activeRevision(paths: Paths): Promise<number> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  return asked.ok ? asked.value.config.revision : 0;
}

async function explainInactive(paths: Paths): Promise<Problem> {
  const { config: file } = paths;
  const { config } = await loadHere(paths, { strict: true });
  return config === null
    ? {
        problem: `${file} has problems, so the running keybearer keeps using the last valid version`,
        next: advice.check(),
      }
    : { problem: "the running keybearer has not reloaded it within 5 s", next: advice.status() };
}

export async function isSameFile(one: string, other: string): Promise<boolean> {
  const real = (path: string) => realpath(path).catch(() => path);
  return (await real(one)) === (await real(other));
}

function notInForce({ problem, next }: Problem): Effect {
  return { state: "not in force", problem, next };
}

/** Fails if the daemon does not use the new file. Prints why the tool still cannot be used, such as a missing key. */
export function reportEffect(effect: Effect, printLine: (message: Message) => void = printText): boolean {
  if (effect.state === "not in force") {
    fail({ ...effect, problem: `but ${effect.problem}` }, EXIT.failed);
    return false;
  }
  // Without advice it works again by itself, such as a limit per minute.
  if (effect.state === "in force" && effect.tool?.why && effect.tool.next !== null)
    printLine({ problem: `but ${effect.tool.why}`, next: effect.tool.next });
  return true;
}

interface CutOptions {
  /** Cut them now. */
  readonly now: boolean;
  /** The command that cuts them later; null: there is none. */
  readonly cutLater: string | null;
}

/** After a tool was disabled or removed: cuts its requests in flight, or says what becomes of them. */
export async function endInFlight(
  paths: Paths,
  name: string,
  effect: Effect,
  { now, cutLater }: CutOptions,
): Promise<void> {
  if (effect.state === "not running") {
    if (now) print("keybearer is not running, so no request is in flight");
    return;
  }
  // Nothing is cut: the daemon would accept the next request.
  if (effect.state === "not in force")
    return fail(
      { ...effect, problem: `but ${effect.problem}${now ? ". nothing was cut" : ""}` },
      EXIT.failed,
    );
  if (!now) {
    const running = effect.tool?.running ?? 0;
    if (running > 0)
      printText({
        problem: `${count(running, "request")} in flight: what was sent may finish, what waits for its gateway is refused`,
        next: cutLater,
      });
    return;
  }
  const path = `/cut/${encodeURIComponent(name)}`;
  const asked = await askDaemon<CutAnswer>(paths, "POST", path, {});
  if (!asked.ok)
    return fail({ ...asked, problem: `requests in flight were not cut: ${asked.problem}` }, EXIT.failed);
  const { cut } = asked.value;
  if (cut === 0) print("no request was in flight");
  else print(`${count(cut, "request")} in flight ${cut === 1 ? "was" : "were"} cut`);
}
