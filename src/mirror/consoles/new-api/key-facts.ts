import type { Secret } from "../../../secret.ts";
import { otherShape } from "../answers.ts";
import type { ConsoleClient, ConsoleKey } from "../console.ts";
import { asObject, countAt, flagAt, type JsonObject, wholeAt } from "../json.ts";
import { cleanAt } from "../texts.ts";
import { askWithKey } from "./key-answer.ts";
import { microdollarsOf } from "./money.ts";

export interface HeldKey {
  readonly fingerprint: string;
  readonly key: Secret;
}

/** Whatever number the console has for it: without a login it is known by what is held here. */
export function refOf({ fingerprint }: HeldKey): string {
  return `key:${fingerprint}`;
}

/** A key that was not asked about: only whose rows its rows are. */
export function bareKey(one: HeldKey): ConsoleKey {
  return {
    ref: refOf(one),
    name: one.fingerprint,
    shown: { how: "whole", key: one.key },
    group: null,
    multiplier: null,
    state: "unknown",
    quota: null,
    quota_used: null,
    windows: [],
    expires_at: null,
    last_used_at: null,
  };
}

const ABOUT = "the facts of a key";

/** The slash at the end belongs there: without it the console answers with a redirect, which nobody follows. */
export async function readKeyFacts(
  client: ConsoleClient,
  one: HeldKey,
  quotaPerUnit: number,
  now: number,
): Promise<ConsoleKey> {
  const told = await askWithKey(client, "/api/usage/token/", one.key, ABOUT);
  // Disabled, or deleted: the console does not say which.
  if (told === null) return { ...bareKey(one), state: "disabled" };
  const data = asObject(told);
  if (data === null) throw otherShape(ABOUT, "data");
  const moneyAt = (name: string) => {
    const quota = wholeAt(data, name);
    return quota === null ? null : microdollarsOf(quota, quotaPerUnit);
  };
  const expires = countAt(data, "expires_at") ?? 0;
  return {
    ...bareKey(one),
    name: cleanAt(data, "name") ?? one.fingerprint,
    state: stateOf(data, expires * 1000, now),
    quota: flagAt(data, "unlimited_quota") === true ? null : moneyAt("total_granted"),
    quota_used: moneyAt("total_used"),
    expires_at: expires > 0 ? expires * 1000 : null,
  };
}

function stateOf(data: JsonObject, expires: number, now: number): ConsoleKey["state"] {
  if (expires > 0 && expires <= now) return "expired";
  const left = wholeAt(data, "total_available");
  const spent = flagAt(data, "unlimited_quota") !== true && left !== null && left <= 0;
  return spent ? "quota-exhausted" : "active";
}
