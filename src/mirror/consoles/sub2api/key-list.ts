import { keyFault, Secret } from "../../../secret.ts";
import { needList, needWhole } from "../answers.ts";
import type { ConsoleKey, KeyWindow, ShownKey } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { asObject, type JsonObject, numberAt, objectAt, textAt, wholeAt } from "../json.ts";
import type { Sub2apiSession } from "../sub2api-session.ts";
import { cleanAt, cleanText } from "../texts.ts";
import { dataOf } from "./envelope.ts";
import { moneyAt } from "./money.ts";
import { timeAt } from "./row.ts";

const ABOUT = "the list of keys";
const MOST_PAGES = 50;
const SIZE = 100;

export async function listKeys(session: Sub2apiSession): Promise<ConsoleKey[]> {
  const rates = await ownRates(session);
  // By id: a key that is made meanwhile moves the others to the next page.
  const keys = new Map<string, ConsoleKey>();
  let read = 0;
  for (let page = 1; page <= MOST_PAGES; page += 1) {
    const data = dataOf(await session.ask(`/api/v1/keys?page=${page}&page_size=${SIZE}`), ABOUT);
    const items = needList(data, "items", ABOUT);
    for (const item of items) {
      const key = keyOf(asObject(item) ?? {}, rates);
      if (key !== null) keys.set(key.ref, key);
    }
    if (items.length > 0 && keys.size === 0) {
      throw new ConsoleFault("other-shape", `answered ${ABOUT} with keys that have no usable "id"`);
    }
    read += items.length;
    if (items.length === 0 || read >= needWhole(data, "total", ABOUT)) break;
  }
  return [...keys.values()];
}

/** What this account pays in a group, where that is not what everybody pays. Not every version tells. */
async function ownRates(session: Sub2apiSession): Promise<JsonObject> {
  try {
    return dataOf(await session.ask("/api/v1/groups/rates"), "the rates");
  } catch {
    return {};
  }
}

function keyOf(item: JsonObject, rates: JsonObject): ConsoleKey | null {
  const id = wholeAt(item, "id");
  if (id === null) return null;
  const group = objectAt(item, "group");
  const groupId = wholeAt(item, "group_id");
  const ownRate = groupId === null ? null : numberAt(rates, String(groupId));
  const quota = moneyAt(item, "quota");
  return {
    ref: `id:${id}`,
    name: cleanAt(item, "name") ?? "",
    shown: shownKey(textAt(item, "key") ?? ""),
    group: group === null ? null : cleanAt(group, "name"),
    multiplier: ownRate ?? (group === null ? null : numberAt(group, "rate_multiplier")),
    state: stateOf(textAt(item, "status")),
    quota: quota === null || quota <= 0 ? null : quota,
    quota_used: moneyAt(item, "quota_used"),
    windows: ["5h", "1d", "7d"].flatMap((window) => windowOf(item, window) ?? []),
    expires_at: timeAt(item, "expires_at"),
    last_used_at: timeAt(item, "last_used_at"),
  };
}

function windowOf(item: JsonObject, window: string): KeyWindow | null {
  const most = moneyAt(item, `rate_limit_${window}`) ?? 0;
  if (most <= 0) return null;
  const used = moneyAt(item, `usage_${window}`) ?? 0;
  return { window, most, used, resets_at: timeAt(item, `reset_${window}_at`) };
}

/** sub2api shows the whole key; the sandbox and some forks show its ends, as sk-abcd…wxyz or with stars. */
function shownKey(key: string): ShownKey {
  const [head = "", ...rest] = key.split(MASK);
  if (rest.length === 0) {
    return keyFault(key) === null ? { how: "whole", key: new Secret(key) } : { how: "hidden" };
  }
  const bare = head.replace(/^sk-/, "");
  const tail = rest.at(-1) ?? "";
  const areEnds = /^[\w-]{0,16}$/.test(bare) && /^[\w-]{0,16}$/.test(tail) && bare + tail !== "";
  return areEnds ? { how: "ends", head: cleanText(bare), tail: cleanText(tail) } : { how: "hidden" };
}

const MASK = /…+|\*+|\.{2,}/;

function stateOf(status: string | null): ConsoleKey["state"] {
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
