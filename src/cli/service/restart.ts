import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";
import { saySentences } from "../say.ts";
import { wayIsFree } from "./before-install.ts";
import { whenHealthy } from "./healthy.ts";
import { installedConfig } from "./installed-config.ts";
import { notServing } from "./not-serving.ts";
import { createScene, placesOf, type SceneMeans } from "./scene.ts";
import { reachedManager } from "./without-manager.ts";

/** Refused where the next start would fail: what works now is not given up for a typing mistake. */
export async function restart(_options: object, means: SceneMeans = {}): Promise<void> {
  const scene = await createScene(means);
  const manager = await reachedManager(scene);
  if (manager === null) return;
  const before = await manager.state();
  const { file } = before;
  if (file.kind !== "ours") {
    const why =
      file.kind === "none" ? "it is not installed" : `${manager.file} is not keybearer's: ${file.why}`;
    return fail(`${why} → keybearer service install`, EXIT.failed);
  }
  const places = placesOf(file.unit, scene);
  const config = await installedConfig(file.unit, places, before.active === "running");
  if (config === null) return;
  if (!(await wayIsFree(places, config, before))) return;
  const done = await manager.restart();
  const health = done.ok
    ? await whenHealthy(manager, places.socket)
    : { ok: false as const, why: done.why, state: await manager.state() };
  if (!health.ok) return notServing(manager, health);
  const first =
    before.active === "running" ? "its requests were let finish, and it was started anew: it" : "it";
  saySentences(
    `${first} runs as pid ${health.state.pid}, keybearer ${health.status.version}, and answers on ${health.status.listen.join(" and ")}`,
  );
}
