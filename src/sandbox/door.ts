import type { IncomingHttpHeaders } from "node:http";
import type { Account } from "./account.ts";
import type { Group, Groups } from "./groups.ts";
import { type Keys, quotaExhausted, type SandboxKey } from "./keys.ts";
import { DOOR, quotaRefusal, type Refusal } from "./refusals.ts";

export type Shown =
  | { readonly ok: true; readonly key: SandboxKey }
  | { readonly ok: false; readonly refusal: Refusal };

export type Entry =
  | { readonly ok: true; readonly group: Group }
  | { readonly ok: false; readonly refusal: Refusal };

/** Whose key is this? */
export function identify(headers: IncomingHttpHeaders, query: URLSearchParams, keys: Keys): Shown {
  if (query.has("key") || query.has("api_key")) return { ok: false, refusal: DOOR.keyInQuery };
  const text = keyIn(headers);
  if (text === null) return { ok: false, refusal: DOOR.noKey };
  const key = keys.withText(text);
  return key === null ? { ok: false, refusal: DOOR.unknownKey } : { ok: true, key };
}

/** May it be used? In the gateway's own order: the key, its group, its time, its quota, the account's balance. */
export function admit(
  key: SandboxKey,
  path: string,
  house: { readonly keys: Keys; readonly groups: Groups; readonly account: Account },
): Entry {
  const refused = (refusal: Refusal): Entry => ({ ok: false, refusal });
  const state = house.keys.stateOf(key);
  if (state === "deleted") return refused(DOOR.unknownKey);
  if (state === "disabled") return refused(DOOR.disabledKey);
  const group = house.groups.withId(key.groupId);
  if (group === null || !group.enabled) return refused(DOOR.disabledGroup);
  // A key may always ask what it has used; that is how its holder learns why the rest is refused.
  if (path === "/v1/usage") return { ok: true, group };
  if (state === "expired") return refused(DOOR.expiredKey);
  if (quotaExhausted(key)) return refused(quotaRefusal(path));
  if (house.account.balance <= 0) return refused(DOOR.noBalance);
  return { ok: true, group };
}

/** The first header that holds something, in the gateway's order. */
function keyIn(headers: IncomingHttpHeaders): string | null {
  const bearer = /^bearer\s+(.*)$/i.exec(headers.authorization ?? "")?.[1];
  for (const value of [bearer, headers["x-api-key"], headers["x-goog-api-key"]]) {
    if (typeof value === "string" && value.trim() !== "") return value.trim();
  }
  return null;
}
