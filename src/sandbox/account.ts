import { createHash, randomBytes } from "node:crypto";
import type { Clock } from "../core/clock.ts";
import { Secret } from "../core/secret.ts";
import { DAY_MS, HOUR_MS } from "../core/units.ts";
import { MODELS, type Model, type ModelPrice } from "./models.ts";

/** A plan group: a price multiplier and the models its keys may use. */
export interface Group {
  readonly id: number;
  readonly name: string;
  readonly multiplier: number;
  readonly models: readonly Model[];
  /** Keys of a disabled group are refused. */
  enabled: boolean;
}

/** What the console's dialog asks for. Money in dollars, times in milliseconds UTC. */
export interface NewKey {
  readonly name: string;
  /** A group's name. */
  readonly group: string;
  /** Default: unlimited. */
  readonly quota?: number;
  /** Default: off. */
  readonly perMinute?: number;
  /** Requests at the same time. Default: off. */
  readonly concurrent?: number;
  /** Default: never. */
  readonly expiresAt?: number;
  /** Default: generated. */
  readonly customKey?: string;
}

/** The spans over which a key's spending can be limited, in milliseconds. */
const SPENDING_WINDOWS = { "5h": 5 * HOUR_MS, "1d": DAY_MS, "7d": 7 * DAY_MS } as const;

export type WindowName = keyof typeof SPENDING_WINDOWS;

export const WINDOW_NAMES = Object.keys(SPENDING_WINDOWS) as WindowName[];

/** In dollars. */
interface SpendingWindow {
  limit: number | null;
  used: number;
  /** null: it begins with the next request. */
  startedAt: number | null;
}

/** One API key without its string, which is shown once, at creation. Only its digest is kept. */
export interface SandboxKey {
  readonly id: number;
  name: string;
  group: Group;
  quota: number | null;
  quotaUsed: number;
  perMinute: number | null;
  concurrent: number | null;
  readonly spending: Readonly<Record<WindowName, SpendingWindow>>;
  expiresAt: number | null;
  disabled: boolean;
  readonly digest: string;
  /** sk-abcd…wxyz */
  readonly mask: string;
  readonly createdAt: number;
  updatedAt: number;
  lastUsedAt: number | null;
  deletedAt: number | null;
  /** Requests in flight. */
  inFlight: number;
  /** When the current minute of the rate limit began, on the monotonic clock, and its requests. */
  minuteStartedAt: number;
  minuteRequests: number;
}

/** The console's names of a key's state. */
export type KeyStatus = "active" | "disabled" | "deleted" | "expired" | "quota_exhausted";

/** What one request used. `input` excludes cached tokens; `output` includes `reasoning`. */
export interface Tokens {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  readonly output: number;
  readonly reasoning: number;
}

/** In dollars. */
interface Cost {
  /** The list price. */
  readonly total: number;
  /** With the group's multiplier: what the account pays. */
  readonly actual: number;
}

/** A request to bill. */
interface BilledRequest {
  /** `client:` and the response's X-Client-Request-ID. */
  readonly requestId: string;
  readonly endpoint: string;
  readonly stream: boolean;
  readonly tokens: Tokens;
  readonly durationMs: number;
  readonly ipAddress: string | null;
}

/** One row of the usage log. */
export interface UsageRow extends BilledRequest {
  /** Goes up by one with each row and is never reused. */
  readonly id: number;
  readonly keyId: number;
  readonly group: Group;
  readonly model: string;
  readonly cost: Cost;
  readonly multiplier: number;
  /** When the request ended, in milliseconds UTC. */
  readonly createdAt: number;
}

/** A sandbox that runs for weeks must not grow without bound. */
const MAX_USAGE_ROWS = 20_000;

/** The gateway's one account: balance, groups, keys and usage log. The gateway and the console both work on it. */
export class Account {
  readonly email = "sandbox@keybearer.test";
  readonly password = new Secret(randomBytes(18).toString("hex"));
  /** In dollars. Can end slightly below 0, because requests in flight are not stopped. */
  balance = 100;
  /** Everything, a dearer selection, and a disabled one: each case that a key can meet. */
  readonly groups: Group[] = [
    { id: 1, name: "default", multiplier: 1, models: MODELS, enabled: true },
    {
      id: 2,
      name: "coding",
      multiplier: 1.5,
      models: modelsNamed("sandbox-large", "sandbox-code"),
      enabled: true,
    },
    { id: 3, name: "retired", multiplier: 2, models: MODELS, enabled: false },
  ];
  /** In order of creation. Deleted keys stay, because usage rows name them. */
  readonly keys: SandboxKey[] = [];
  readonly #usage: UsageRow[] = [];
  readonly #clock: Clock;
  #lastRowId = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  groupWithId(id: number): Group | null {
    return this.groups.find((group) => group.id === id) ?? null;
  }

  /** `text` is the whole key, which cannot be read again. */
  createKey(fields: NewKey): { readonly key: SandboxKey; readonly text: string } {
    const group = this.groups.find(({ name }) => name === fields.group);
    if (group === undefined) throw new Error(`the sandbox has no group ${fields.group}`);
    const text = fields.customKey ?? `sk-${randomBytes(32).toString("hex")}`;
    const now = this.#clock.now();
    const key: SandboxKey = {
      id: this.keys.length + 1,
      name: fields.name,
      group,
      quota: fields.quota ?? null,
      quotaUsed: 0,
      perMinute: fields.perMinute ?? null,
      concurrent: fields.concurrent ?? null,
      spending: { "5h": newWindow(), "1d": newWindow(), "7d": newWindow() },
      expiresAt: fields.expiresAt ?? null,
      disabled: false,
      digest: digest(text),
      mask: `${text.slice(0, 7)}…${text.slice(-4)}`,
      createdAt: now,
      updatedAt: now,
      lastUsedAt: null,
      deletedAt: null,
      inFlight: 0,
      minuteStartedAt: Number.NEGATIVE_INFINITY,
      minuteRequests: 0,
    };
    this.keys.push(key);
    return { key, text };
  }

  /** Does not find deleted keys. */
  keyWithText(text: string): SandboxKey | null {
    const wanted = digest(text);
    return this.keys.find((key) => key.digest === wanted && key.deletedAt === null) ?? null;
  }

  /** Deleted keys too. */
  keyWithId(id: number): SandboxKey | null {
    return this.keys[id - 1] ?? null;
  }

  deleteKey(key: SandboxKey): void {
    key.deletedAt ??= this.#clock.now();
  }

  statusOf(key: SandboxKey): KeyStatus {
    if (key.deletedAt !== null) return "deleted";
    if (key.disabled) return "disabled";
    if (key.expiresAt !== null && key.expiresAt <= this.#clock.now()) return "expired";
    return key.quota !== null && key.quotaUsed >= key.quota ? "quota_exhausted" : "active";
  }

  /** What the key spent in the current window, and when that ends; null: no window is running. */
  spentIn(key: SandboxKey, name: WindowName): { readonly used: number; readonly endsAt: number } | null {
    const { used, startedAt } = key.spending[name];
    if (startedAt === null) return null;
    const endsAt = startedAt + SPENDING_WINDOWS[name];
    return endsAt <= this.#clock.now() ? null : { used, endsAt };
  }

  /** The usage log, oldest row first. */
  usage(): readonly UsageRow[] {
    return this.#usage;
  }

  bill(key: SandboxKey, model: Model, request: BilledRequest): void {
    const { group } = key;
    const cost = computeCost(request.tokens, model.price, group.multiplier);
    const now = this.#clock.now();
    this.balance = rounded(this.balance - cost.actual);
    key.quotaUsed = rounded(key.quotaUsed + cost.actual);
    for (const name of WINDOW_NAMES) this.#spend(key, name, cost.actual);
    key.lastUsedAt = now;
    this.#lastRowId += 1;
    this.#usage.push({
      ...request,
      id: this.#lastRowId,
      keyId: key.id,
      group,
      model: model.id,
      cost,
      multiplier: group.multiplier,
      createdAt: now,
    });
    if (this.#usage.length > MAX_USAGE_ROWS) this.#usage.shift();
  }

  #spend(key: SandboxKey, name: WindowName, dollars: number): void {
    const window = key.spending[name];
    if (this.spentIn(key, name) === null) {
      const now = this.#clock.now();
      window.used = 0;
      // The longer windows begin at midnight, as in sub2api.
      window.startedAt = name === "5h" ? now : now - (now % DAY_MS);
    }
    window.used = rounded(window.used + dollars);
  }
}

function newWindow(): SpendingWindow {
  return { limit: null, used: 0, startedAt: null };
}

function modelsNamed(...ids: string[]): Model[] {
  return MODELS.filter(({ id }) => ids.includes(id));
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function computeCost(tokens: Tokens, price: ModelPrice, multiplier: number): Cost {
  const perMillion =
    tokens.input * price.input +
    tokens.cacheRead * price.cacheRead +
    tokens.cacheWrite * price.cacheWrite +
    tokens.output * price.output;
  const total = rounded(perMillion / 1_000_000);
  return { total, actual: rounded(total * multiplier) };
}

/** Ten decimals, as in sub2api's columns. */
function rounded(dollars: number): number {
  return Math.round(dollars * 1e10) / 1e10;
}
