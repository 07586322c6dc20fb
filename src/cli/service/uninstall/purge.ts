import { lstatSync, readdirSync, realpathSync, rmdirSync, rmSync } from "node:fs";
import { basename, isAbsolute, join, relative, sep } from "node:path";
import { type Config, describeSource } from "../../../config/schema.ts";
import { errorMessage } from "../../../core/errors.ts";
import type { Paths } from "../../../core/paths.ts";
import { type PurgeFolder, purgeFolders } from "./purge-names.ts";

/** What a purge takes away and what it leaves, each by its path. */
export interface PurgePlan {
  readonly removes: readonly string[];
  /** Taken away afterwards, if nothing is left in them. */
  readonly folders: readonly string[];
  /** With the reason. */
  readonly leaves: readonly string[];
}

/**
 * By name, and never through a link: KEYBEARER_HOME may be a folder that holds more, and a link may lead anywhere. A
 * text: nothing may be taken away here at all, and this is why.
 */
export function purgePlan(paths: Paths, config: Config | null): PurgePlan | string {
  const top = [paths.run, paths.state, paths.own[0] ?? paths.state];
  for (const path of top.filter(isThere)) {
    const fault = folderFault(path, paths.home);
    if (fault !== null) return `${path} ${fault}`;
  }
  const found = purgeFolders(paths, config).filter(({ path }) => isFolder(path));
  const folders = found.map(({ path }) => path);
  const within = found.flatMap((folder) =>
    readdirSync(folder.path)
      .map((name) => entryIn(folder, name, config))
      .filter(({ path }) => !folders.includes(path)),
  );
  const outside = isThere(paths.config) && !within.some(({ path }) => path === paths.config);
  return {
    removes: within.filter(({ stays }) => stays === null).map(({ path }) => path),
    folders,
    leaves: [
      ...within.flatMap(({ path, stays }) => (stays === null ? [] : [`${path}: ${stays}`])),
      ...(outside ? [`${paths.config}: it lies outside of keybearer's folder`] : []),
      ...keychainEntries(config),
    ],
  };
}

interface Entry {
  readonly path: string;
  /** Why it is left; null: it goes. */
  readonly stays: string | null;
}

function entryIn({ path: folder, writes, links }: PurgeFolder, name: string, config: Config | null): Entry {
  const path = join(folder, name);
  const found = lstatSync(path, { throwIfNoEntry: false });
  const isLink = found?.isSymbolicLink() === true;
  if (isLink && links?.(name)) return { path, stays: null };
  if (isLink) return { path, stays: "it is a link" };
  // Of what is in there, only config.yaml knows whose it is.
  if (config === null && basename(folder) === "keys")
    return { path, stays: "without a config.yaml that can be read, nobody knows whether it is keybearer's" };
  if (!writes(name) || found?.isDirectory()) return { path, stays: "keybearer did not make it" };
  return { path, stays: null };
}

/** Answers what could not be taken away. */
export function purge({ removes, folders }: PurgePlan): string[] {
  const faults: string[] = [];
  for (const path of removes) {
    try {
      // Not recursive: each is one file, and what has become a folder meanwhile is somebody's.
      rmSync(path, { force: true });
    } catch (error) {
      faults.push(`${path}: ${errorMessage(error)}`);
    }
  }
  for (const folder of folders) {
    try {
      rmdirSync(folder);
    } catch {
      // Something is left in it, which has been named.
    }
  }
  return faults;
}

function folderFault(path: string, home: string): string | null {
  const found = lstatSync(path);
  if (found.isSymbolicLink()) return "is a link, which is not followed";
  if (!found.isDirectory()) return "is not a folder";
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) return "belongs to another user";
  const real = realpathSync(path);
  const person = realpathSync(home);
  return real === person || isWithin(person, real) ? "is, or holds, your home folder" : null;
}

/** The keychain is everybody's, and may be the only place where a key still lies. */
function keychainEntries(config: Config | null): string[] {
  return Object.values(config?.tools ?? {}).flatMap(({ name, key }) =>
    key.kind === "keychain"
      ? [`${describeSource(key)}: the key of ${name}; delete it in the keychain's own program`]
      : [],
  );
}

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function isFolder(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function isWithin(path: string, folder: string): boolean {
  const way = relative(folder, path);
  return way !== "" && way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}
