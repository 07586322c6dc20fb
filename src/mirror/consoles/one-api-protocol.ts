import { countAt, fieldAt, flagAt, type JsonObject, numberAt, textAt, wholeAt } from "../../core/json.ts";
import { Secret } from "../../core/secret.ts";
import { cleanAt, cleanText } from "./clean-text.ts";
import { type AccountFacts, ConsoleError, type ConsoleKey, type ShownKey } from "./console.ts";
import {
  type ConsoleClient,
  type ConsoleResponse,
  errorText,
  isDenied,
  readDate,
  readJson,
  required,
  requiredData,
} from "./http.ts";
import type { Get } from "./log-walk.ts";

/* The API that one-api and its fork new-api have in common. */

/** The response header, and the id at the end of an error's text. */
export const ONE_API_ID_NAMES: readonly string[] = ["x-oneapi-request-id", "error"];

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
  const data = requiredData(readData(response, about), about);
  const quotaPerUnit = numberAt(data, "quota_per_unit") ?? 0;
  const header = response.headers["x-new-api-version"];
  return {
    quotaPerUnit: quotaPerUnit > 0 ? quotaPerUnit : DEFAULT_QUOTA_PER_UNIT,
    version: typeof header === "string" && header !== "" ? cleanText(header) : cleanAt(data, "version"),
    time: readDate(response),
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

/**
 * The `data` of `{"success", "message", "data"}`. Older versions answer 200 even without a login.
 * @param kind of the error if the console answers with an error of its own
 */
export function readData(
  response: ConsoleResponse,
  about: string,
  kind: "failing" | "refused" = "failing",
): unknown {
  if (isDenied(response)) throw deniedError(response);
  const body = readJson(response, about);
  if (required(flagAt(body, "success"), "success", about)) return fieldAt(body, "data");
  const isDeniedByCode = textAt(body, "code")?.startsWith("AUTH_") === true;
  if (isDeniedByCode || DENIED.test(cleanAt(body, "message") ?? "")) throw deniedError(response);
  throw new ConsoleError(kind, `answered ${about} with an error${errorText(response)}`);
}

function deniedError(response: ConsoleResponse): ConsoleError {
  const said = errorText(response);
  const problem = /new-api-user/i.test(said)
    ? "needs the number of the access token's user; write it as login.user"
    : "does not accept the access token";
  return new ConsoleError("login-needed", `${problem}${said}`);
}

/** The same in new-api and one-api. */
export async function readAccount(get: Get, status: SiteStatus): Promise<AccountFacts> {
  const about = "its account";
  const user = requiredData(await get("/api/user/self", about), about);
  return { balance: quotaAt(user, "quota", status.quotaPerUnit), console_version: status.version };
}

/** A quota field in micro-dollars. */
export function quotaAt(object: JsonObject, name: string, quotaPerUnit: number): number | null {
  const quota = wholeAt(object, name);
  return quota === null ? null : toMicrodollars(quota, quotaPerUnit);
}

/** Rounds half up. Uses BigInt because a large account's quota times a million exceeds what a double holds. */
export function toMicrodollars(quota: number, quotaPerUnit: number): number {
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
    quota: isUnlimited || remaining === null ? null : toMicrodollars(remaining + (used ?? 0), quotaPerUnit),
    unlimited: isUnlimited,
    quota_used: used === null ? null : toMicrodollars(used, quotaPerUnit),
    windows: [],
    created_at: created > 0 ? created * 1000 : null,
    expires_at: expires > 0 ? expires : null,
    last_used_at: isUsed ? accessed * 1000 : null,
  };
}

/** Keys are listed without `sk-`: whole, or from v0.12.0 on only their ends. */
export function readShownKey(text: string): ShownKey {
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

/** What was charged, or for a refund what was returned. */
export function readBilled(raw: JsonObject, quotaPerUnit: number): number | null {
  const money = quotaAt(raw, "quota", quotaPerUnit);
  return money === null ? null : Math.abs(money);
}
