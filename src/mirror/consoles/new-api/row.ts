import { asObject, countAt, fieldAt, flagAt, type JsonObject, numberAt, textAt, wholeAt } from "../json.ts";
import { cleanAt, cleanText } from "../texts.ts";
import { microdollarsOf } from "./money.ts";
import type { UnnamedRow } from "./walk.ts";

/** 1 is a top-up, 3 and 4 are the operator's, 7 a login. */
const KINDS: Readonly<Record<number, UnnamedRow["kind"]>> = { 2: "use", 5: "error", 6: "refund" };

/** Stands in the row of a request whose upstream never said what it used: its zeros are no numbers. */
const NOT_TOLD = "上游没有返回计费信息";

export function readNewApiRow(raw: JsonObject, quotaPerUnit: number): UnnamedRow | "other" | "unreadable" {
  const type = wholeAt(raw, "type");
  const createdAt = countAt(raw, "created_at");
  if (type === null || createdAt === null) return "unreadable";
  const kind = KINDS[type];
  if (kind === undefined) return "other";
  const other = otherOf(raw);
  const seconds = numberAt(raw, "use_time");
  const duration = seconds === null || seconds < 0 ? null : Math.round(seconds * 1000);
  const requestId = cleanAt(raw, "request_id");
  return {
    kind,
    created_at: createdAt * 1000,
    began_at: startOf(requestId, createdAt * 1000, duration),
    key_ref: keyRefOf(raw),
    request_id: requestId,
    upstream_id: cleanAt(raw, "upstream_request_id"),
    model: cleanAt(raw, "model_name"),
    group: cleanAt(raw, "group"),
    multiplier: other === null ? null : multiplierOf(other),
    stream: flagAt(raw, "is_stream"),
    endpoint: other === null ? null : pathOf(other),
    ...tokensOf(raw, other),
    list_microdollars: null,
    billed_microdollars: billedOf(raw, quotaPerUnit),
    duration_ms: duration,
    ip: cleanAt(raw, "ip"),
  };
}

/** use_time tells the second in which a request began, its id the millisecond. The id counts where the two agree. */
function startOf(id: string | null, createdAt: number, duration: number | null): number | null {
  if (duration === null) return null;
  const start = createdAt - duration;
  const exact = startInId(id);
  return exact !== null && Math.abs(exact - start) <= SAME_START_MS ? exact : start;
}

const SAME_START_MS = 3000;

/**
 * A request id begins with the time at which new-api made it: 14 digits of UTC, then nanoseconds (in v0.13.2 without
 * leading zeros), then 16 characters (8 in versions up to about v0.12). null: it does not.
 */
function startInId(id: string | null): number | null {
  const [, year, month, day, hour, minute, second, nanos] = REQUEST_ID.exec(id ?? "") ?? [];
  if (nanos === undefined) return null;
  const seconds = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  return Number.isNaN(seconds) ? null : seconds + Math.floor(Number(nanos) / 1_000_000);
}

const REQUEST_ID =
  /^(20\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{1,9})(?:[0-9a-f]{8}[0-9A-Za-z]{8}|[0-9A-Za-z]{8})$/;

/** What was taken; of a refund, what came back. */
export function billedOf(raw: JsonObject, quotaPerUnit: number): number | null {
  const quota = wholeAt(raw, "quota");
  return quota === null ? null : Math.abs(microdollarsOf(quota, quotaPerUnit));
}

function keyRefOf(raw: JsonObject): string | null {
  const id = countAt(raw, "token_id") ?? 0;
  if (id > 0) return `id:${id}`;
  const name = cleanAt(raw, "token_name");
  return name === null ? null : `name:${name}`;
}

/** A JSON text inside the JSON. null: empty or broken. */
function otherOf(raw: JsonObject): JsonObject | null {
  try {
    return asObject(JSON.parse(textAt(raw, "other") ?? ""));
  } catch {
    return null;
  }
}

function multiplierOf(other: JsonObject): number | null {
  // -1 says that this user has no factor of their own.
  const own = numberAt(other, "user_group_ratio");
  if (own !== null && own >= 0) return own;
  const ofGroup = numberAt(other, "group_ratio");
  return ofGroup !== null && ofGroup >= 0 ? ofGroup : null;
}

/** Without a query, in which some clients carry their key. */
function pathOf(other: JsonObject): string | null {
  const path = cleanText((textAt(other, "request_path") ?? "").split("?", 1)[0] ?? "");
  return path === "" ? null : path;
}

type Tokens = Pick<UnnamedRow, "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens">;

const UNKNOWN: Tokens = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
};

function tokensOf(raw: JsonObject, other: JsonObject | null): Tokens {
  if ((textAt(raw, "content") ?? "").includes(NOT_TOLD)) return UNKNOWN;
  const prompt = countAt(raw, "prompt_tokens");
  const output = countAt(raw, "completion_tokens");
  if (other === null) return { ...UNKNOWN, input_tokens: prompt, output_tokens: output };
  const cacheRead = countAt(other, "cache_tokens") ?? 0;
  const cacheWrite = cacheWritesOf(other);
  // The same column means two things: what the upstream calls its input, with or without what came from a cache.
  const without = fieldAt(other, "usage_semantic") === "anthropic" || flagAt(other, "claude") === true;
  const input = prompt === null || without ? prompt : Math.max(0, prompt - cacheRead - cacheWrite);
  return {
    input_tokens: input,
    cache_read_tokens: cacheRead,
    cache_write_tokens: cacheWrite,
    output_tokens: output,
  };
}

function cacheWritesOf(other: JsonObject): number {
  const short = countAt(other, "cache_creation_tokens_5m") ?? 0;
  const long = countAt(other, "cache_creation_tokens_1h") ?? 0;
  return countAt(other, "cache_creation_tokens") ?? countAt(other, "cache_write_tokens") ?? short + long;
}
