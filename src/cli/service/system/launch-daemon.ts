import { DEFAULT_DRAIN } from "../../../config/schema.ts";
import { advice } from "../../../core/advice.ts";
import { EXIT } from "../../../core/errors.ts";
import { packageFolder } from "../../../core/version.ts";
import { DAEMON_ID, planLaunchDaemon } from "../../../service/launch-daemon.ts";
import { plistTemplate } from "../../../service/launchd.ts";
import { stopSecondsFor } from "../../../service/spec.ts";
import { findProgramChange, type Program } from "../../../service/system-program.ts";
import { fail, notice } from "../../ui/messages.ts";
import { printSteps } from "../install.ts";
import { thisProgram } from "./machine.ts";

/** What a reader must know who has the property list in hand. */
const NOTES = [
  "this has never run on a Mac, and keybearer runs none of it",
  "the daemon would not start: launchd passes a socket only to a program that calls launch_activate_socket, and Node cannot",
  "it would refuse every call: on macOS keybearer cannot find whose a connection is",
  "nothing is moved: config.yaml, keys, tokens and the usage log stay with their owner",
  `the two searches for ${DAEMON_ID} must find nothing, or another user could read the keys`,
];

/** `service install --system` on a Mac: shows what an installation would be, and moves nothing. */
export function installOnMac(
  { dryRun = false }: { readonly dryRun?: boolean },
  program: Program = thisProgram(),
): void {
  if (!dryRun) {
    const problem =
      "on macOS there is no system service, only the draft of a LaunchDaemon that has never run. nothing was changed";
    fail({ problem, next: advice.showLaunchDaemon() }, EXIT.usage);
    return;
  }
  notice(...NOTES);
  const changeable = findProgramChange(program, packageFolder().pathname.replace(/\/$/, ""));
  if (changeable !== null)
    notice(`${changeable}: whoever can change the program could read the keys, so root alone may own it`);
  const options = { ...program, stopSeconds: stopSecondsFor(DEFAULT_DRAIN) };
  // With its one comment, which says that it never ran.
  printSteps(planLaunchDaemon(plistTemplate(), options), true);
}
