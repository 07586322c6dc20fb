import { lstatSync, readdirSync, realpathSync, rmdirSync, rmSync } from "node:fs";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import type { Config } from "../../config/shape.ts";
import { describeSource } from "../../key-source.ts";
import type { Places } from "../../places.ts";
import { reason } from "../../reason.ts";

/** What a purge takes away and what it leaves, each by its path. */
export interface PurgePlan {
  readonly removes: readonly string[];
  /** Taken away afterwards, if nothing is left in them. */
  readonly folders: readonly string[];
  /** With the reason. */
  readonly leaves: readonly string[];
}

/** What keybearer makes, by name. Whatever else lies beside it is somebody's. */
const CONFIG = /^(?:config\.yaml|keys|\.config\.yaml\.(?:lock|[0-9a-f]+\.tmp)(?:\..*)?)$/;
const STATE =
  /^(?:(?:trust\.json|log-end\.json|consoles\.json|usage\.db|keybearer\.log)(?:[.-].*)?|undo|run)$/;
const RUN = /^control\.sock(?:\..*)?$/;

/**
 * By name, and never through a link: KEYBEARER_HOME may be a folder that holds more, and a link may lead anywhere. A
 * text: nothing may be taken away here at all, and this is why.
 */
export function purgePlan(places: Places, config: Config | null): PurgePlan | string {
  const { state, run, home } = places;
  const folder = places.own[0] ?? dirname(places.config);
  const parts: readonly (readonly [string, RegExp])[] = [
    [run, RUN],
    [state, STATE],
    [folder, CONFIG],
  ];
  const found = parts.filter(([path]) => isThere(path));
  for (const [path] of found) {
    const fault = folderFault(path, home);
    if (fault !== null) return `${path} ${fault}`;
  }
  const folders = found.map(([path]) => path);
  const within = found.flatMap(([path, ours]) =>
    readdirSync(path)
      .map((name) => ({ path: join(path, name), ours: ours.test(name) }))
      .filter((each) => !folders.includes(each.path)),
  );
  const outside = isThere(places.config) && !within.some(({ path }) => path === places.config);
  return {
    removes: within.filter(({ path, ours }) => ours && !isLink(path)).map(({ path }) => path),
    folders,
    leaves: [
      ...within.filter(({ ours }) => !ours).map(({ path }) => `${path}: keybearer did not make it`),
      ...within.filter(({ path, ours }) => ours && isLink(path)).map(({ path }) => `${path}: it is a link`),
      ...(outside ? [`${places.config}: it lies outside of keybearer's folder`] : []),
      ...keychainEntries(config),
    ],
  };
}

/** Answers what could not be taken away. */
export function purge({ removes, folders }: PurgePlan): string[] {
  const faults: string[] = [];
  for (const path of removes) {
    try {
      // A link inside is taken away itself, and what it leads to stays.
      rmSync(path, { recursive: true, force: true });
    } catch (error) {
      faults.push(`${path}: ${reason(error)}`);
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

function isLink(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
}

function isWithin(path: string, folder: string): boolean {
  const way = relative(folder, path);
  return way !== "" && way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}
