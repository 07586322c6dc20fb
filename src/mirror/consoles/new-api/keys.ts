import { Secret } from "../../../secret.ts";
import type { ConsoleKey, ShownKey } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { asObject, countAt, flagAt, type JsonObject, numberAt, objectAt, textAt, wholeAt } from "../json.ts";
import { cleanAt } from "../texts.ts";
import type { Ask } from "./envelope.ts";
import { microdollarsOf } from "./money.ts";

/** What both kinds list of a key; how it is named and in which group it is, they do differently. */
export type KeyFacts = Omit<ConsoleKey, "ref" | "group" | "multiplier">;

/** null: this is no key. */
export function readKey(raw: JsonObject, quotaPerUnit: number, now: number): KeyFacts | null {
  if (wholeAt(raw, "id") === null && textAt(raw, "name") === null) return null;
  const used = countAt(raw, "used_quota");
  const remain = wholeAt(raw, "remain_quota");
  const unlimited = flagAt(raw, "unlimited_quota") === true;
  const quota = unlimited || remain === null ? null : remain + (used ?? 0);
  const lastUsed = countAt(raw, "accessed_time") ?? 0;
  return {
    name: cleanAt(raw, "name") ?? "",
    shown: shownOf(textAt(raw, "key") ?? ""),
    state: stateOf(raw, now),
    quota: quota === null ? null : microdollarsOf(quota, quotaPerUnit),
    quota_used: used === null ? null : microdollarsOf(used, quotaPerUnit),
    windows: [],
    expires_at: expiryOf(raw),
    last_used_at: lastUsed > 0 ? lastUsed * 1000 : null,
  };
}

/** Keys are listed without their `sk-`: whole, or from v0.12.0 on only the ends of them. */
function shownOf(text: string): ShownKey {
  const bare = text.replace(/^sk-/, "");
  const masked = /^([^*…]*)[*…][*….]*([^*…]*)$/.exec(bare);
  if (masked !== null) {
    const [, head = "", tail = ""] = masked;
    return head === "" && tail === "" ? { how: "hidden" } : { how: "ends", head, tail };
  }
  return bare === "" || /[*…]/.test(bare)
    ? { how: "hidden" }
    : { how: "whole", key: new Secret(`sk-${bare}`) };
}

/** -1: never. */
function expiryOf(raw: JsonObject): number | null {
  const at = wholeAt(raw, "expired_time") ?? -1;
  return at > 0 ? at * 1000 : null;
}

/** Where the console has a cache, the status it lists is not changed when a key expires or is used up. */
function stateOf(raw: JsonObject, now: number): ConsoleKey["state"] {
  const status = wholeAt(raw, "status");
  const expiry = expiryOf(raw);
  const remain = wholeAt(raw, "remain_quota");
  if (status === 2) return "disabled";
  if (status === 3 || (expiry !== null && expiry <= now)) return "expired";
  const spent = flagAt(raw, "unlimited_quota") === false && remain !== null && remain <= 0;
  if (status === 4 || spent) return "quota-exhausted";
  return status === 1 ? "active" : "unknown";
}

/** The factors of the groups, by name. A console that does not tell them is no worse for it. */
export async function readMultipliers(ask: Ask): Promise<(group: string) => number | null> {
  const groups = await ask("/api/user/self/groups", "its groups").then(asObject, ifNotNeeded);
  return (name) => {
    const group = groups === null ? null : objectAt(groups, name);
    // Of a group that picks another one for each request the factor is a word.
    return group === null ? null : numberAt(group, "ratio");
  };
}

/** Asking on would only make these worse. */
function ifNotNeeded(error: unknown): null {
  const heavy = ["rate-limited", "unreachable", "slow"];
  if (error instanceof ConsoleFault && !heavy.includes(error.kind)) return null;
  throw error;
}
