import {
  asFields,
  countAt,
  fieldAt,
  flagAt,
  type JsonObject,
  numberAt,
  objectAt,
  parseObject,
  textAt,
  wholeAt,
} from "../../core/json.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { cleanAt, cleanText } from "./clean-text.ts";
import { type ConsoleAdapter, ConsoleError, type ConsoleKey } from "./console.ts";
import { type CallLimit, otherShape } from "./http.ts";
import type { KeyCallBudget } from "./key-calls.ts";
import type { UnnamedRow } from "./log-walk.ts";
import { OneApiConsole, type OneApiDeps } from "./one-api-console.ts";
import { readBilled, readKey } from "./one-api-protocol.ts";

export interface NewApiDeps extends OneApiDeps {
  /** The number of the access token's user; null: unknown. */
  readonly user: string | null;
  readonly keyCalls: KeyCallBudget;
}

/** new-api, read with an account's access token. */
export class NewApi extends OneApiConsole implements ConsoleAdapter {
  readonly kind = "new-api";
  readonly socketRowsHaveIds = true;

  constructor(deps: NewApiDeps) {
    const { user, keyCalls } = deps;
    const headers: Record<string, string> = {};
    // Required up to rc.21, ignored by later versions.
    if (user !== null && /^[\x21-\x7e]+$/.test(user)) headers["New-Api-User"] = user;
    super(deps, {
      firstPage: 1,
      pageSize: "&page_size=100",
      readRow: readNewApiRow,
      limit: callLimit,
      headers,
      keyCalls,
    });
  }

  async keys(): Promise<ConsoleKey[]> {
    const about = "its keys";
    const { items, quotaPerUnit } = await this.listKeys(about);
    const groups = await this.#readGroups();
    // By id: a key created meanwhile moves others to the next page.
    const keys = new Map<number, ConsoleKey>();
    for (const item of items) {
      const raw = asFields(item);
      const id = countAt(raw, "id");
      if (id === null) continue;
      const group = objectAt(groups, textAt(raw, "group") ?? "");
      keys.set(id, {
        ref: `id:${id}`,
        ...readKey(raw, quotaPerUnit, this.now()),
        group: cleanAt(raw, "group"),
        // The ratio of the group "auto" is a word.
        multiplier: numberAt(group, "ratio"),
      });
    }
    if (items.length > 0 && keys.size === 0) throw otherShape(about, "id");
    return [...keys.values()];
  }

  /** The groups by name, with their ratios. Some versions do not list them. */
  async #readGroups(): Promise<JsonObject> {
    try {
      return asFields(await this.get("/api/user/self/groups", "its groups"));
    } catch (error) {
      // Further calls would fail in the same way.
      const isBusy =
        error instanceof ConsoleError && ["rate-limited", "unreachable", "slow"].includes(error.kind);
      if (isBusy) throw error;
      // Some versions have no groups. Then no multipliers are known.
      return {};
    }
  }
}

/*
 * The web API counts calls per address (common/init.go): 180 in 180 s up to v1.0.0-rc.10, 360 from rc.11 on. The window
 * slides without Redis and is fixed with it; staying below the limit in every 180 s suits both. 30 calls are left to the
 * owner's browser: opening the console's pages takes about ten.
 */
const SINCE_RC11: CallLimit = { calls: 330, milliseconds: 180_000 };
const BEFORE_RC11: CallLimit = { calls: 150, milliseconds: 180_000 };

/** Unknown versions (nightly or own builds) get the lower limit: a 429 costs a minute. */
export function callLimit(version: string | null): CallLimit {
  const found = /^v?(\d+)\.\d+\.\d+/.exec(version ?? "");
  if (found === null || found[1] === "0") return BEFORE_RC11;
  const candidate = /^v?1\.0\.0-rc\.(\d+)/.exec(version ?? "");
  return candidate !== null && Number(candidate[1]) < 11 ? BEFORE_RC11 : SINCE_RC11;
}

/** 1 is a top-up, 3 and 4 are the operator's, 7 is a login. */
const ROW_KINDS: Readonly<Record<number, UnnamedRow["kind"]>> = { 2: "use", 5: "error", 6: "refund" };

export function readNewApiRow(raw: JsonObject, quotaPerUnit: number): UnnamedRow | "other" | "unreadable" {
  const type = wholeAt(raw, "type");
  const seconds = countAt(raw, "created_at");
  if (type === null || seconds === null) return "unreadable";
  const kind = ROW_KINDS[type];
  if (kind === undefined) return "other";
  const createdAt = seconds * 1000;
  const useTime = numberAt(raw, "use_time");
  const duration = useTime === null || useTime < 0 ? null : Math.round(useTime * 1000);
  const requestId = cleanAt(raw, "request_id");
  const tokenId = countAt(raw, "token_id") ?? 0;
  const tokenName = cleanAt(raw, "token_name");
  const nameRef = tokenName === null ? null : `name:${tokenName}`;
  // JSON text inside the JSON.
  const details = parseObject(textAt(raw, "other") ?? "");
  // Without the query, in which some clients send their key.
  const path = (details === null ? null : textAt(details, "request_path"))?.split("?", 1)[0] ?? "";
  return {
    kind,
    created_at: createdAt,
    began_at: duration === null ? null : findStart(requestId, createdAt - duration),
    key_ref: tokenId > 0 ? `id:${tokenId}` : nameRef,
    request_id: requestId,
    upstream_id: cleanAt(raw, "upstream_request_id"),
    model: cleanAt(raw, "model_name"),
    group: cleanAt(raw, "group"),
    multiplier: details === null ? null : readMultiplier(details),
    service_tier: null,
    stream: flagAt(raw, "is_stream"),
    endpoint: cleanText(path) || null,
    ...readTokens(raw, details),
    list_microdollars: null,
    billed_microdollars: readBilled(raw, quotaPerUnit),
    duration_ms: duration,
    ip: cleanAt(raw, "ip"),
    user_agent: null,
  };
}

/**
 * new-api puts the time into a request id: 14 digits of UTC, nanoseconds (in v0.13.2 without leading zeros), then 16
 * characters (8 up to about v0.12).
 */
const REQUEST_ID =
  /^(20\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{1,9})(?:[0-9a-f]{8}[0-9A-Za-z]{8}|[0-9A-Za-z]{8})$/;
/** created_at has whole seconds, and use_time is rounded. */
const ROUNDED_MS = 3000;
/** created_at is the time of writing. A gateway whose database was busy wrote rows up to 8 seconds late. */
const WRITTEN_LATE_MS = 10 * MINUTE_MS;

/**
 * use_time gives the second in which a request began if its row was written at once; its id gives the millisecond. The id
 * counts unless it is after that second, or so much earlier that it cannot be a time.
 */
function findStart(requestId: string | null, start: number): number {
  const [, year, month, day, hour, minute, second, nanos] = REQUEST_ID.exec(requestId ?? "") ?? [];
  if (nanos === undefined) return start;
  const seconds = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  const exact = seconds + Math.floor(Number(nanos) / 1_000_000);
  return exact <= start + ROUNDED_MS && exact >= start - WRITTEN_LATE_MS ? exact : start;
}

function readMultiplier(details: JsonObject): number | null {
  // -1: this user has no ratio of their own.
  const own = numberAt(details, "user_group_ratio") ?? -1;
  if (own >= 0) return own;
  const ofGroup = numberAt(details, "group_ratio") ?? -1;
  return ofGroup >= 0 ? ofGroup : null;
}

/** In the row of a request whose upstream reported no usage: its zeros mean unknown. */
const NO_USAGE_REPORTED = "上游没有返回计费信息";

function readTokens(raw: JsonObject, details: JsonObject | null) {
  const unknown = {
    input_tokens: null,
    cache_read_tokens: null,
    cache_write_tokens: null,
    output_tokens: null,
  };
  if ((textAt(raw, "content") ?? "").includes(NO_USAGE_REPORTED)) return unknown;
  const prompt = countAt(raw, "prompt_tokens");
  const output = countAt(raw, "completion_tokens");
  if (details === null) return { ...unknown, input_tokens: prompt, output_tokens: output };
  const cacheRead = countAt(details, "cache_tokens") ?? 0;
  const shortWrites = countAt(details, "cache_creation_tokens_5m") ?? 0;
  const longWrites = countAt(details, "cache_creation_tokens_1h") ?? 0;
  const cacheWrite =
    countAt(details, "cache_creation_tokens") ??
    countAt(details, "cache_write_tokens") ??
    shortWrites + longWrites;
  // prompt_tokens is what the upstream calls its input: Anthropic's excludes cached tokens, the others' includes them.
  const excludesCache =
    fieldAt(details, "usage_semantic") === "anthropic" || flagAt(details, "claude") === true;
  return {
    input_tokens: prompt === null || excludesCache ? prompt : Math.max(0, prompt - cacheRead - cacheWrite),
    cache_read_tokens: cacheRead,
    cache_write_tokens: cacheWrite,
    output_tokens: output,
  };
}
