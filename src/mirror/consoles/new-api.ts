import { Secret } from "../../core/secret.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleKey,
  type Page,
  type ShownKey,
} from "./console.ts";
import {
  type AdapterDeps,
  type CallLimit,
  type ConsoleClient,
  type ConsoleResponse,
  dateOf,
  errorText,
  isDenied,
  otherShape,
  pacedClient,
  readJson,
  required,
} from "./http.ts";
import {
  asObject,
  cleanAt,
  cleanText,
  countAt,
  fieldAt,
  flagAt,
  type JsonObject,
  numberAt,
  objectAt,
  parseObject,
  textAt,
  wholeAt,
} from "./json.ts";
import { type Get, type LogSource, listPages, readAll, type UnnamedRow, walkLog } from "./log-walk.ts";

interface NewApiDeps extends AdapterDeps {
  readonly accessToken: Secret;
  /** The number of the access token's user; null: unknown. */
  readonly user: string | null;
}

/** The response header, and the id at the end of an error's text. */
export const NEW_API_ID_NAMES: readonly string[] = ["x-oneapi-request-id", "error"];

/** new-api, read with an account's access token. */
export class NewApi implements ConsoleAdapter {
  readonly kind = "new-api";
  readonly idNames = NEW_API_ID_NAMES;
  readonly billsFailures = false;
  readonly socketRowsHaveIds = true;
  readonly #client: ConsoleClient;
  readonly #get: Get;
  readonly #now: () => number;
  #status: SiteStatus | null = null;

  constructor(deps: NewApiDeps) {
    this.#now = deps.now;
    this.#client = pacedClient(deps, () => callLimit(this.#status?.version ?? null));
    const headers: Record<string, string> = {};
    // Required up to rc.21, ignored by later versions.
    if (deps.user !== null && /^[\x21-\x7e]+$/.test(deps.user)) headers["New-Api-User"] = deps.user;
    this.#get = getWithToken(this.#client, deps.accessToken, headers);
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const { quotaPerUnit, time } = await this.#readStatus();
    const ahead = time === null ? 0 : time - this.#now();
    const source: LogSource = {
      get: this.#get,
      numbers: { first: 1 },
      path: (page, { from, to }) =>
        `/api/log/self?p=${page}&page_size=100&type=0&start_timestamp=${from}&end_timestamp=${to}`,
      readRow: (raw) => readNewApiRow(raw, quotaPerUnit),
    };
    yield* walkLog(source, cursor, since + ahead, this.#now() + ahead);
  }

  async keys(): Promise<ConsoleKey[]> {
    const about = "its keys";
    const { quotaPerUnit } = this.#status ?? (await this.#readStatus());
    const listed = await readAll(
      listPages(this.#get, about, { first: 1 }, (page) => `/api/token/?p=${page}&page_size=100`),
    );
    const groups = await this.#readGroups();
    // By id: a key created meanwhile moves others to the next page.
    const keys = new Map<number, ConsoleKey>();
    for (const item of listed) {
      const raw = asObject(item) ?? {};
      const id = countAt(raw, "id");
      if (id === null) continue;
      const group = objectAt(groups, textAt(raw, "group") ?? "") ?? {};
      keys.set(id, {
        ref: `id:${id}`,
        ...readKey(raw, quotaPerUnit, this.#now()),
        group: cleanAt(raw, "group"),
        // The ratio of the group "auto" is a word.
        multiplier: numberAt(group, "ratio"),
      });
    }
    if (listed.length > 0 && keys.size === 0) throw otherShape(about, "id");
    return [...keys.values()];
  }

  async account(): Promise<AccountFacts> {
    return readAccount(this.#get, await this.#readStatus());
  }

  async #readStatus(): Promise<SiteStatus> {
    this.#status = await readStatus(this.#client);
    return this.#status;
  }

  /** The groups by name, with their ratios. Some versions do not list them. */
  async #readGroups(): Promise<JsonObject> {
    try {
      return asObject(await this.#get("/api/user/self/groups", "its groups")) ?? {};
    } catch (error) {
      // Further calls would fail in the same way.
      const isBusy =
        error instanceof ConsoleFault && ["rate-limited", "unreachable", "slow"].includes(error.kind);
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

/** What the console says without a login. */
export interface SiteStatus {
  readonly quotaPerUnit: number;
  readonly version: string | null;
  /** By its clock, in milliseconds, to the second; null: unknown. */
  readonly time: number | null;
}

/** Quota units per dollar where a console does not say. */
const DEFAULT_QUOTA_PER_UNIT = 500_000;

export async function readStatus(client: ConsoleClient): Promise<SiteStatus> {
  const about = "its status";
  const response = await client.send({ path: "/api/status" });
  const data = required(asObject(readData(response, about)), "data", about);
  const quotaPerUnit = numberAt(data, "quota_per_unit") ?? 0;
  const header = response.headers["x-new-api-version"];
  return {
    quotaPerUnit: quotaPerUnit > 0 ? quotaPerUnit : DEFAULT_QUOTA_PER_UNIT,
    version: typeof header === "string" && header !== "" ? cleanText(header) : cleanAt(data, "version"),
    time: dateOf(response),
  };
}

export function getWithToken(
  client: ConsoleClient,
  accessToken: Secret,
  headers: Readonly<Record<string, string>> = {},
): Get {
  return async (path, about) => readData(await client.send({ path, bearer: accessToken, headers }), about);
}

/** How one-api and versions of new-api say that a login is missing, in the languages they say it in. */
const DENIED =
  /access[ _-]?token|new-api-user|unauthori[sz]ed|not logged in|log ?in (?:again|first)|banned|未登录|未登錄|未登入|无权|無權|未授权|重新登录|封禁/i;

/** The `data` of `{"success", "message", "data"}`. Older versions answer 200 even without a login. */
function readData(response: ConsoleResponse, about: string): unknown {
  if (isDenied(response)) throw deniedFault(response);
  const body = readJson(response, about);
  if (required(flagAt(body, "success"), "success", about)) return fieldAt(body, "data");
  const isDeniedByCode = textAt(body, "code")?.startsWith("AUTH_") === true;
  if (isDeniedByCode || DENIED.test(cleanAt(body, "message") ?? "")) throw deniedFault(response);
  throw new ConsoleFault("failing", `answered ${about} with an error${errorText(response)}`);
}

function deniedFault(response: ConsoleResponse): ConsoleFault {
  const said = errorText(response);
  const why = /new-api-user/i.test(said)
    ? "needs the number of the access token's user; write it as login.user"
    : "does not accept the access token";
  return new ConsoleFault("login-needed", `${why}${said}`);
}

/** The same in new-api and one-api. */
export async function readAccount(get: Get, status: SiteStatus): Promise<AccountFacts> {
  const about = "its account";
  const user = required(asObject(await get("/api/user/self", about)), "data", about);
  return { balance: quotaAt(user, "quota", status.quotaPerUnit), console_version: status.version };
}

/** A quota field in micro-dollars. */
export function quotaAt(object: JsonObject, name: string, quotaPerUnit: number): number | null {
  const quota = wholeAt(object, name);
  return quota === null ? null : microdollarsOf(quota, quotaPerUnit);
}

/** Rounds half up. Uses BigInt because a large account's quota times a million exceeds what a double holds. */
export function microdollarsOf(quota: number, quotaPerUnit: number): number {
  if (!Number.isSafeInteger(quotaPerUnit)) return Math.round((quota / quotaPerUnit) * 1_000_000);
  const unit = BigInt(quotaPerUnit);
  const twice = BigInt(quota) * 2_000_000n + unit;
  const whole = twice / (2n * unit);
  // BigInt division truncates towards zero, but rounding half up needs the floor.
  return Number(twice < 0n && twice % (2n * unit) !== 0n ? whole - 1n : whole);
}

/** What new-api and one-api both list of a key. */
export function readKey(raw: JsonObject, quotaPerUnit: number, now: number) {
  const used = countAt(raw, "used_quota");
  const remaining = wholeAt(raw, "remain_quota");
  const isUnlimited = flagAt(raw, "unlimited_quota") === true;
  // -1: never expires.
  const expires = (wholeAt(raw, "expired_time") ?? -1) * 1000;
  // A key that was never used has the time at which it was created.
  const accessed = countAt(raw, "accessed_time") ?? 0;
  const created = countAt(raw, "created_time") ?? 0;
  const isUsed = accessed > created;
  return {
    name: cleanAt(raw, "name") ?? "",
    shown: readShownKey(textAt(raw, "key") ?? ""),
    state: readKeyState(raw, expires, now),
    quota: isUnlimited || remaining === null ? null : microdollarsOf(remaining + (used ?? 0), quotaPerUnit),
    unlimited: isUnlimited,
    quota_used: used === null ? null : microdollarsOf(used, quotaPerUnit),
    windows: [],
    created_at: created > 0 ? created * 1000 : null,
    expires_at: expires > 0 ? expires : null,
    last_used_at: isUsed ? accessed * 1000 : null,
  };
}

/** Keys are listed without `sk-`: whole, or from v0.12.0 on only their ends. */
function readShownKey(text: string): ShownKey {
  const bare = text.replace(/^sk-/, "");
  const masked = /^([^*…]*)[*…][*….]*([^*…]*)$/.exec(bare);
  if (masked !== null) {
    const [, head = "", tail = ""] = masked;
    return head === "" && tail === "" ? { how: "hidden" } : { how: "ends", head, tail };
  }
  if (bare === "" || /[*…]/.test(bare)) return { how: "hidden" };
  return { how: "whole", key: new Secret(`sk-${bare}`) };
}

/** With a cache, the console lists the status "enabled" for keys that have expired or are used up. */
function readKeyState(raw: JsonObject, expires: number, now: number): ConsoleKey["state"] {
  const status = wholeAt(raw, "status");
  if (status === 2) return "disabled";
  if (status === 3 || (expires > 0 && expires <= now)) return "expired";
  const remaining = wholeAt(raw, "remain_quota");
  const isUsedUp = flagAt(raw, "unlimited_quota") === false && remaining !== null && remaining <= 0;
  if (status === 4 || isUsedUp) return "quota-exhausted";
  return status === 1 ? "active" : "unknown";
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
    began_at: duration === null ? null : startOf(requestId, createdAt - duration),
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
  };
}

/** What was charged, or for a refund what was returned. */
export function readBilled(raw: JsonObject, quotaPerUnit: number): number | null {
  const money = quotaAt(raw, "quota", quotaPerUnit);
  return money === null ? null : Math.abs(money);
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
const WRITTEN_LATE_MS = 10 * 60_000;

/**
 * use_time gives the second in which a request began if its row was written at once; its id gives the millisecond. The id
 * counts unless it is after that second, or so long before it that it is no time.
 */
function startOf(requestId: string | null, start: number): number {
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
