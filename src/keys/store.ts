import { randomBytes } from "node:crypto";
import { lstat, unlink } from "node:fs/promises";
import { dirname, isAbsolute } from "node:path";
import { escapeControlChars, quoteForShell } from "../core/display.ts";
import { errorCode, hasCode } from "../core/errors.ts";
import { createPrivateFile, writePrivateFile } from "../core/private-file.ts";
import { keyFault, Secret } from "../core/secret.ts";
import { askKeychain, entryName, failed, foreignEntry, sessionBus } from "./keychain.ts";
import { readKeyFile } from "./sources.ts";

/** Where keybearer stores a key. Both are key sources, too. */
export type KeyPlace =
  | { readonly kind: "keychain"; readonly service: string; readonly account: string }
  | { readonly kind: "file"; readonly path: string };

export interface StoreDeps {
  /** To find the keychain. */
  readonly env: NodeJS.ProcessEnv;
  /** Default false: another key at the same place is not replaced. */
  readonly replace?: boolean | undefined;
  /** Milliseconds for the keychain, whose password a person may have to type. Default 60 s. */
  readonly limit?: number | undefined;
}

export type Stored =
  /** made: false if this key was there already, so that a failed command must not remove it. */
  { readonly ok: true; readonly made: boolean } | { readonly ok: false; readonly reason: string };

export type Forgotten = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const TYPING_LIMIT = 60_000;
const SEARCH_LIMIT = 3_000;
const FILE_LIMIT = 10_000;

/** Whether there is a keychain, locked or not. Asks for no password. */
export async function keychainThere(deps: {
  readonly env: NodeJS.ProcessEnv;
}): Promise<{ readonly there: boolean; readonly why: string | null }> {
  const bus = sessionBus(deps.env);
  if (!bus.ok) return { there: false, why: bus.reason };
  // No entry has this name, and only an entry that is found is unlocked, so no window opens.
  const unusedEntry = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const answer = await askKeychain(
    unusedEntry,
    { operation: "read" },
    { env: deps.env, limit: SEARCH_LIMIT },
  );
  return answer.ok ? { there: true, why: null } : { there: false, why: answer.reason };
}

/**
 * Why the keychain cannot store a key; null: it can. Asked before a person types a key. Only an attempt shows whether it is
 * locked, and the window for its password opens now instead of later.
 */
export async function whyNotStored(deps: StoreDeps): Promise<string | null> {
  const unusedEntry = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const limit = deps.limit ?? TYPING_LIMIT;
  const answer = await askKeychain(unusedEntry, { operation: "trial" }, { env: deps.env, limit });
  return answer.ok ? null : answer.reason;
}

/** Stores a key where it will be read from. Never throws. No reason contains the key. */
export async function storeKey(place: KeyPlace, key: Secret, deps: StoreDeps): Promise<Stored> {
  const incomplete = keyFault(key.reveal());
  if (incomplete !== null) return failed(`incomplete key: ${incomplete}`);
  const { replace = false } = deps;
  if (place.kind === "file") return storeFile(place.path, key, replace);
  const foreign = foreignEntry(place);
  if (foreign !== null) return failed(foreign);
  const request = { operation: "store", key: key.reveal(), replace } as const;
  const answer = await askKeychain(place, request, { env: deps.env, limit: deps.limit ?? TYPING_LIMIT });
  if (!answer.ok) return failed(key.redactFrom(answer.reason));
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
      `file:${escapeControlChars(path)} is not an absolute path: write the whole path, from the first /`,
    );
  const text = `${key.reveal()}\n`;
  try {
    if (replace) await writePrivateFile(path, text);
    else if (!(await createPrivateFile(path, text))) return sameAlready(path, key);
    return { ok: true, made: true };
  } catch (error) {
    return failed(fileFault(path, error));
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
    return hasCode(error, "ENOENT") ? { ok: true } : failed(fileFault(path, error));
  }
}

function fileFault(path: string, error: unknown): string {
  const code = errorCode(error);
  const folder = dirname(path);
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return `you may not write to ${escapeControlChars(folder)}: ls -ld ${escapeControlChars(quoteForShell(folder))}`;
  }
  if (code === "ENOSPC" || code === "EDQUOT") return `there is no space left for ${escapeControlChars(path)}`;
  if (code === "EISDIR") return `${escapeControlChars(path)} is a folder, not a file`;
  if (code === "ENOTDIR" || code === "EEXIST") return `${escapeControlChars(folder)} is not a folder`;
  return `${escapeControlChars(path)} could not be changed (${code})`;
}
