import { EXIT } from "../../core/errors.ts";
import { prepareFolders } from "../../core/paths.ts";
import { inTheWay } from "../../service/answer-words.ts";
import { fail, notice, printText } from "../ui/messages.ts";
import { whenHealthy } from "./healthy.ts";
import { wayIsFree } from "./install/before-install.ts";
import { installedConfig } from "./installed-config.ts";
import { installedScene } from "./installed-scene.ts";
import type { SceneDeps } from "./scene.ts";
import { blindNote } from "./status/blind-tools.ts";
import { checkCommand } from "./status/exit-words.ts";
import { notServing } from "./status/not-serving.ts";
import { reachedManager } from "./without-manager.ts";

/** Refused where the next start would fail: what works now is not given up for a typing mistake. */
export async function restart(_options: object, deps: SceneDeps = {}): Promise<void> {
  const scene = await installedScene(deps);
  const { paths, shellPlaces } = scene;
  const manager = await reachedManager(scene);
  if (manager === null) return;
  const before = await manager.state();
  const { file } = before;
  if (file.kind === "none") return fail("it is not installed → keybearer service install", EXIT.failed);
  if (file.kind === "foreign") {
    const { why, next } = inTheWay(manager.file, file.why);
    return fail(`${why}\n→ ${next}: keybearer service install`, EXIT.failed);
  }
  const config = await installedConfig(file.unit, paths, before.active === "running");
  if (config === null) return;
  const blind = blindNote(config, before);
  if (blind !== null) notice(`${blind.what} → ${blind.next}`);
  if (!(await wayIsFree(paths, config, before))) return;
  // Within the unit's view of the file system it could not make them.
  const faults = prepareFolders(paths);
  if (faults.length > 0) return fail(faults.join("\n"), EXIT.badConfig);
  const done = await manager.restart();
  const health = done.ok
    ? await whenHealthy(manager, paths.socket)
    : { ok: false as const, why: done.why, state: await manager.state() };
  if (!health.ok) return notServing(manager, health, checkCommand(paths.config, shellPlaces.config));
  const first =
    before.active === "running" ? "its requests were let finish, and it was started anew: it" : "it";
  printText(
    `${first} runs as pid ${health.state.pid}, keybearer ${health.status.version}, and answers on ${health.status.listen.join(" and ")}`,
  );
}
