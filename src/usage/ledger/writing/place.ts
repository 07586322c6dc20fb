import { readdirSync, renameSync, type Stats, unlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { LedgerFault } from "../fault.ts";
import { statOf } from "../on-disk.ts";
import { SLIPS } from "./slips.ts";

/**
 * What became of the files of an open log. gone: nothing lies at its path · moved: it lies beside its path under
 * another name · replaced: another file lies there · side: only its -wal, its -shm or its
 * slips are gone or others.
 */
export interface Displaced {
  readonly how: "gone" | "moved" | "replaced" | "side";
  readonly words: string;
}

/** The files that were opened, to be compared with those that people see. */
export interface Place {
  /** null: everything is where it was. Throws where the file was emptied. */
  displaced(): Displaced | null;
  /** Whether the file itself is where it was. */
  holds(): boolean;
  /**
   * Takes away its -wal and -shm where the file itself is not there any more: SQLite would take them for those of the
   * file that comes next. A WAL with something in it is kept under another name, unless whoever has it open reads on.
   */
  clear(readOn: boolean, now: number): void;
}

const SIDES = ["", "-wal", "-shm", SLIPS] as const;

/** While they are open nobody else can be given their identities. */
export function placeOf(file: string): Place {
  const identities = new Map<string, string>();
  for (const side of SIDES) {
    const found = seen(file + side);
    if (found !== null) identities.set(side, identityOf(found));
  }
  const isOurs = (side: string, found: Stats | null) =>
    found !== null && identities.get(side) === identityOf(found);

  return {
    displaced() {
      for (const [side, known] of identities) {
        const path = file + side;
        const found = seen(path);
        if (found === null && side === "") return whereTo(file, known);
        if (found === null) return { how: "side", words: `${path} is gone` };
        if (identityOf(found) !== known)
          return {
            how: side === "" ? "replaced" : "side",
            words: `${path} was replaced by another file`,
          };
        // Nobody but a truncation makes it so: it has a page before it has a WAL.
        if (side === "" && found.size === 0) throw new LedgerFault("corrupt", "it was emptied");
      }
      return null;
    },
    holds: () => isOurs("", seen(file)),
    clear(readOn, now) {
      if (isOurs("", seen(file))) return;
      for (const side of ["-wal", "-shm"]) {
        const found = seen(file + side);
        if (found === null || !isOurs(side, found)) continue;
        const keep = side === "-wal" && found.size > 0 && !readOn;
        try {
          if (keep) renameSync(file + side, `${file}.left-${now}${side}`);
          else unlinkSync(file + side);
        } catch {
          // Then the next file is opened with it, and checked like any other.
        }
      }
    },
  };
}

function whereTo(file: string, identity: string): Displaced {
  try {
    for (const name of readdirSync(dirname(file))) {
      const path = join(dirname(file), name);
      const found = name === basename(file) ? null : seen(path);
      if (found !== null && identityOf(found) === identity)
        return { how: "moved", words: `${file} was moved to ${path}` };
    }
  } catch {
    // The folder is gone as well.
  }
  return { how: "gone", words: `${file} is gone` };
}

function seen(path: string): Stats | null {
  try {
    return statOf(path);
  } catch {
    // A folder that may not be entered any more: the file is as good as gone.
    return null;
  }
}

function identityOf({ dev, ino }: Stats): string {
  return `${dev}:${ino}`;
}
