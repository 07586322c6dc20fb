import type { Config } from "../../config/shape.ts";
import { prepareFolders } from "../../places.ts";
import { inTheWay } from "../../service/answer-words.ts";
import type { Installed, ServiceManager, ServiceState } from "../../service/manager.ts";
import { EXIT } from "../../start-failure.ts";
import { version } from "../../version.ts";
import { atTerminal, saysYes } from "../ask.ts";
import { fail } from "../fail.ts";
import { saySentences } from "../say.ts";
import { tell } from "../tools/tell.ts";
import { told } from "../tools/told.ts";
import { usableConfig, wayIsFree } from "./before-install.ts";
import { type Health, whenHealthy } from "./healthy.ts";
import { notServing } from "./not-serving.ts";
import { sayPlan } from "./plan.ts";
import { createScene, type Scene, type SceneMeans } from "./scene.ts";
import { specHere } from "./spec-here.ts";
import { trySources } from "./try-sources.ts";
import { reachedManager } from "./without-manager.ts";

export interface InstallOptions {
  readonly config?: string;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

const NOTHING = "nothing was changed";

export async function install(options: InstallOptions, means: SceneMeans = {}): Promise<void> {
  const scene = await createScene({ ...means, config: options.config ?? means.config });
  const { places } = scene;
  if (options.dryRun && scene.manager !== null) return dryRun(scene, scene.manager);
  const manager = await reachedManager(scene);
  if (manager === null) return;
  const config = await usableConfig(places, NOTHING);
  if (config === null) return;
  const before = await manager.state();
  if (before.file.kind === "foreign") {
    const { why, next } = inTheWay(manager.file, before.file.why);
    return fail(`${why}\n→ ${next}\n${NOTHING}`, EXIT.failed);
  }
  if (!(await wayIsFree(places, config, before))) return;
  const faults = prepareFolders(places);
  if (faults.length > 0) return fail(faults.join("\n"), EXIT.badConfig);
  const { spec, warnings } = await specHere(scene, config, manager);
  tell(...warnings);
  const running = before.active === "running";
  const sources = await trySources(scene, manager, { config, spec, running });
  tell(
    ...sources.notes.map(({ whose, what, next }) => `${whose}: ${what}${next === null ? "" : ` → ${next}`}`),
  );
  if (sources.none && !(await goesOn(options))) return;
  const done = await manager.install(spec);
  await sayOutcome(done, { manager, before, scene, config, told: sources.notes.map(({ whose }) => whose) });
}

async function dryRun(scene: Scene, manager: ServiceManager): Promise<void> {
  const config = await usableConfig(scene.places, NOTHING);
  if (config === null) return;
  const answer = await manager.available();
  const { spec, warnings } = await specHere(scene, config, answer.ok ? manager : null);
  tell(...warnings);
  const steps = manager.plan(spec);
  sayPlan(steps);
  const found = await manager.found();
  const [first] = steps;
  if (found.kind === "foreign")
    tell(`${manager.file} is there already and would be left alone: ${found.why}`);
  else if (found.kind === "ours" && first?.kind === "write" && first.text === found.text)
    tell(`${manager.file} holds just this already: nothing would be written`);
  if (!answer.ok) tell(`as things are, it could not be installed: ${answer.why}`);
}

/** A service that can serve no tool is hardly what is wanted. */
async function goesOn({ yes }: InstallOptions): Promise<boolean> {
  if (yes) return true;
  if (!atTerminal()) {
    told(
      `no tool would have a key. if you want it all the same: keybearer service install --yes\n${NOTHING}`,
      EXIT.usage,
    );
    return false;
  }
  if (await saysYes("no tool would have a key. install it all the same?")) return true;
  told(`not installed; ${NOTHING}`, EXIT.failed);
  return false;
}

interface Around {
  readonly manager: ServiceManager;
  readonly before: ServiceState;
  readonly scene: Scene;
  readonly config: Config;
  /** Whose keys were spoken of already. */
  readonly told: readonly string[];
}

async function sayOutcome(done: Installed, around: Around): Promise<void> {
  const { manager, before, scene } = around;
  if (done.ok) saySentences(writtenInWords(done, manager.file));
  if (done.ok && before.file.kind === "ours" && before.file.unit.config !== scene.places.config)
    saySentences(`it went by ${before.file.unit.config} before, and goes by ${scene.places.config} now`);
  const health = done.ok ? await whenHealthy(manager, scene.places.socket) : await failed(manager, done.why);
  if (!health.ok) return notServing(manager, health);
  sayHealthy(health, around.told);
  const linger = await manager.lingerHint();
  if (linger !== null) saySentences(linger);
}

async function failed(manager: ServiceManager, why: string): Promise<Health & { ok: false }> {
  return { ok: false, why, state: await manager.state() };
}

function writtenInWords({ before, restarted }: Installed & { ok: true }, file: string): string {
  if (before === "none") return `installed ${file}`;
  if (before === "same" && !restarted) return `${file} is as it should be; nothing was written`;
  const again = restarted ? "; the running one let its requests finish and was started anew" : "";
  return `${before === "same" ? file : `wrote ${file} anew`}${again}`;
}

function sayHealthy({ status, state }: Health & { ok: true }, toldOf: readonly string[]): void {
  saySentences(`it runs as pid ${state.pid}, and answers on ${status.listen.join(" and ")}`);
  if (status.version !== version())
    tell(
      `the running one is keybearer ${status.version}, this one is ${version()} → keybearer service restart`,
    );
  for (const { name, state: held, why, next } of status.tools) {
    if (held !== "key-unavailable" && held !== "needs-trust") continue;
    if (!toldOf.includes(`tool ${name}`)) tell(`tool ${name}: ${why}${next === null ? "" : ` → ${next}`}`);
  }
}
