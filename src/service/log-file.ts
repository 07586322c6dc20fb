import { constants, fstatSync, ftruncateSync, lstatSync } from "node:fs";
import { copyFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { openOwnFile } from "../core/own-file.ts";
import type { Paths } from "../core/paths.ts";

/** The file that launchd and `keybearer start` open for the daemon's output. systemd has the journal. */
export function logFileIn({ state }: Pick<Paths, "state">): string {
  return join(state, "keybearer.log");
}

/** One older file of this size is kept beside it. */
export const MAX_LOG_BYTES = 10 * 1024 * 1024;
const { O_APPEND, O_CREAT, O_WRONLY, COPYFILE_EXCL, COPYFILE_FICLONE } = constants;

/** For the output of a daemon that is started now. Throws ForeignFile, or the system's error. */
export function openLogFile(file: string): number {
  return openOwnFile(file, O_WRONLY | O_APPEND | O_CREAT);
}

/** The log file of a daemon without a terminal, which the daemon keeps small itself. */
export class ServiceLog {
  readonly descriptor: number;
  readonly #file: string;

  private constructor(descriptor: number, file: string) {
    this.descriptor = descriptor;
    this.#file = file;
  }

  /** null: the output goes elsewhere, to a terminal, a pipe or a file of the user's own, which is never cut. */
  static find(output: number, file: string): ServiceLog | null {
    try {
      if (!isAt(file, output)) return null;
      // With O_APPEND, however the other one was opened: after the cut, writing continues at the beginning.
      return new ServiceLog(openOwnFile(file, O_WRONLY | O_APPEND), file);
    } catch {
      // It cannot be opened, so nothing is known about it. The daemon writes to what it was given.
      return null;
    }
  }

  /**
   * Moves a log that is too large aside, by copying: the process's own output, to which Node writes when it crashes, keeps
   * its file. Never throws. Nothing may be written meanwhile.
   */
  async keepSmall(): Promise<void> {
    try {
      if (fstatSync(this.descriptor).size <= MAX_LOG_BYTES) return;
      await this.#keepCopy();
      ftruncateSync(this.descriptor, 0);
    } catch {
      // The log cannot say that it is broken. The next write tries again.
    }
  }

  async #keepCopy(): Promise<void> {
    const copy = `${this.#file}.1`;
    const temporary = `${copy}.tmp`;
    try {
      // Deleted or renamed while it was open: there is no name to copy it from.
      if (!isAt(this.#file, this.descriptor)) return;
      await rm(temporary, { force: true });
      await copyFile(this.#file, temporary, COPYFILE_EXCL | COPYFILE_FICLONE);
      await rename(temporary, copy);
    } catch {
      // A full disk. Cutting the log helps more than keeping it.
      await rm(temporary, { force: true }).catch(() => {});
    }
  }
}

function isAt(file: string, descriptor: number): boolean {
  const found = lstatSync(file, { throwIfNoEntry: false });
  const open = fstatSync(descriptor);
  return found !== undefined && open.isFile() && found.dev === open.dev && found.ino === open.ino;
}
