import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { quoteForShell } from "../../../core/display.ts";
import type { Paths } from "../../../core/paths.ts";
import { createScene, type Scene, type SceneDeps } from "../scene.ts";

export interface InstallScene {
  readonly scene: Scene;
  /** What the installed one has otherwise than this shell, and keeps: to be told. */
  readonly kept: readonly string[];
  /** The file it would keep to is not there any more: what to do. null: it is, or another was named. */
  readonly lost: string | null;
}

/**
 * What was named when it was installed stays, unless another file or folder is named now: the command that repairs a
 * service is typed in any shell, and must not move it to other files.
 */
export async function installScene(deps: SceneDeps): Promise<InstallScene> {
  const scene = await createScene(deps);
  const found = await scene.manager?.found();
  if (found?.kind !== "ours") return { scene, kept: [], lost: null };
  const { unit } = found;
  const { KEYBEARER_HOME: home, ...variables } = scene.env;
  if (home && resolve(home) !== unit.home) return { scene, kept: [], lost: null };
  const env = { ...unit.environment, ...variables, KEYBEARER_HOME: unit.home ?? "" };
  const config = deps.config ?? unit.config;
  const again = await createScene({ ...deps, env, config });
  const manager = again.manager?.kind === "launchd" ? again.manager : scene.manager;
  return {
    scene: { ...again, manager },
    kept: keptInWords(scene.paths, again.paths),
    lost: deps.config === undefined && !existsSync(config) ? lostInWords(config, scene.paths.config) : null,
  };
}

function keptInWords(here: Paths, kept: Paths): string[] {
  const words: string[] = [];
  if (kept.config !== here.config)
    words.push(`it keeps to ${kept.config}, as it was installed (for another: --config)`);
  if (kept.state !== here.state) words.push(`it keeps its files in ${kept.state}, as it was installed`);
  return words;
}

function lostInWords(config: string, usual: string): string {
  const there = usual !== config && existsSync(usual);
  const other = there
    ? `keybearer service install --config ${quoteForShell(usual)}`
    : "keybearer service install --config <file>";
  return `the installed service goes by ${config}, which is not there any more → put it back, or name another: ${other}`;
}
