import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { lstat, mkdir, open, readFile, readlink, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { errorCode, hasCode } from "../core/errors.ts";
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
  await makeFolder(dirname(file));
  const temporary = `${file}.${randomBytes(6).toString("hex")}.keybearer-new`;
  const drop = () => rm(temporary, { force: true });
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  try {
    // launchd reads no agent that others may write; nobody else needs to read it either.
    const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    await drop();
    throw error;
  }
  return {
    put: () => rename(temporary, file).catch((error) => drop().then(() => Promise.reject(error))),
    drop,
  };
}

async function write(file: string, text: string): Promise<void> {
  await (await stage(file, text)).put();
}

async function remove(file: string): Promise<void> {
  await rm(file, { force: true });
}

async function makeFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
}
