import type { Agent } from "node:http";
import type { Gateway } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import {
  countAt,
  fieldAt,
  flagAt,
  type JsonObject,
  listAt,
  numberAt,
  objectAt,
  parseObject,
  textAt,
  wholeAt,
} from "../core/json.ts";
import type { Secret } from "../core/secret.ts";
import { type ConsoleResponse, HttpClient, readDate } from "../mirror/consoles/http.ts";
import type { KeyCallBudgets } from "../mirror/consoles/key-calls.ts";
import { findCause, type KeyDetail, type Tested } from "../proxy/key-health/cause.ts";
import { findLastReset, type UsedUpWindow } from "../proxy/key-health/key-problem.ts";

/*
 * What consoles and gateways say about a key when they are asked about the key itself. new-api is asked because its
 * refusals are ambiguous, sub2api because it lists models to keys whose requests it refuses. Nothing is remembered here: the
 * answer goes to proxy/key-health, which sends no request.
 */

interface KeyCheckDeps {
  readonly clock: Clock;
  readonly keyCalls: KeyCallBudgets;
  /** The gateway's own connections, so that its outbound proxy is used here too. */
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  /** What the list of keys of a console login says is wrong with the key; null: nothing, or there is no login. */
  readonly listedDetail: (gateway: string, key: Secret) => Promise<KeyDetail | null>;
}

/**
 * Finds out why a gateway refuses a key. new-api's relay answers 401 "Invalid token" to keys that are deleted, disabled,
 * expired or used up. A login's list of keys distinguishes them, and so does /api/usage/token/, which may be asked only 20
 * times in 20 minutes.
 */
export class KeyCheck {
  readonly #deps: KeyCheckDeps;
  readonly #stop = new AbortController();
  /** Questions that are not answered yet, by origin and digest of the key. */
  readonly #inFlight = new Map<string, Promise<KeyDetail | null>>();

  constructor(deps: KeyCheckDeps) {
    this.#deps = deps;
  }

  /** What the console of the gateway lists. null: unknown, because there is no login, or the list does not say. */
  listed({ name }: Gateway, key: Secret): Promise<KeyDetail | null> {
    return this.#deps.listedDetail(name, key);
  }

  /** Asks new-api, after the list. null: unknown, because it did not answer or the budget of calls is used up. */
  async check(gateway: Gateway, key: Secret): Promise<KeyDetail | null> {
    const { origin } = new URL(gateway.baseUrl);
    const id = `${origin} ${key.digest("key-check")}`;
    const asked = this.#inFlight.get(id);
    if (asked !== undefined) return asked;
    const detail = this.#find(gateway, origin, key);
    this.#inFlight.set(id, detail);
    try {
      return await detail;
    } finally {
      this.#inFlight.delete(id);
    }
  }

  /** Milliseconds until the gateway can be asked again; 0: now. */
  wait({ baseUrl }: Gateway): number {
    return this.#deps.keyCalls.of(baseUrl).wait();
  }

  stop(): void {
    this.#stop.abort();
  }

  async #find(gateway: Gateway, origin: string, key: Secret): Promise<KeyDetail | null> {
    const listed = await this.listed(gateway, key);
    if (listed !== null || !this.#deps.keyCalls.of(origin).take()) return listed;
    return this.#ask(gateway, origin, key);
  }

  async #ask(gateway: Gateway, origin: string, key: Secret): Promise<KeyDetail | null> {
    const { clock, agentFor } = this.#deps;
    const client = new HttpClient({
      url: origin,
      clock,
      agent: () => agentFor(gateway, origin),
      signal: this.#stop.signal,
      onSkew: () => {},
    });
    try {
      // With the trailing slash: without it new-api answers with a redirect.
      const response = await client.send({ path: "/api/usage/token/", bearer: key });
      return findNewApiProblem(response, readDate(response) ?? clock.now());
    } catch {
      // No answer says nothing about the key.
      return null;
    }
  }
}

/**
 * What new-api says about a key that its relay refuses with 401 (v0.13.2 and 2d8e50bf).
 * @param now by new-api's clock
 */
export function findNewApiProblem(
  { status, text }: Pick<ConsoleResponse, "status" | "text">,
  now: number,
): KeyDetail | null {
  if (status === 200) return findDetailInFacts(text, now);
  // 429 and 5xx say nothing about the key.
  if (status !== 401 && status !== 403) return null;
  const cause = findCause({ status, contentType: "application/json", body: text });
  if (cause?.detail === "key-disabled" || cause?.detail === "account-disabled") return cause.detail;
  return status === 401 && cause?.name === "incomplete-key" ? "key-deleted" : null;
}

function findDetailInFacts(text: string, now: number): KeyDetail | null {
  const body = parseObject(text);
  const facts = objectAt(body, "data");
  if (facts === null || flagAt(body, "code") !== true) return null;
  const expires = (countAt(facts, "expires_at") ?? 0) * 1000;
  if (expires > 0 && expires <= now) return "key-expired";
  const available = wholeAt(facts, "total_available");
  if (flagAt(facts, "unlimited_quota") !== true && available !== null && available <= 0) return "key-quota";
  // v0.13.2 reports these facts to a disabled key, too. The relay refuses keys for no other reason.
  return "key-disabled";
}

/** What sub2api says about a key. */
export interface Sub2apiUsage {
  /** null: none. */
  readonly detail: KeyDetail | null;
  readonly window: UsedUpWindow | null;
  /** What the answer tested, if there is no problem. */
  readonly tested: readonly Tested[];
}

/** The plan name of an account that pays from its balance. */
const WALLET = "钱包余额";

/** Reads sub2api's answer to GET /v1/usage (0.1.27, 0.1.135). null: it is another answer. */
export function readSub2apiUsage(text: string): Sub2apiUsage | null {
  const usage = parseObject(text);
  if (usage === null || flagAt(usage, "isValid") === null) return null;
  const limits = listAt(usage, "rate_limits") ?? [];
  const window = findLastReset(limits.flatMap(readUsedUp));
  // It lists models only to keys whose quota and balance suffice (0.1.135).
  const tested: Tested[] = ["key", "money"];
  if (limits.length > 0) tested.push("key-windows");
  // It does not report the plan of a key with a quota or windows of its own.
  if (objectAt(usage, "subscription") !== null) tested.push("plan");
  return { detail: window === null ? findDetail(usage) : "window-used-up", window, tested };
}

function findDetail(usage: JsonObject): KeyDetail | null {
  const status = textAt(usage, "status");
  if (status === "expired") return "key-expired";
  if (status === "disabled") return "key-disabled";
  if (status === "quota_exhausted") return "key-quota";
  const remaining = numberAt(usage, "remaining");
  if (remaining === null || remaining > 0) return null;
  if (textAt(usage, "mode") === "quota_limited") return "key-quota";
  // A balance can be overdrawn. For a subscription, -1 means that it has no limit.
  if (fieldAt(usage, "balance") !== undefined || textAt(usage, "planName") === WALLET)
    return "account-balance";
  if (remaining < 0) return null;
  return objectAt(usage, "subscription") === null ? "account-balance" : "window-used-up";
}

function readUsedUp(limit: unknown): UsedUpWindow[] {
  const name = textAt(limit, "window");
  const remaining = numberAt(limit, "remaining");
  if (name === null || !/^\w{1,8}$/.test(name) || remaining === null || remaining > 0) return [];
  const time = Date.parse(textAt(limit, "reset_at") ?? "");
  return [{ name, resetsAt: Number.isNaN(time) ? null : time }];
}
