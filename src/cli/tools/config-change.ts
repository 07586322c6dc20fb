import { realpath } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { type Edited, editFile, editFileIfConfirmed, type NotEdited } from "../../config/edit-file.ts";
import { loadConfig } from "../../config/load.ts";
import { askDaemon } from "../../control/client.ts";
import type { CutAnswer } from "../../control/routes.ts";
import type { Status } from "../../control/status.ts";
import type { ToolStatus } from "../../control/tool-status.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { fail, failNull, print } from "../ui/messages.ts";

/** Works without a daemon, and a running one sees the save. null: it has been told why nothing was changed. */
export async function editConfig<Result extends { readonly ok: true; readonly text: string }>(
  file: string,
  edit: (text: string) => Result | NotEdited,
  confirm?: () => Promise<boolean>,
): Promise<Edited<Result> | null> {
  const edited = await (confirm === undefined
    ? editFile(file, edit)
    : editFileIfConfirmed(file, edit, confirm));
  return edited === null || edited.ok ? edited : failNull(edited.reason, EXIT.failed);
}

/** What a save of config.yaml came to. */
export type Effect =
  /** No daemon runs: it holds from the next start on. */
  | { readonly state: "not running" }
  /** The daemon goes by it. `tool` is undefined when it is gone. */
  | { readonly state: "in force"; readonly tool: ToolStatus | undefined }
  /** The daemon goes on as before. */
  | { readonly state: "not in force"; readonly reason: string };

const PATIENCE_MS = 5000;
const BETWEEN_MS = 100;

/** Waits until the running daemon, which sees the save by itself, shows what is wanted of the tool. */
export async function waitUntilActive(
  paths: Paths,
  name: string,
  wanted: (tool: ToolStatus | undefined, revision: number) => boolean,
  clock: Clock = systemClock,
): Promise<Effect> {
  const until = clock.elapsed() + PATIENCE_MS;
  for (;;) {
    const asked = await askDaemon<Status>(paths.socket, "GET", "/status");
    if (!asked.ok) {
      return asked.running ? notInForce(asked.reason) : { state: "not running" };
    }
    const { tools, config } = asked.value;
    if (!(await isSameFile(config.path, paths.config)))
      return notInForce(`the running keybearer goes by another file, ${config.path}`);
    const tool = tools.find((each) => each.name === name);
    if (wanted(tool, config.revision)) return { state: "in force", tool };
    if (clock.elapsed() >= until) return notInForce(await whyNot(paths));
    await wait(BETWEEN_MS);
  }
}

/** For what a tool's status does not show, such as which tokens it has. Without a daemon, before every revision. */
export async function activeRevision({ socket }: Paths): Promise<number> {
  const asked = await askDaemon<Status>(socket, "GET", "/status");
  return asked.ok ? asked.value.config.revision : 0;
}

/** Cuts a tool's requests under way. A text: why that could not be done. */
export async function cutInFlight(paths: Paths, name: string): Promise<number | string> {
  const asked = await askDaemon<CutAnswer>(paths.socket, "POST", `/cut/${encodeURIComponent(name)}`, {});
  return asked.ok ? asked.value.cut : asked.reason;
}

async function whyNot({ config: file, home }: Paths): Promise<string> {
  const { config } = await loadConfig(file, { home, strict: true });
  return config === null
    ? `${file} has problems, so the running keybearer goes by the last good one → keybearer check`
    : "the running keybearer has not taken it up within 5 s → keybearer status";
}

async function isSameFile(one: string, other: string): Promise<boolean> {
  const real = (path: string) => realpath(path).catch(() => path);
  return (await real(one)) === (await real(other));
}

function notInForce(reason: string): Effect {
  return { state: "not in force", reason };
}

export interface Ending {
  readonly now: boolean;
  /** What to type to cut them after all; null: there is nothing. */
  readonly again: string | null;
}

/** What becomes of a tool's requests under way after it was disabled or removed. */
export async function endInFlight(
  paths: Paths,
  name: string,
  effect: Effect,
  { now, again }: Ending,
): Promise<void> {
  switch (effect.state) {
    case "not running":
      if (now) print("keybearer is not running, so nothing is under way");
      return;
    case "not in force":
      // To cut would be in vain: the next request would be let in again.
      return fail(`but ${effect.reason}${now ? ". nothing was cut" : ""}`, EXIT.failed);
    case "in force": {
      const running = effect.tool?.running ?? 0;
      if (!now) {
        if (running > 0)
          print(`${requests(running)} under way may finish${again === null ? "" : ` → ${again}`}`);
        return;
      }
      const cut = await cutInFlight(paths, name);
      if (typeof cut === "string") return fail(`what is under way was not cut: ${cut}`, EXIT.failed);
      print(
        cut === 0 ? "nothing was under way" : `${requests(cut)} under way ${cut === 1 ? "was" : "were"} cut`,
      );
    }
  }
}

function requests(count: number): string {
  return count === 1 ? "1 request" : `${count} requests`;
}
