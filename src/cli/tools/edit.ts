import { writeConfig } from "../../config/edit/write.ts";
import { readText } from "../../config/load.ts";
import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";

/** What an edit was made from and what it found out. */
export interface Edited<Found> {
  readonly found: Found;
  /** false: the file said so already. */
  readonly changed: boolean;
}

/**
 * Changes config.yaml by a splice of its text: works without a daemon, and a running one sees the save. `may` is asked
 * before anything is written; an edit that comes by hand in the meantime is found out and kept. null: it has been told
 * why nothing was changed.
 */
export async function editConfig<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: (text: string) => Found | { readonly ok: false; readonly reason: string },
  may: () => Promise<boolean> = async () => true,
): Promise<Edited<Found> | null> {
  const read = await readText(file);
  if (read.text === null) {
    const next = read.found ? "nothing was changed" : "write one first (see config.example.yaml)";
    return told(`${read.fault}. ${next}`);
  }
  const found = splice(read.text);
  if (!found.ok) return told(found.reason);
  if (!(await may())) return null;
  if (found.text === read.text) return { found, changed: false };
  const written = await writeConfig(file, read.text, found.text);
  return written.ok ? { found, changed: true } : told(written.reason);
}

function told(reason: string): null {
  fail(reason, EXIT.failed);
  return null;
}
