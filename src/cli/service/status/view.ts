import { existsSync } from "node:fs";
import { loadConfig } from "../../../config/load.ts";
import { type Asked, askDaemon } from "../../../control/client.ts";
import type { Status } from "../../../control/status.ts";
import { findPaths } from "../../../core/paths.ts";
import { version } from "../../../core/version.ts";
import type { ServiceManager, ServiceState } from "../../../service/manager.ts";
import { answersHealth } from "../healthy.ts";
import { leadsTo, placesOf, type Scene } from "../scene.ts";
import { blindNote } from "./blind-tools.ts";
import type { ServiceNote } from "./service-note.ts";

/** Everything that is known of the service at one moment. */
export interface ServiceView {
  readonly kind: ServiceManager["kind"];
  readonly path: string;
  readonly state: ServiceState;
  readonly asked: Asked<Status>;
  /** The daemon that answers is the service's own process. */
  readonly own: boolean;
  /** /healthz said 200. */
  readonly answers: boolean;
  /** Whether what the file names is there, and is this program. null: nothing of ours is installed. */
  readonly start: {
    readonly nodeThere: boolean;
    readonly mainThere: boolean;
    readonly sameNode: boolean;
    readonly sameMain: boolean;
    readonly sameConfig: boolean;
    readonly sameHome: boolean;
  } | null;
  /** Of this program. */
  readonly here: { readonly version: string; readonly node: string; readonly main: string };
  /** The file that this command was told, or would go by. */
  readonly config: string;
  /** The file that is gone by where none is named. */
  readonly usual: string;
  /** See blindNote. */
  readonly blind: ServiceNote | null;
}

const PATIENCE_MS = 3000;

export async function viewOf(scene: Scene, manager: ServiceManager): Promise<ServiceView> {
  const { paths, node, main, env } = scene;
  const state = await manager.state();
  const unit = state.file.kind === "ours" ? state.file.unit : null;
  const { socket, home } = unit === null ? paths : placesOf(unit, scene);
  const config = unit === null ? null : (await loadConfig(unit.config, { home, strict: false })).config;
  const asked = await askDaemon<Status>(socket, "GET", "/status", undefined, PATIENCE_MS);
  const address = asked.ok ? asked.value.listen[0] : undefined;
  return {
    ...{ kind: manager.kind, path: manager.file, state, asked, config: paths.config },
    usual: findPaths({ env, home: paths.home }).config,
    blind: config === null ? null : blindNote(config, state),
    own: asked.ok && asked.value.pid === state.pid,
    answers: address !== undefined && (await answersHealth(address)),
    start:
      unit === null
        ? null
        : {
            nodeThere: existsSync(unit.node),
            mainThere: existsSync(unit.main),
            sameNode: leadsTo(unit.node, node),
            sameMain: leadsTo(unit.main, main),
            // What was named at the installation was named on purpose. Only what is named now can differ from it.
            sameConfig: unit.config === paths.config || !paths.explicit,
            sameHome: socket === paths.socket || !env.KEYBEARER_HOME,
          },
    here: { version: version(), node, main },
  };
}
