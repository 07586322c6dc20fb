import { constants } from "node:fs";
import { access, statfs } from "node:fs/promises";

/**
 * File systems whose every change goes through this kernel, so that it tells of it, by the numbers that Linux gives them:
 * ext2 to ext4, xfs, btrfs, f2fs, zfs, bcachefs, tmpfs, overlayfs. Of what others write to a network drive, or a host to
 * its guest's folder, it knows nothing.
 */
const TOLD = [0xef53, 0x58465342, 0x9123683e, 0xf2f52010, 0x2fc12fc1, 0xca451a4e, 0x01021994, 0x794c7630];

/** Whether the system tells of every change to these files and folders. Of one that may not be read it does not. */
export async function areToldOf(paths: readonly string[]): Promise<boolean> {
  if (process.platform !== "linux") return false;
  const all = await Promise.all([...new Set(paths)].map((path) => isToldOf(path).catch(() => false)));
  return all.every(Boolean);
}

async function isToldOf(path: string): Promise<boolean> {
  await access(path, constants.R_OK);
  // A number with its highest bit set is given as a negative one.
  return TOLD.includes((await statfs(path)).type >>> 0);
}
