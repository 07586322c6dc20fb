import { complaint } from "../answer-words.ts";
import type { Ran } from "../command-runner.ts";

/** What came of asking a machine for the unit's namespaces. */
export type Trial =
  | { readonly granted: true }
  /** null: it could not be tried. */
  | { readonly granted: false | null; readonly why: string };

/** Said before the unit of the trial came to be: nothing about namespaces. */
const NOT_TRIED =
  /failed to (connect|create bus|get d-bus|start transient|set unit|parse)|unknown assignment/i;

export function trialIn(ran: Ran): Trial {
  if (ran.code === 0) return { granted: true };
  if (ran.missing) return { granted: null, why: "there is no systemd-run here to try it with" };
  if (ran.code === null) return { granted: null, why: "a trial with systemd-run did not end in time" };
  const said = complaint(ran.stderr);
  if (NOT_TRIED.test(said)) return { granted: null, why: `systemd-run could not try it: ${said}` };
  const how = said === "" ? `exit code ${ran.code}` : said;
  return { granted: false, why: `the system does not grant it (a trial with systemd-run ended: ${how})` };
}
