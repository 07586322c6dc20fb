import { randomBytes } from "node:crypto";
import { lstat, unlink } from "node:fs/promises";
import { dirname, isAbsolute } from "node:path";
import { errorCode, hasCode } from "../core/errors.ts";
import { createPrivateFile, writePrivateFile } from "../core/private-file.ts";
import { keyFault, Secret } from "../core/secret.ts";
import { readKeyFile } from "./sources/file.ts";
import { askKeychain, nameOf, sessionBus } from "./sources/keychain.ts";
import { plain, shellWord } from "./words.ts";

/** Where a key that was typed is put. Both are key sources too. */
export type KeyPlace =
  | { readonly kind: "keychain"; readonly service: string; readonly account: string }
  | { readonly kind: "file"; readonly path: string };

export interface StoreDeps {
  /** Where the keychain is found. */
  readonly env: NodeJS.ProcessEnv;
  /** Another key that lies there may go. Default it stays, and that is a refusal. */
  readonly replace?: boolean | undefined;
  /** Milliseconds for the keychain, whose password a person may have to type. Default 60 s. */
  readonly limit?: number | undefined;
}

export type Stored =
  /** made: false when this very key lay there already, so that it is not this command's to take away. */
  { readonly ok: true; readonly made: boolean } | { readonly ok: false; readonly reason: string };

export type Forgotten = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const TYPING_LIMIT = 60_000;
const LOOKING_LIMIT = 3_000;
const FILE_LIMIT = 10_000;

/** Whether there is a keychain to offer. Asks nobody for a password; a locked one is there. */
export async function keychainThere(deps: {
  readonly env: NodeJS.ProcessEnv;
}): Promise<{ readonly there: boolean; readonly why: string | null }> {
  const bus = sessionBus(deps.env);
  if (!bus.ok) return { there: false, why: bus.reason };
  // No entry has this name. Only one that is found is unlocked, so the search is silent.
  const nobody = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const answer = await askKeychain(nobody, { operation: "read" }, { env: deps.env, limit: LOOKING_LIMIT });
  return answer.ok ? { there: true, why: null } : { there: false, why: answer.reason };
}

/**
 * Whether the keychain takes a key, found out before a person is asked for one. Nothing tells whether it is locked but
 * a try, and its window for the password comes now instead of later. null: it does.
 */
export async function whyNotStored(deps: StoreDeps): Promise<string | null> {
  const nobody = { service: "keybearer", account: `?${randomBytes(8).toString("hex")}` };
  const limit = deps.limit ?? TYPING_LIMIT;
  const answer = await askKeychain(nobody, { operation: "trial" }, { env: deps.env, limit });
  return answer.ok ? null : answer.reason;
}

/** Puts a key where it will be read from. Never throws, and never says the key in a reason. */
export async function storeKey(place: KeyPlace, key: Secret, deps: StoreDeps): Promise<Stored> {
  const fault = keyFault(key.reveal());
  if (fault !== null) return refuse(`incomplete key: ${fault}`);
  const { replace = false } = deps;
  if (place.kind === "file") return storeFile(place.path, key, replace);
  const stranger = notOurs(place.service);
  if (stranger !== null) return refuse(stranger);
  const request = { operation: "store", key: key.reveal(), replace } as const;
  const answer = await askKeychain(place, request, { env: deps.env, limit: deps.limit ?? TYPING_LIMIT });
  if (!answer.ok) return refuse(key.redactFrom(answer.reason));
  if (answer.done) return { ok: true, made: answer.made };
  return refuse(`another key lies in the keychain as ${nameOf(place)} already: it was left alone`);
}

/** Takes a key away again. One that is not there is as good as taken away. */
export async function forgetKey(place: KeyPlace, deps: StoreDeps): Promise<Forgotten> {
  if (place.kind === "file") return forgetFile(place.path);
  const stranger = notOurs(place.service);
  if (stranger !== null) return refuse(stranger);
  const limit = deps.limit ?? TYPING_LIMIT;
  const answer = await askKeychain(place, { operation: "forget" }, { env: deps.env, limit });
  return answer.ok ? { ok: true } : answer;
}

/** The keychain is everybody's: other programs' entries are none of our business. */
function notOurs(service: string): string | null {
  if (service.startsWith("keybearer")) return null;
  return `the service of a keychain entry must begin with keybearer, not ${plain(service)}`;
}

async function storeFile(path: string, key: Secret, replace: boolean): Promise<Stored> {
  if (!isAbsolute(path)) return refuse(`file:${plain(path)} is not a full path: write it from / on`);
  const text = `${key.reveal()}\n`;
  try {
    if (replace) await writePrivateFile(path, text, { followLinks: false });
    else if (!(await createPrivateFile(path, text))) return sameAlready(path, key);
    return { ok: true, made: true };
  } catch (error) {
    return refuse(whyNot(path, error));
  }
}

async function sameAlready(path: string, key: Secret): Promise<Stored> {
  const found = await readKeyFile(path, { home: [], notKeys: [] }, FILE_LIMIT);
  if (found.ok && found.warning === null && new Secret(found.text).equals(key))
    return { ok: true, made: false };
  return refuse(`${plain(path)} is there already, with something else in it: it was left alone`);
}

async function forgetFile(path: string): Promise<Forgotten> {
  try {
    const found = await lstat(path);
    if (!found.isFile()) return refuse(`${plain(path)} is not a regular file: it was left alone`);
    await unlink(path);
    return { ok: true };
  } catch (error) {
    return hasCode(error, "ENOENT") ? { ok: true } : refuse(whyNot(path, error));
  }
}

function whyNot(path: string, error: unknown): string {
  const code = errorCode(error);
  const folder = dirname(path);
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return `${plain(folder)} may not be written by you: ls -ld ${plain(shellWord(folder))}`;
  }
  if (code === "ENOSPC" || code === "EDQUOT") return `there is no room left for ${plain(path)}`;
  if (code === "EISDIR") return `${plain(path)} is a folder, not a file`;
  if (code === "ENOTDIR" || code === "EEXIST") return `${plain(folder)} is not a folder`;
  return `${plain(path)} could not be changed (${code})`;
}

function refuse(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
