import { asFields, countAt, flagAt, type JsonObject, listAt, textAt } from "../../core/json.ts";
import { cleanAt } from "./clean-text.ts";
import type { ConsoleKey, ShownKey } from "./console.ts";
import { otherShape, required } from "./http.ts";
import { moneyAt, timeAt } from "./values.ts";

/* A key as LiteLLM lists it. It names a key by its SHA-256 hash, and shows its last four characters. */

const KEYS = "its keys";
/** The largest page. */
const PAGE_SIZE = 100;
const MAX_PAGES = 50;
const HASH = /^[0-9a-f]{64}$/;

type Get = (path: string, about: string) => Promise<JsonObject>;

/** All keys of the account as they are listed. @param query more of the list's filters, with a leading `&` */
export async function readLiteLlmKeys(get: Get, query = ""): Promise<JsonObject[]> {
  // By hash: a key created meanwhile moves others to the next page.
  const keys = new Map<string, JsonObject>();
  for (let page = 1; page <= MAX_PAGES; page += 1) {
    const path = `/key/list?return_full_object=true&page=${page}&size=${PAGE_SIZE}${query}`;
    const answer = await get(path, KEYS);
    const items = required(listAt(answer, "keys"), "keys", KEYS).map(asFields);
    for (const item of items) {
      const hash = textAt(item, "token");
      if (hash !== null && HASH.test(hash) && !isSession(item)) keys.set(hash, item);
    }
    if (items.length > 0 && items.every((item) => textAt(item, "token") === null))
      throw otherShape(KEYS, "token");
    if (page >= (countAt(answer, "total_pages") ?? 1)) break;
  }
  return [...keys.values()];
}

/** LiteLLM's own web pages make a key of this team with each login. */
const SESSION_TEAM = "litellm-dashboard";

function isSession(item: JsonObject): boolean {
  return textAt(item, "team_id") === SESSION_TEAM;
}

export function refOf(hash: string): string {
  return `hash:${hash}`;
}

/** null: it is none of LiteLLM's. */
export function hashIn(ref: string): string | null {
  const hash = ref.replace(/^hash:/, "");
  return HASH.test(hash) ? hash : null;
}

export function readLiteLlmKey(item: JsonObject): ConsoleKey {
  const hash = textAt(item, "token") ?? "";
  const most = moneyAt(item, "max_budget");
  const used = moneyAt(item, "spend");
  const duration = cleanAt(item, "budget_duration");
  // A budget that starts over is a window.
  const window = most === null || duration === null ? null : { window: duration, most, used: used ?? 0 };
  return {
    ref: refOf(hash),
    name: cleanAt(item, "key_alias") ?? "",
    shown: readShown(hash, textAt(item, "key_name") ?? ""),
    group: cleanAt(item, "team_alias"),
    multiplier: null,
    state: readState(item, most, used),
    quota: window === null ? most : null,
    unlimited: most === null,
    quota_used: window === null ? used : (moneyAt(item, "total_spend") ?? used),
    windows: window === null ? [] : [{ ...window, resets_at: timeAt(item, "budget_reset_at") }],
    models: (listAt(item, "models") ?? []).filter((model) => typeof model === "string"),
    created_at: timeAt(item, "created_at"),
    expires_at: timeAt(item, "expires"),
    last_used_at: timeAt(item, "last_active"),
  };
}

/** As `sk-...abcd`. */
function readShown(hash: string, text: string): ShownKey {
  const tail = /\.{3}([\w-]{4})$/.exec(text)?.[1];
  return tail === undefined ? { how: "hidden" } : { how: "hash", hash, tail };
}

function readState(item: JsonObject, most: number | null, used: number | null): ConsoleKey["state"] {
  if (flagAt(item, "blocked") === true) return "disabled";
  if (most !== null && used !== null && used >= most && textAt(item, "budget_duration") === null)
    return "quota-exhausted";
  return "active";
}
