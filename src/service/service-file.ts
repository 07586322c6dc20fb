import { lstat, mkdir, readFile, readlink, rm } from "node:fs/promises";
import { errorCode, hasCode } from "../core/errors.ts";
import { stageFile, writePrivateFile } from "../core/private-file.ts";
import type { FoundFile } from "./manager.ts";
import type { InstalledUnit } from "./spec.ts";

/** The files that a manager reads. */
export interface ServiceFiles {
  find(file: string, read: (text: string) => InstalledUnit | null): Promise<FoundFile>;
  /** Whole or not at all. Throws. */
  write(file: string, text: string): Promise<void>;
  /** The same in two steps: what can fail is over before anything else is changed. Throws. */
  stage(file: string, text: string): Promise<Staged>;
  remove(file: string): Promise<void>;
  makeFolder(folder: string): Promise<void>;
}

/** A text that lies beside the file it is to become. */
export interface Staged {
  put(): Promise<void>;
  drop(): Promise<void>;
}

export function createServiceFiles(): ServiceFiles {
  return { find, write, stage, remove, makeFolder };
}

/** How systemd marks what must not be started. */
const MASKED = "it is masked (systemctl --user unmask keybearer)";
const MOST_BYTES = 100_000;

async function find(file: string, read: (text: string) => InstalledUnit | null): Promise<FoundFile> {
  try {
    const found = await lstat(file);
    if (found.isSymbolicLink()) {
      const masked = (await readlink(file)) === "/dev/null";
      return { kind: "foreign", why: masked ? MASKED : "it is a link" };
    }
    if (!found.isFile()) return { kind: "foreign", why: "it is not a file" };
    if (found.size > MOST_BYTES) return { kind: "foreign", why: "it was not written by keybearer" };
    const text = await readFile(file, "utf8");
    const unit = read(text);
    return unit === null
      ? { kind: "foreign", why: "it was not written by keybearer" }
      : { kind: "ours", text, unit };
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return { kind: "none" };
    return { kind: "foreign", why: `it cannot be read (${errorCode(error)})` };
  }
}

async function stage(file: string, text: string): Promise<Staged> {
  // launchd reads no agent that others may write; nobody else needs to read it either.
  const staged = await stageFile(file, text);
  return {
    async put() {
      try {
        staged.commit();
      } catch (error) {
        await staged.discard();
        throw error;
      }
    },
    drop: () => staged.discard(),
  };
}

async function write(file: string, text: string): Promise<void> {
  await writePrivateFile(file, text);
}

async function remove(file: string): Promise<void> {
  await rm(file, { force: true });
}

async function makeFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
}
