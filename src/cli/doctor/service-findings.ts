import type { Finding } from "../../doctor/findings.ts";
import type { Scene } from "../service/scene.ts";
import { serviceNotes } from "../service/status/notes.ts";
import { viewOf } from "../service/status/view.ts";

const ABOUT = "the service";

/** Whether it is installed, and whether it would still start. Nothing is asked of a manager that has nothing of ours. */
export async function serviceFindings(scene: Scene): Promise<Finding[]> {
  const { manager } = scene;
  if (manager === null) return [];
  const found = await manager.found();
  if (found.kind === "none") {
    const what = "not installed: keybearer runs while somebody runs it (keybearer service install)";
    return [{ id: "service", level: "ok", about: ABOUT, what, next: null }];
  }
  const answer = await manager.available();
  if (!answer.ok) {
    const what = `${manager.file} is there, but ${answer.why}`;
    return [{ id: "service", level: "warning", about: ABOUT, what, next: "keybearer service status" }];
  }
  const view = await viewOf(scene, manager);
  const findings = serviceNotes(view).map(
    ({ id, grave, what, next }): Finding => ({
      ...{ id: `service-${id}`, level: grave ? "problem" : "warning", about: ABOUT, what, next },
    }),
  );
  if (findings.length > 0) return findings;
  return [{ id: "service", level: "ok", about: ABOUT, what: `installed, ${view.state.words}`, next: null }];
}
