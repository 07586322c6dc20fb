import { realpathSync } from "node:fs";
import type { Config } from "../../../config/schema.ts";
import type { FoundFile, ServiceManager } from "../../../service/manager.ts";
import { nodePath } from "../../../service/node-path.ts";
import { packagePath } from "../../../service/package-path.ts";
import { type ServiceSpec, specOf } from "../../../service/spec.ts";
import { type Trial, trialIn } from "../../../service/systemd/namespaces.ts";
import { namespaceTrial } from "../../../service/systemd/unit.ts";
import { template } from "../../../service/template.ts";
import type { Scene } from "../scene.ts";
import { toolsByProcess } from "../status/blind-tools.ts";

export interface SpecHere {
  readonly spec: ServiceSpec;
  /** About paths that an upgrade takes away, and about what the unit does without. */
  readonly warnings: readonly string[];
  /** What was run to find out; null: nothing was. */
  readonly tried: readonly string[] | null;
}

/** What a service on this machine is to be started with. `manager` is null where none answers. */
export async function specHere(
  scene: Scene,
  config: Config,
  manager: ServiceManager | null,
  installed: FoundFile = { kind: "none" },
): Promise<SpecHere> {
  const { paths, env } = scene;
  const node = nodePath(scene.node, { realpath });
  const main = packagePath(scene.main, { realpath });
  const asks = manager?.kind === "systemd" && toolsByProcess(config).length === 0;
  const tried = asks ? namespaceTrial(template("keybearer.service")) : null;
  const trial = tried === null ? null : trialIn(await scene.run(tried, { timeoutMs: TRIAL_MS }));
  const { namespaces, warning } = trial === null ? untried(config) : afterTrial(trial, installed);
  const warnings = [node.warning, main.warning, warning].filter((words) => words !== null);
  return { spec: specOf({ node: node.path, main: main.path, paths, env, namespaces }), warnings, tried };
}

const TRIAL_MS = 15_000;
const VIEW = "a read-only view of the file system";

interface Decision {
  readonly namespaces: boolean;
  readonly warning: string | null;
}

/** Where no manager can be asked, as the template has it. */
function untried(config: Config): Decision {
  return { namespaces: toolsByProcess(config).length === 0, warning: null };
}

/** A trial that could not be made says nothing against what works. */
function afterTrial(trial: Trial, installed: FoundFile): Decision {
  if (trial.granted) return { namespaces: true, warning: null };
  const kept = trial.granted === null && installed.kind === "ours" ? installed.unit.namespaces : false;
  const words = kept ? `the unit keeps ${VIEW}, untried` : `the unit does without ${VIEW}`;
  return { namespaces: kept, warning: `${words}: ${trial.why}` };
}

function realpath(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}
