import { EXIT } from "../../core/errors.ts";
import type { ServiceManager } from "../../service/manager.ts";
import { fail } from "../ui/messages.ts";
import type { Scene } from "./scene.ts";

/** The manager, if it answers. null: the person has been told why not, and how it goes without. */
export async function reachedManager({ manager, platform }: Scene): Promise<ServiceManager | null> {
  if (manager === null) {
    fail(
      `keybearer installs itself as a service by systemd and by launchd, and ${platform} has neither\nstart it by hand or by a supervisor of your own: keybearer run`,
      EXIT.failed,
    );
    return null;
  }
  const answer = await manager.available();
  if (answer.ok) return manager;
  fail(`${answer.why}\n${answer.byHand}`, EXIT.failed);
  return null;
}
