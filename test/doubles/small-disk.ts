import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";

/** A file system of its own that can be full and read-only. */
export interface SmallDisk {
  readonly folder: string;
  /** Until not one byte more fits. */
  fill(): void;
  /** Gives back what fill() took. */
  free(): void;
  readOnly(is: boolean): void;
}

/** In a new folder, or over one that is there. null, and skipped: only root may mount, where the system lets it. */
export function mountSmallDisk(t: Test, megabytes: number, at?: string): SmallDisk | null {
  const folder = at ?? mkdtempSync(join(tmpdir(), "kb-"));
  const mount = (...args: readonly string[]) => execFileSync("mount", args, { stdio: "pipe" });
  try {
    mount("-t", "tmpfs", "-o", `size=${megabytes}m,mode=0700`, "tmpfs", folder);
  } catch {
    t.skip("a file system of its own cannot be mounted here, which takes root", async () => {});
    return null;
  }
  t.teardown(() => {
    execFileSync("umount", ["-l", folder]);
    rmSync(folder, { recursive: true, force: true });
  });
  const ballast = join(folder, "ballast");
  return {
    folder,
    fill() {
      const fd = openSync(ballast, "a");
      try {
        for (const size of [65_536, 4096, 1]) {
          const bytes = Buffer.alloc(size, 1);
          try {
            while (writeSync(fd, bytes) > 0);
          } catch (error) {
            if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
          }
        }
      } finally {
        closeSync(fd);
      }
    },
    free: () => rmSync(ballast, { force: true }),
    readOnly: (is) => void mount("-o", `remount,${is ? "ro" : "rw"}`, folder),
  };
}
