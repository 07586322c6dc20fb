import type { Agent } from "node:http";
import type { Gateway } from "../config/shape.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { type ConsoleResponse, createClient, dateOf } from "../mirror/consoles/http.ts";
import { countAt, flagAt, objectAt, parseObject, wholeAt } from "../mirror/consoles/json.ts";
import type { KeyCallBudgets } from "../mirror/consoles/key-calls.ts";
import { causeOf, type KeyFault } from "../proxy/cause.ts";

export interface KeyCheckDeps {
  readonly clock: Clock;
  readonly keyCalls: KeyCallBudgets;
  /** The gateway's own connections, so that its outbound proxy is used here too. */
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
}

/** An answer holds for this long. */
const FRESH_MS = 5 * 60_000;

/**
 * Finds out why new-api refuses a key. Its relay answers 401 "Invalid token" to keys that are deleted, disabled, expired or
 * used up; what it tells a key about itself differs.
 */
export class KeyCheck {
  readonly #deps: KeyCheckDeps;
  readonly #stop = new AbortController();
  /** By origin and digest of the key. */
  readonly #asked = new Map<string, { readonly at: number; readonly fault: Promise<KeyFault | null> }>();

  constructor(deps: KeyCheckDeps) {
    this.#deps = deps;
  }

  /** Never throws. null: unknown, because it was not answered or the budget is used up. */
  check(gateway: Gateway, key: Secret): Promise<KeyFault | null> {
    const now = this.#deps.clock.now();
    for (const [id, { at }] of this.#asked) if (Math.abs(now - at) >= FRESH_MS) this.#asked.delete(id);
    const { origin } = new URL(gateway.baseUrl);
    const id = `${origin} ${key.digest("key-check")}`;
    const asked = this.#asked.get(id);
    if (asked !== undefined) return asked.fault;
    if (!this.#deps.keyCalls.of(origin).take()) return Promise.resolve(null);
    const fault = this.#ask(gateway, origin, key);
    this.#asked.set(id, { at: now, fault });
    return fault;
  }

  /** Milliseconds until the gateway can be asked again; 0: now. */
  wait({ baseUrl }: Gateway): number {
    return Math.max(0, this.#deps.keyCalls.of(baseUrl).wait());
  }

  stop(): void {
    this.#stop.abort();
  }

  async #ask(gateway: Gateway, origin: string, key: Secret): Promise<KeyFault | null> {
    const { clock, agentFor } = this.#deps;
    const client = createClient({
      url: origin,
      clock,
      agent: () => agentFor(gateway, origin),
      signal: this.#stop.signal,
      onSkew: () => {},
    });
    try {
      // With the trailing slash: without it new-api answers with a redirect.
      const response = await client.send({ path: "/api/usage/token/", bearer: key });
      return faultIn(response, dateOf(response) ?? clock.now());
    } catch {
      // It did not answer. That says nothing about the key, and the request itself was answered before.
      return null;
    }
  }
}

/**
 * What new-api says about a key that its relay refuses with 401 (v0.13.2 and 2d8e50bf).
 * @param now by new-api's clock
 */
export function faultIn(response: ConsoleResponse, now: number): KeyFault | null {
  const { status, text } = response;
  if (status === 200) return faultInFacts(text, now);
  // 429 and 5xx say nothing about the key.
  if (status !== 401 && status !== 403) return null;
  const cause = causeOf({ status, contentType: "application/json", body: text });
  if (cause?.detail === "key-disabled" || cause?.detail === "account-disabled") return cause.detail;
  return status === 401 && cause?.name === "incomplete-key" ? "key-deleted" : null;
}

function faultInFacts(text: string, now: number): KeyFault | null {
  const body = parseObject(text);
  const facts = body === null ? null : objectAt(body, "data");
  if (body === null || facts === null || flagAt(body, "code") !== true) return null;
  const expires = (countAt(facts, "expires_at") ?? 0) * 1000;
  if (expires > 0 && expires <= now) return "key-expired";
  const available = wholeAt(facts, "total_available");
  if (flagAt(facts, "unlimited_quota") !== true && available !== null && available <= 0) return "key-quota";
  // v0.13.2 tells a disabled key its facts too. The relay refuses keys for no other reason.
  return "key-disabled";
}
