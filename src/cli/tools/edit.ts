import { writeConfig } from "../../config/edit/write.ts";
import { readText } from "../../config/load.ts";
import { EXIT } from "../../start-failure.ts";
import { told } from "./told.ts";

/** What an edit was made from and what it found out. */
export interface Edited<Found> {
  readonly found: Found;
  /** false: the file said so already. */
  readonly changed: boolean;
}

/** Each time it is in vain, another command has saved: more than this many do not come together. */
const TRIES = 50;

/**
 * Changes config.yaml by a splice of its text: works without a daemon, and a running one sees the save. `may` is asked
 * before anything is written. What somebody else saves in the meantime is never lost: the splice is made anew from it,
 * or, where a person has said yes to something else, not at all. null: it has been told why nothing was changed.
 */
export async function editConfig<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: (text: string) => Found | { readonly ok: false; readonly reason: string },
  may?: () => Promise<boolean>,
): Promise<Edited<Found> | null> {
  for (let tries = may === undefined ? TRIES : 1; ; tries -= 1) {
    const read = await readText(file);
    if (read.text === null)
      return told(
        `${read.fault}. ${read.found ? "nothing was changed" : "write one first → keybearer init"}`,
        EXIT.failed,
      );
    const found = splice(read.text);
    if (!found.ok) return told(found.reason, EXIT.failed);
    if (may !== undefined && !(await may())) return null;
    if (found.text === read.text) return { found, changed: false };
    const written = await writeConfig(file, read.text, found.text);
    if (written.ok) return { found, changed: true };
    if (!written.changed || tries <= 1) return told(written.reason, EXIT.failed);
  }
}
