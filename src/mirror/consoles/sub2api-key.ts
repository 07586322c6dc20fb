import { type JsonObject, numberAt, objectAt, textAt, wholeAt } from "../../core/json.ts";
import { keyProblem, Secret } from "../../core/secret.ts";
import type { KeyWindow } from "../../proxy/key-health/key-problem.ts";
import { cleanAt, cleanText } from "./clean-text.ts";
import type { ConsoleKey, ShownKey } from "./console.ts";
import { moneyAt, timeAt } from "./values.ts";

/* A key as sub2api lists it. */

export function readKey(item: JsonObject, rates: JsonObject): ConsoleKey | null {
  const id = wholeAt(item, "id");
  if (id === null) return null;
  const group = objectAt(item, "group");
  const groupId = wholeAt(item, "group_id");
  const ownRate = groupId === null ? null : numberAt(rates, String(groupId));
  const quota = moneyAt(item, "quota");
  const hasQuota = quota !== null && quota > 0;
  const windows = ["5h", "1d", "7d"].map((window) => readWindow(item, window));
  return {
    ref: `id:${id}`,
    name: cleanAt(item, "name") ?? "",
    shown: readShownKey(textAt(item, "key") ?? ""),
    group: cleanAt(group, "name"),
    multiplier: ownRate ?? numberAt(group, "rate_multiplier"),
    ...(textAt(group, "subscription_type") === "subscription" ? { subscription: true } : {}),
    state: readKeyState(textAt(item, "status")),
    quota: hasQuota ? quota : null,
    // Versions without quotas have no such field.
    unlimited: quota === 0,
    // Without a quota it stays 0, whatever was used (0.1.135).
    quota_used: hasQuota ? moneyAt(item, "quota_used") : null,
    windows: windows.filter((window) => window !== null),
    created_at: timeAt(item, "created_at"),
    expires_at: timeAt(item, "expires_at"),
    last_used_at: timeAt(item, "last_used_at"),
  };
}

function readWindow(item: JsonObject, window: string): KeyWindow | null {
  const most = moneyAt(item, `rate_limit_${window}`) ?? 0;
  if (most <= 0) return null;
  const used = moneyAt(item, `usage_${window}`) ?? 0;
  return { window, most, used, resets_at: timeAt(item, `reset_${window}_at`) };
}

/** sub2api shows the whole key; the sandbox and some forks only its ends, as sk-abcd…wxyz or with stars. */
export function readShownKey(key: string): ShownKey {
  const [head = "", ...rest] = key.split(/…+|\*+|\.{2,}/);
  if (rest.length === 0) {
    return keyProblem(key) === null ? { how: "whole", key: new Secret(key) } : { how: "hidden" };
  }
  const bare = head.replace(/^sk-/, "");
  const tail = rest.at(-1) ?? "";
  const areEnds = /^[\w-]{0,16}$/.test(bare) && /^[\w-]{0,16}$/.test(tail) && bare + tail !== "";
  return areEnds ? { how: "ends", head: cleanText(bare), tail: cleanText(tail) } : { how: "hidden" };
}

function readKeyState(status: string | null): ConsoleKey["state"] {
  switch (status) {
    case "active":
    case "expired":
    case "disabled":
      return status;
    case "inactive":
      return "disabled";
    case "quota_exhausted":
      return "quota-exhausted";
    default:
      return "unknown";
  }
}
