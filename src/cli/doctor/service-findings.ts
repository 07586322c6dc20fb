import type { Finding } from "../../doctor/findings.ts";
import type { ServiceContext } from "../service/context.ts";
import { examineService } from "../service/status.ts";

const ABOUT = "the service";

/** Whether the service is installed, and whether it would still start. Without a service file, the manager is not asked. */
export async function serviceFindings(context: ServiceContext): Promise<Finding[]> {
  const { manager } = context;
  if (manager === null) return [];
  const found = await manager.found();
  if (found.kind === "none") {
    const what = "not installed: keybearer runs while somebody runs it (keybearer service install)";
    return [{ id: "service", level: "ok", about: ABOUT, what, next: null }];
  }
  if (found.kind === "foreign" && found.managedBy !== null)
    return [{ id: "service", level: "ok", about: ABOUT, what: found.why, next: null }];
  const answer = await manager.available();
  if (!answer.ok) {
    const what = `${manager.file} is there, but ${answer.why}`;
    return [{ id: "service", level: "warning", about: ABOUT, what, next: "keybearer service status" }];
  }
  const { notes, state } = await examineService(context, manager);
  if (notes.length === 0)
    return [
      { id: "service", level: "ok", about: ABOUT, what: `installed, ${state.description}`, next: null },
    ];
  return notes.map(({ id, grave, what, next }) => ({
    id: `service-${id}`,
    level: grave ? "problem" : "warning",
    about: ABOUT,
    what,
    next,
  }));
}
