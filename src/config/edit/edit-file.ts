import type { Clock } from "../../core/clock.ts";
import { readText } from "../load.ts";
import { writeConfig } from "./write.ts";

/** What an edit was made from and what it found out. */
export interface Edited<Found> {
  readonly ok: true;
  readonly found: Found;
  /** false: the file said so already. */
  readonly changed: boolean;
}

export interface NotEdited {
  readonly ok: false;
  readonly reason: string;
}

type Splice<Found> = (text: string) => Found | NotEdited;

/** Each time it is in vain, somebody else has saved: more than this many do not come together. */
const TRIES = 50;

/**
 * Changes config.yaml by a splice of its text. `may` is asked before anything is written. What somebody else saves in the
 * meantime is never lost: the splice is made anew from it, or, where a person has said yes to something else, not at all.
 * null: `may` said no.
 */
export async function editFile<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: Splice<Found>,
  deps?: { readonly clock?: Clock },
): Promise<Edited<Found> | NotEdited>;
export async function editFile<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: Splice<Found>,
  deps: { readonly may: (() => Promise<boolean>) | undefined },
): Promise<Edited<Found> | NotEdited | null>;
export async function editFile<Found extends { readonly ok: true; readonly text: string }>(
  file: string,
  splice: Splice<Found>,
  { clock, may }: { readonly clock?: Clock; readonly may?: (() => Promise<boolean>) | undefined } = {},
): Promise<Edited<Found> | NotEdited | null> {
  for (let tries = may === undefined ? TRIES : 1; ; tries -= 1) {
    const read = await readText(file);
    if (read.text === null) {
      const next = read.found ? "nothing was changed" : "write one first → keybearer init";
      return { ok: false, reason: `${read.fault}. ${next}` };
    }
    const found = splice(read.text);
    if (!found.ok) return found;
    if (may !== undefined && !(await may())) return null;
    if (found.text === read.text) return { ok: true, found, changed: false };
    const written = await writeConfig(file, read.text, found.text, clock);
    if (written.ok) return { ok: true, found, changed: true };
    if (!written.changed || tries <= 1) return { ok: false, reason: written.reason };
  }
}
