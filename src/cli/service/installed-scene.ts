import type { Paths } from "../../core/paths.ts";
import { createScene, placesOf, type Scene, type SceneDeps } from "./scene.ts";

export interface InstalledScene extends Scene {
  /** Where this shell has its files, which need not be where the service has them. */
  readonly shellPlaces: Paths;
}

/**
 * The scene as the installed service has it, whatever the variables of this shell say: its data, its control socket and,
 * under launchd, its log lie among its own files. Without one of ours, as this shell has it.
 */
export async function installedScene(deps: SceneDeps = {}): Promise<InstalledScene> {
  const scene = await createScene(deps);
  const shellPlaces = scene.paths;
  const file = await scene.manager?.found();
  if (file?.kind !== "ours") return { ...scene, shellPlaces };
  const paths = placesOf(file.unit, scene);
  if (scene.manager?.kind !== "launchd") return { ...scene, paths, shellPlaces };
  const { home, environment, config } = file.unit;
  const env = { ...scene.env, ...environment, KEYBEARER_HOME: home ?? "" };
  return { ...(await createScene({ ...deps, env, config })), paths, shellPlaces, env: scene.env };
}
