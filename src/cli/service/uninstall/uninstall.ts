import { existsSync } from "node:fs";
import { join } from "node:path";
import { loadConfig } from "../../../config/load.ts";
import { askDaemon } from "../../../control/client.ts";
import type { Status } from "../../../control/status.ts";
import { EXIT } from "../../../core/errors.ts";
import type { Paths } from "../../../core/paths.ts";
import { shellWord } from "../../../keys/words.ts";
import { inTheWay } from "../../../service/answer-words.ts";
import type { ServiceManager } from "../../../service/manager.ts";
import { fail, failNull, print, printText } from "../../ui/messages.ts";
import { confirm } from "../../ui/prompts.ts";
import { isInteractive } from "../../ui/terminal.ts";
import { sayPlan } from "../install/plan.ts";
import { type InstalledScene, installedScene } from "../installed-scene.ts";
import type { Scene, SceneDeps } from "../scene.ts";
import { reachedManager } from "../without-manager.ts";
import { type PurgePlan, purge, purgePlan } from "./purge.ts";

export interface UninstallOptions {
  readonly purge?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
}

const NOTHING = "nothing was changed";

/** Keeps config.yaml, keys and the usage log, unless they are to go as well. */
export async function uninstall(options: UninstallOptions, deps: SceneDeps = {}): Promise<void> {
  const scene = await installedScene(deps);
  const { manager } = scene;
  const asks = options.purge === true && !options.yes && !options.dryRun;
  if (asks && !isInteractive())
    return fail(
      `nobody is here to ask. if you are sure: keybearer service uninstall --purge --yes\n${NOTHING}`,
      EXIT.usage,
    );
  const elsewhere = options.purge ? otherPlaces(scene) : null;
  if (elsewhere !== null) return fail(`${elsewhere}\n${NOTHING}`, EXIT.failed);
  const goes = options.purge ? await purgeHere(scene) : undefined;
  if (goes === null) return;
  if (options.dryRun) return sayWhatWould(manager, goes);
  // Before the first change.
  if (asks && goes !== undefined && !(await saysPurge(goes))) return;
  if (manager !== null && !(await removeService(scene, manager))) return;
  if (goes === undefined) return printText(`${scene.paths.config} and the usage log stay (--purge)`);
  await purgeNow(scene, goes);
}

/**
 * Why it is not clear whose data is meant; null: it is. What the person sees in this shell, and may have in mind, must
 * be what goes.
 */
function otherPlaces({ paths, shellPlaces }: InstalledScene): string | null {
  const sameData = paths.state === shellPlaces.state && paths.run === shellPlaces.run;
  const sameConfig = paths.config === shellPlaces.config || !existsSync(shellPlaces.config);
  if (sameData && sameConfig) return null;
  const [theirs, ours] = sameData
    ? [paths.config, shellPlaces.config]
    : [`${paths.config} and ${paths.state}`, `${shellPlaces.config} and ${shellPlaces.state}`];
  return `--purge takes nothing away here: the service has ${theirs}, and this shell ${ours}\n→ ${purgeThere(paths, shellPlaces)}`;
}

function purgeThere({ own, state }: Paths, shell: Paths): string {
  const [folder = ""] = own;
  const home = state === join(folder, "state") ? folder : "";
  if (state === shell.state)
    return "keybearer service uninstall, then remove by hand what you no longer want";
  const set = home === "" ? "env -u KEYBEARER_HOME" : `KEYBEARER_HOME=${shellWord(home)}`;
  return `${set} keybearer service uninstall --purge, for what the service has`;
}

async function sayWhatWould(manager: ServiceManager | null, goes: PurgePlan | undefined): Promise<void> {
  const plan = await manager?.planRemoval();
  if (plan?.ok === false) return fail(`${plan.why}\n→ ${plan.next}\n${NOTHING}`, EXIT.failed);
  if (plan !== undefined && plan.steps.length > 0) sayPlan(plan.steps);
  else printText("the service is not installed");
  if (goes !== undefined) sayPurge(goes, "would remove");
}

/** null: the person has been told why it cannot be. */
async function purgeHere({ paths }: Scene): Promise<PurgePlan | null> {
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  const plan = purgePlan(paths, config);
  if (typeof plan !== "string") return plan;
  return failNull(`--purge takes nothing away here: ${plan}\n${NOTHING}`, EXIT.failed);
}

async function saysPurge(goes: PurgePlan): Promise<boolean> {
  sayPurge(goes, "to be removed:");
  if (await confirm("remove the service and all of this, for good?")) return true;
  fail(`not removed; ${NOTHING}`, EXIT.failed);
  return false;
}

/** false: it is still there, and the person knows why. */
async function removeService(scene: Scene, manager: ServiceManager): Promise<boolean> {
  const file = await manager.found();
  if (file.kind === "foreign") {
    const { why, next } = inTheWay(manager.file, file.why);
    fail(`${why}\n→ ${next}\n${NOTHING}`, EXIT.failed);
    return false;
  }
  const answer = await manager.available();
  // The manager may still run one whose file is gone.
  const loaded = answer.ok && (await manager.state()).active !== "stopped";
  if (file.kind === "none" && !loaded) {
    printText(`the service is not installed: there is no ${manager.file}`);
    return true;
  }
  if ((await reachedManager(scene)) === null) return false;
  const done = await manager.uninstall();
  if (!done.ok) {
    fail(`${done.why}\n→ ${done.next ?? "keybearer service status"}`, EXIT.failed);
    return false;
  }
  printText(`the service is stopped, and ${manager.file} is removed`);
  return true;
}

async function purgeNow({ paths }: Scene, goes: PurgePlan): Promise<void> {
  const asked = await askDaemon<Status>(paths.socket, "GET", "/status", undefined, 3000);
  if (asked.ok || asked.running) {
    const pid = asked.ok ? `, as pid ${asked.value.pid}` : "";
    const words = `keybearer still runs here${pid} → stop it, then try again`;
    return fail(`${words}\nconfiguration and data were left as they are`, EXIT.alreadyRunning);
  }
  const faults = purge(goes);
  sayPurge(goes, "removed");
  if (faults.length > 0) fail(`this could not be removed:\n${faults.join("\n")}`, EXIT.failed);
}

function sayPurge({ removes, leaves }: PurgePlan, word: string): void {
  print(...removes.map((path) => `${word} ${path}`), ...leaves.map((words) => `stays: ${words}`));
  if (removes.length > 0)
    printText("a key that was kept here still works: delete it in the gateway's console");
}
