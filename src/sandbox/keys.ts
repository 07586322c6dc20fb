import { createHash, randomBytes } from "node:crypto";
import type { Clock } from "../core/clock.ts";
import { rounded } from "./billing.ts";
import type { Groups } from "./groups.ts";
import { createRateWindow, type RateWindow } from "./rate-window.ts";

/** What the console's dialog asks for (SPEC.md section 2). Money in dollars, times in milliseconds UTC. */
export interface KeyRequest {
  readonly name: string;
  /** A group's name. */
  readonly group: string;
  /** Spending cap. Default unlimited. */
  readonly quota?: number;
  /** Default off. */
  readonly rateLimit?: { readonly perMinute?: number; readonly concurrent?: number };
  /** From this moment on the key is expired. Default permanent. */
  readonly expiresAt?: number;
  /** Fixes the key string by hand. Default generated. */
  readonly customKey?: string;
}

export type KeyState = "active" | "disabled" | "deleted" | "expired";

/** One key. Its string is not in here: it is shown once, at creation, and only its digest is kept. */
export interface SandboxKey {
  readonly id: number;
  name: string;
  groupId: number;
  quota: number | null;
  quotaUsed: number;
  perMinute: number | null;
  concurrent: number | null;
  expiresAt: number | null;
  disabled: boolean;
  readonly digest: string;
  /** Enough of the string to know it again: sk-abcd…wxyz. */
  readonly mask: string;
  readonly createdAt: number;
  updatedAt: number;
  lastUsedAt: number | null;
  deletedAt: number | null;
  /** Requests under way. */
  running: number;
  readonly window: RateWindow;
}

/** Why a key cannot be made or found, in the console's words. */
export interface KeyProblem {
  readonly status: number;
  readonly reason: string;
  readonly message: string;
}

export type Issued =
  | { readonly ok: true; readonly key: SandboxKey; readonly text: string }
  | { readonly ok: false; readonly problem: KeyProblem };

export interface Keys {
  issue(request: KeyRequest): Issued;
  /** The key with this string; a deleted one is as unknown as one that never was. */
  withText(text: string): SandboxKey | null;
  /** Deleted keys too: the usage log still names them. */
  withId(id: number): SandboxKey | null;
  /** Without the deleted ones, in order of creation. */
  list(): SandboxKey[];
  /** The deleted ones too. */
  all(): readonly SandboxKey[];
  stateOf(key: SandboxKey): KeyState;
  setDisabled(key: SandboxKey, disabled: boolean): void;
  remove(key: SandboxKey): void;
  spend(key: SandboxKey, dollars: number): void;
}

export const KEY_NOT_FOUND: KeyProblem = {
  status: 404,
  reason: "API_KEY_NOT_FOUND",
  message: "api key not found",
};

export function createKeys(clock: Clock, groups: Groups): Keys {
  const byId = new Map<number, SandboxKey>();
  const idOfDigest = new Map<string, number>();

  return {
    issue(request) {
      const group = groups.named(request.group);
      const problem = problemWith(request, group !== null, (text) => idOfDigest.has(digestOf(text)));
      if (problem !== null || group === null) return { ok: false, problem: problem ?? UNKNOWN_GROUP };
      const text = request.customKey ?? `sk-${randomBytes(32).toString("hex")}`;
      const key = newKey(byId.size + 1, text, group.id, request, clock.now());
      byId.set(key.id, key);
      idOfDigest.set(key.digest, key.id);
      return { ok: true, key, text };
    },
    withText(text) {
      const id = idOfDigest.get(digestOf(text));
      return id === undefined ? null : (byId.get(id) ?? null);
    },
    withId: (id) => byId.get(id) ?? null,
    list: () => [...byId.values()].filter((key) => key.deletedAt === null),
    all: () => [...byId.values()],
    setDisabled(key, disabled) {
      if (key.deletedAt !== null) throw new Error(`key ${key.id} is deleted; create a new one`);
      key.disabled = disabled;
      key.updatedAt = clock.now();
    },
    stateOf(key) {
      if (key.deletedAt !== null) return "deleted";
      if (key.disabled) return "disabled";
      return key.expiresAt !== null && key.expiresAt <= clock.now() ? "expired" : "active";
    },
    remove(key) {
      key.deletedAt ??= clock.now();
      idOfDigest.delete(key.digest);
    },
    spend(key, dollars) {
      key.quotaUsed = rounded(key.quotaUsed + dollars);
      key.lastUsedAt = clock.now();
    },
  };
}

export function quotaExhausted(key: SandboxKey): boolean {
  return key.quota !== null && key.quotaUsed >= key.quota;
}

const UNKNOWN_GROUP: KeyProblem = { status: 404, reason: "GROUP_NOT_FOUND", message: "group not found" };

function problemWith(
  request: KeyRequest,
  groupExists: boolean,
  isTaken: (text: string) => boolean,
): KeyProblem | null {
  if (request.name.trim() === "") return invalid("name is required");
  if (!groupExists) return UNKNOWN_GROUP;
  const { quota, rateLimit, customKey } = request;
  if (quota !== undefined && !(quota > 0)) return invalid("quota must be more than 0");
  for (const most of [rateLimit?.perMinute, rateLimit?.concurrent]) {
    if (most !== undefined && !(Number.isInteger(most) && most > 0)) {
      return invalid("a rate limit must be a whole number above 0");
    }
  }
  if (customKey === undefined) return null;
  if (customKey.length < 16) {
    return {
      status: 400,
      reason: "API_KEY_TOO_SHORT",
      message: "api key must be at least 16 characters",
    };
  }
  if (!/^[A-Za-z0-9_-]+$/.test(customKey)) {
    return {
      status: 400,
      reason: "API_KEY_INVALID_CHARS",
      message: "api key can only contain letters, numbers, underscores, and hyphens",
    };
  }
  return isTaken(customKey)
    ? { status: 409, reason: "API_KEY_EXISTS", message: "api key already exists" }
    : null;
}

function invalid(message: string): KeyProblem {
  return { status: 400, reason: "INVALID_REQUEST", message };
}

function newKey(id: number, text: string, groupId: number, request: KeyRequest, now: number): SandboxKey {
  return {
    id,
    name: request.name,
    groupId,
    quota: request.quota ?? null,
    quotaUsed: 0,
    perMinute: request.rateLimit?.perMinute ?? null,
    concurrent: request.rateLimit?.concurrent ?? null,
    expiresAt: request.expiresAt ?? null,
    disabled: false,
    digest: digestOf(text),
    mask: `${text.slice(0, 7)}…${text.slice(-4)}`,
    createdAt: now,
    updatedAt: now,
    lastUsedAt: null,
    deletedAt: null,
    running: 0,
    window: createRateWindow(),
  };
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
