import { realpathSync } from "node:fs";
import type { Config } from "../../config/shape.ts";
import type { ServiceManager } from "../../service/manager.ts";
import { nodePath } from "../../service/node-path.ts";
import { packagePath } from "../../service/package-path.ts";
import { type ServiceSpec, specOf } from "../../service/spec.ts";
import { template } from "../../service/template.ts";
import { namespaceTrial } from "../../service/unit.ts";
import type { Scene } from "./scene.ts";

export interface SpecHere {
  readonly spec: ServiceSpec;
  /** About paths that an upgrade takes away. */
  readonly warnings: readonly string[];
}

/** What a service on this machine is to be started with. `manager` is null where none answers. */
export async function specHere(
  scene: Scene,
  config: Config,
  manager: ServiceManager | null,
): Promise<SpecHere> {
  const { places, env } = scene;
  const node = nodePath(scene.node, { realpath });
  const main = packagePath(scene.main, { realpath });
  const namespaces = await mayHaveNamespaces(scene, config, manager);
  const warnings = [node.warning, main.warning].filter((words) => words !== null);
  return { spec: specOf({ node: node.path, main: main.path, places, env, namespaces }), warnings };
}

const TRIAL_MS = 15_000;

/** Where no manager can be asked, as the template has it. */
async function mayHaveNamespaces(
  { run }: Scene,
  { tools }: Config,
  manager: ServiceManager | null,
): Promise<boolean> {
  if (Object.values(tools).some(({ process }) => process !== null)) return false;
  if (manager?.kind !== "systemd") return true;
  return (await run(namespaceTrial(template("keybearer.service")), { timeoutMs: TRIAL_MS })).code === 0;
}

function realpath(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}
