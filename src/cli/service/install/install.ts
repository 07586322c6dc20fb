import { existsSync } from "node:fs";
import type { Config } from "../../../config/shape.ts";
import { EXIT } from "../../../core/errors.ts";
import { findPaths, prepareFolders } from "../../../core/paths.ts";
import { version } from "../../../core/version.ts";
import { shellWord } from "../../../keys/words.ts";
import { inTheWay } from "../../../service/answer-words.ts";
import { startedNotes } from "../../../service/key-sources.ts";
import type { FoundFile, Installed, ServiceManager, ServiceState } from "../../../service/manager.ts";
import { notifyFault } from "../../../service/systemd/notify.ts";
import { fail, failNull, notice, printText } from "../../ui/messages.ts";
import { confirm } from "../../ui/prompts.ts";
import { isInteractive } from "../../ui/terminal.ts";
import { type Health, whenHealthy } from "../healthy.ts";
import type { Scene, SceneDeps } from "../scene.ts";
import { checkCommand } from "../status/exit-words.ts";
import { notServing } from "../status/not-serving.ts";
import { reachedManager } from "../without-manager.ts";
import { usableConfig, wayIsFree } from "./before-install.ts";
import { installScene } from "./install-scene.ts";
import { sayPlan } from "./plan.ts";
import { specHere } from "./spec-here.ts";
import { trySources } from "./try-sources.ts";

export interface InstallOptions {
  readonly config?: string;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

const NOTHING = "nothing was changed";

export async function install(options: InstallOptions, deps: SceneDeps = {}): Promise<void> {
  const { scene, kept, lost } = await installScene({ ...deps, config: options.config ?? deps.config });
  const { paths } = scene;
  const manager = options.dryRun && scene.manager !== null ? scene.manager : await reachedManager(scene);
  if (manager === null) return;
  if (lost !== null) return fail(`${lost}\n${NOTHING}`, EXIT.badConfig);
  const config = await usableConfig(paths, NOTHING);
  if (config === null) return;
  const before = await manager.state();
  const refused = whyNot(manager, before.file);
  if (refused !== null) return fail(`${refused}\n${NOTHING}`, EXIT.failed);
  if (!(await wayIsFree(paths, config, before))) return;
  notice(...kept);
  if (options.dryRun) return dryRun(scene, manager, { config, before });
  const faults = prepareFolders(paths);
  if (faults.length > 0) return fail(faults.join("\n"), EXIT.badConfig);
  const { spec, warnings } = await specHere(scene, config, manager, before.file);
  notice(...warnings);
  const running = before.active === "running";
  const sources = await trySources(scene, manager, { config, spec, running });
  notice(
    ...sources.notes.map(({ whose, what, next }) => `${whose}: ${what}${next === null ? "" : ` → ${next}`}`),
  );
  if (sources.none && !(await goesOn(options))) return;
  const done = await manager.install(spec);
  await sayOutcome(done, {
    manager,
    before,
    scene,
    config,
    told: sources.notes.map(({ whose }) => whose),
  });
}

/** What only a person can mend; null: nothing of the kind. */
function whyNot(manager: ServiceManager, file: FoundFile): string | null {
  if (file.kind === "foreign") {
    const { why, next } = inTheWay(manager.file, file.why);
    return `${why}\n→ ${next}`;
  }
  return manager.kind === "systemd" ? notifyFault() : null;
}

/** All refusals lie behind it: what is left is what would be done. */
async function dryRun(
  scene: Scene,
  manager: ServiceManager,
  { config, before }: { readonly config: Config; readonly before: ServiceState },
): Promise<void> {
  const answer = await manager.available();
  const { spec, warnings, tried } = await specHere(scene, config, answer.ok ? manager : null, before.file);
  notice(...warnings);
  if (tried !== null)
    notice(`to know what the unit may ask for, this was run: ${tried.map(shellWord).join(" ")}`);
  const plan = await manager.plan(spec);
  if (!plan.ok) return fail(`${plan.why}\n→ ${plan.next}\n${NOTHING}`, EXIT.failed);
  const missing = [scene.paths.state, scene.paths.run].filter((folder) => !existsSync(folder));
  sayPlan([...missing.map((folder) => ({ kind: "make" as const, folder })), ...plan.steps]);
  if (!plan.steps.some(({ kind }) => kind === "write")) notice(`${manager.file} is as it should be already`);
  if (!answer.ok) notice(`as things are, it could not be installed: ${answer.why}`);
}

/** A service that can serve no tool is hardly what is wanted. */
async function goesOn({ yes }: InstallOptions): Promise<boolean> {
  if (yes) return true;
  if (!isInteractive()) {
    failNull(
      `no tool would have a key. if you want it all the same: keybearer service install --yes\n${NOTHING}`,
      EXIT.usage,
    );
    return false;
  }
  if (await confirm("no tool would have a key. install it all the same?")) return true;
  failNull(`not installed; ${NOTHING}`, EXIT.failed);
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
  if (!done.ok && done.next !== null) return fail(`${done.why}\n→ ${done.next}`, EXIT.failed);
  if (done.ok) printText(writtenInWords(done, manager.file));
  if (done.ok && before.file.kind === "ours" && before.file.unit.config !== scene.paths.config)
    printText(`it went by ${before.file.unit.config} before, and goes by ${scene.paths.config} now`);
  const health = done.ok ? await whenHealthy(manager, scene.paths.socket) : await failed(manager, done.why);
  if (!health.ok) return notServing(manager, health, checkCommand(scene.paths.config, usualConfig(scene)));
  sayHealthy(health, around);
  const linger = await manager.lingerHint();
  if (linger !== null) printText(linger);
}

function usualConfig({ env, paths: { home } }: Scene): string {
  return findPaths({ env, home }).config;
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

function sayHealthy(
  { status, state }: Health & { ok: true },
  { manager, config, told: earlier }: Around,
): void {
  printText(`it runs as pid ${state.pid}, and answers on ${status.listen.join(" and ")}`);
  if (status.version !== version())
    notice(
      `the running one is keybearer ${status.version}, this one is ${version()} → keybearer service restart`,
    );
  const without = startedNotes(status.tools, manager.kind);
  for (const { whose, what, next } of without)
    if (!earlier.includes(whose)) notice(`${whose}: ${what}${next === null ? "" : ` → ${next}`}`);
  const wanted = Object.values(config.tools).filter(({ enabled, watchOnly }) => enabled && !watchOnly);
  if (wanted.length > 0 && without.length >= wanted.length)
    notice("no tool has a key: it runs, and serves none of them");
}
