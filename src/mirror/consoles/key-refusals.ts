import { ConsoleError } from "./console.ts";

/* Why a key cannot be created as it was asked for. Every kind of console says it in the same words. */

/** @param message continues "the console of main …" */
export function refused(message: string): ConsoleError {
  return new ConsoleError("refused", message);
}

export function oldKeyGone(): ConsoleError {
  return refused("no longer has the old key, so its settings cannot be copied");
}

export function oldKeyExpired(): ConsoleError {
  return refused("says that the old key has expired: change its expiry there first");
}

export function oldKeyUsedUp(): ConsoleError {
  return refused("says that nothing is left of the old key's quota: raise it there first");
}

export function expiredAlready(): ConsoleError {
  return refused("was not asked for the new key, which would have expired already");
}

export function unknownGroup(group: string): ConsoleError {
  return refused(`has no group ${group} in which this account may create a key`);
}

export function modelsRefused(): ConsoleError {
  return refused("cannot limit the models of a single key: leave out --models");
}

/** A key without its limits must not stay. */
export function limitsIgnored(limits: readonly string[]): ConsoleError {
  return refused(`ignores a key's ${limits.join(", ")}, so the new key was deleted again`);
}
