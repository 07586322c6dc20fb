import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { lstat, unlink } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { loadConfig } from "../config/load.ts";
import { type Config, isSameSource, type KeySource, type Tool } from "../config/schema.ts";
import { secretSources } from "../config/snapshot.ts";
import { escapeControlChars, type Failed, failed, type Problem, quoteForShell } from "../core/display.ts";
import { errorCode, hasCode } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { createPrivateFile, writePrivateFile } from "../core/private-file.ts";
import { keyProblem, Secret } from "../core/secret.ts";
import { MINUTE_MS } from "../core/units.ts";
import { askKeychain, entryName, foreignEntry, sessionBus } from "./keychain.ts";
import { isInside, readKey, readKeyFile } from "./sources.ts";

/* The keys that keybearer stores itself, in the keychain or in files of its own: where, how, and how they are removed. */

/** Where keybearer stores a key. Both are key sources, too. */
export type KeyPlace =
  | { readonly kind: "keychain"; readonly service: string; readonly account: string }
  | { readonly kind: "file"; readonly path: string };

export type Store = KeyPlace["kind"];

interface StoreDeps {
  /** To find the keychain. */
  readonly env: NodeJS.ProcessEnv;
  /** Default false: another key at the same place is not replaced. */
  readonly replace?: boolean | undefined;
  /** Milliseconds for the keychain, whose password a person may have to type. Default 60 s. */
  readonly limit?: number | undefined;
}

export type Stored =
  /** made: false if this key was there already, so that a failed command must not remove it. */
  { readonly ok: true; readonly made: boolean } | Failed;

type Forgotten = { readonly ok: true } | Failed;

const TYPING_LIMIT = MINUTE_MS;
const SEARCH_LIMIT = 3_000;
const FILE_LIMIT = 10_000;

/** Whether there is a keychain, locked or not. Asks for no password. */
export async function keychainThere(deps: {
  readonly env: NodeJS.ProcessEnv;
}): Promise<{ readonly there: boolean; readonly problem: Problem | null }> {
  const bus = sessionBus(deps.env);
  if (!bus.ok) return { there: false, problem: bus };
  // No entry has this name, and only an entry that is found is unlocked, so no window opens.
  const unusedEntry = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const answer = await askKeychain(
    unusedEntry,
    { operation: "read" },
    { env: deps.env, limit: SEARCH_LIMIT },
  );
  return answer.ok ? { there: true, problem: null } : { there: false, problem: answer };
}

/**
 * Why the keychain cannot store a key; null: it can. Asked before a person types a key. Only an attempt shows whether it is
 * locked, and the window for its password opens now instead of later.
 */
export async function tryKeychain(deps: StoreDeps): Promise<Problem | null> {
  const unusedEntry = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const limit = deps.limit ?? TYPING_LIMIT;
  const answer = await askKeychain(unusedEntry, { operation: "trial" }, { env: deps.env, limit });
  return answer.ok ? null : answer;
}

/** Stores a key where it will be read from. Never throws. No problem contains the key. */
export async function storeKey(place: KeyPlace, key: Secret, deps: StoreDeps): Promise<Stored> {
  const incomplete = keyProblem(key.reveal());
  if (incomplete !== null) return failed(`incomplete key: ${incomplete}`);
  const { replace = false } = deps;
  if (place.kind === "file") return storeFile(place.path, key, replace);
  const foreign = foreignEntry(place);
  if (foreign !== null) return failed(foreign);
  const request = { operation: "store", key: key.reveal(), replace } as const;
  const answer = await askKeychain(place, request, { env: deps.env, limit: deps.limit ?? TYPING_LIMIT });
  if (!answer.ok) return failed(key.redactFrom(answer.problem), answer.next);
  if (answer.done) return { ok: true, made: answer.made };
  return failed(`the keychain already has another key as ${entryName(place)}: it was not changed`);
}

/** Removes a key. One that is not there counts as removed. */
export async function forgetKey(place: KeyPlace, deps: StoreDeps): Promise<Forgotten> {
  if (place.kind === "file") return forgetFile(place.path);
  const foreign = foreignEntry(place);
  if (foreign !== null) return failed(foreign);
  const limit = deps.limit ?? TYPING_LIMIT;
  const answer = await askKeychain(place, { operation: "forget" }, { env: deps.env, limit });
  return answer.ok ? { ok: true } : answer;
}

async function storeFile(path: string, key: Secret, replace: boolean): Promise<Stored> {
  if (!isAbsolute(path))
    return failed(
      `file:${escapeControlChars(path)} is not an absolute path`,
      "write the whole path, from the first /",
    );
  const text = `${key.reveal()}\n`;
  try {
    if (replace) await writePrivateFile(path, text);
    else if (!(await createPrivateFile(path, text))) return sameAlready(path, key);
    return { ok: true, made: true };
  } catch (error) {
    return fileProblem(path, error);
  }
}

async function sameAlready(path: string, key: Secret): Promise<Stored> {
  const found = await readKeyFile(path, { home: [], notKeys: [] }, FILE_LIMIT);
  if (found.ok && found.warning === null && new Secret(found.text).equals(key))
    return { ok: true, made: false };
  return failed(`${escapeControlChars(path)} already exists with something else in it: it was not changed`);
}

async function forgetFile(path: string): Promise<Forgotten> {
  try {
    const found = await lstat(path);
    if (!found.isFile())
      return failed(`${escapeControlChars(path)} is not a regular file: it was not changed`);
    await unlink(path);
    return { ok: true };
  } catch (error) {
    return hasCode(error, "ENOENT") ? { ok: true } : fileProblem(path, error);
  }
}

function fileProblem(path: string, error: unknown): Failed {
  const code = errorCode(error);
  const folder = dirname(path);
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return failed(
      `you may not write to ${escapeControlChars(folder)}`,
      `ls -ld ${escapeControlChars(quoteForShell(folder))}`,
    );
  }
  const shown = escapeControlChars(path);
  if (code === "ENOSPC" || code === "EDQUOT") return failed(`there is no space left for ${shown}`);
  if (code === "EISDIR") return failed(`${shown} is a folder, not a file`);
  if (code === "ENOTDIR" || code === "EEXIST") return failed(`${escapeControlChars(folder)} is not a folder`);
  return failed(`${shown} could not be changed (${code})`);
}

interface PlaceRequest {
  readonly store: Store;
  readonly tool: string;
  /** Their keys' places are taken. */
  readonly tools: Config["tools"];
  readonly paths: Paths;
  /** null: not known yet. */
  readonly key: Secret | null;
  /** To find the keychain. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * A place that no tool's key has yet: <tool>, then <tool>-2. A new name each time, because the daemon only reloads what changes
 * in config.yaml. The names of other tools are reserved: without `key:` their keys are stored under these. A place that holds
 * this very key and is not named in config.yaml, as after a command that was killed, is used again.
 */
export async function freePlace({ store, tool, tools, paths, key, env }: PlaceRequest): Promise<KeyPlace> {
  const folder = join(keyFolder(paths), "keys");
  const others = Object.keys(tools).filter((name) => name !== tool);
  const sources = Object.values(tools).map(({ key }) => key);
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? tool : `${tool}-${number}`;
    const place: KeyPlace =
      store === "keychain"
        ? { kind: "keychain", service: "keybearer", account: name }
        : { kind: "file", path: join(folder, name) };
    if (others.includes(name) || sources.some((source) => isSameSource(source, place))) continue;
    if (!(await isTaken(place, key, env))) return place;
  }
}

async function isTaken(place: KeyPlace, key: Secret | null, env: NodeJS.ProcessEnv): Promise<boolean> {
  if (place.kind === "file" && !existsSync(place.path)) return false;
  const found = await readKey(place, { env });
  // A file that cannot be read takes the name, too.
  if (!found.ok) return place.kind === "file";
  return key === null || !found.key.equals(key) || found.warning !== null;
}

/** The place of a tool's key if keybearer stored it there and may delete it; null: it is the person's own. */
export function ownPlace(source: KeySource, paths: Paths): KeyPlace | null {
  if (source.kind === "keychain") return source;
  // Only in keys/: the folder also holds config.yaml.
  return source.kind === "file" && isInKeyFolder(source.path, paths) ? source : null;
}

/** Whether freePlace() could have made this place for the tool, or config.yaml names it for the tool. */
export function isPlaceFor(place: KeyPlace, tool: Tool, tools: Config["tools"], paths: Paths): boolean {
  if (ownPlace(tool.key, paths) !== null && isSameSource(tool.key, place)) return true;
  const isOurs = place.kind === "file" ? isInKeyFolder(place.path, paths) : place.service === "keybearer";
  const name = place.kind === "file" ? basename(place.path) : place.account;
  const suffix = name.startsWith(tool.name) ? name.slice(tool.name.length) : null;
  const isNumbered = suffix === "" || (suffix !== null && /^-[1-9]\d{0,5}$/.test(suffix));
  const isOthers = Object.values(tools).some((other) => other !== tool && isSameSource(other.key, place));
  return isOurs && isNumbered && !isOthers && (name === tool.name || !Object.hasOwn(tools, name));
}

function isInKeyFolder(path: string, paths: Paths): boolean {
  return isInside(path, paths.own) && dirname(path) === join(keyFolder(paths), "keys");
}

/** As config.yaml has it. `~/` stays right when the home folder moves. */
export function sourceText(place: KeyPlace, { home }: Paths): string {
  if (place.kind === "keychain") return `keychain:${place.service}/${place.account}`;
  return `file:${isInside(place.path, [home]) ? `~${place.path.slice(home.length)}` : place.path}`;
}

/** Whether config.yaml has a key or another secret there. A file with problems may name it, too. */
export async function isNamed(
  { config: file, home }: Pick<Paths, "config" | "home">,
  place: KeyPlace,
): Promise<boolean> {
  const { config, found } = await loadConfig(file, { home, strict: false });
  if (config === null) return found;
  return secretSources(config).some((source) => isSameSource(source, place));
}

function keyFolder(paths: Paths): string {
  return paths.own[0] ?? dirname(paths.config);
}
