import type { Clock } from "../../core/clock.ts";
import type { Groups } from "../groups.ts";
import { type JsonObject, numberAt, textAt } from "../json.ts";
import { KEY_NOT_FOUND, type KeyProblem, type KeyRequest, type Keys, type SandboxKey } from "../keys.ts";
import type { Zone } from "../zone.ts";
import { keyShape, statusOf } from "./key-shape.ts";
import { failure, type Outcome, paged, pageOf, success } from "./outcome.ts";

/** The API keys page: list, create, change, delete. */
export interface KeyActions {
  list(query: URLSearchParams): Outcome;
  show(id: number): Outcome;
  create(body: JsonObject): Outcome;
  update(id: number, body: JsonObject): Outcome;
  remove(id: number): Outcome;
}

const DAY = 24 * 60 * 60 * 1000;
const DOLLAR_WINDOWS = ["rate_limit_5h", "rate_limit_1d", "rate_limit_7d"];

export function createKeyActions(keys: Keys, groups: Groups, clock: Clock, zone: Zone): KeyActions {
  const shape = (key: SandboxKey) => keyShape(key, keys, groups, zone);

  /** A key of the list; a deleted one is as if it had never been. */
  function found(id: number, action: (key: SandboxKey) => Outcome): Outcome {
    const key = keys.withId(id);
    return key === null || key.deletedAt !== null ? refused(KEY_NOT_FOUND) : action(key);
  }

  return {
    list(query) {
      const search = query.get("search")?.toLowerCase() ?? "";
      const status = query.get("status") || null;
      const groupId = query.get("group_id") || null;
      const wanted = keys
        .list()
        .filter((key) => key.name.toLowerCase().includes(search))
        .filter((key) => status === null || statusOf(key, keys) === status)
        .filter((key) => groupId === null || String(key.groupId) === groupId);
      return paged(wanted.reverse(), pageOf(query), shape);
    },
    show: (id) => found(id, (key) => success(shape(key))),
    create(body) {
      const problem = unsupported(body);
      if (problem !== null) return failure(400, problem);
      const issued = keys.issue(keyRequest(body, groups, clock.now()));
      // The only time that the whole string is shown.
      return issued.ok ? success({ ...shape(issued.key), key: issued.text }) : refused(issued.problem);
    },
    update: (id, body) =>
      found(id, (key) => {
        const problem = unsupported(body) ?? change(key, body, groups);
        if (problem !== null) return failure(400, problem);
        key.updatedAt = clock.now();
        return success(shape(key));
      }),
    remove: (id) =>
      found(id, (key) => {
        keys.remove(key);
        return success({ message: "API key deleted successfully" });
      }),
  };
}

function refused(problem: KeyProblem): Outcome {
  return failure(problem.status, problem.message, problem.reason);
}

/** Said aloud instead of being taken and not held. */
function unsupported(body: JsonObject): string | null {
  const asked = DOLLAR_WINDOWS.find((name) => (numberAt(body, name) ?? 0) !== 0);
  return asked === undefined
    ? null
    : `the sandbox has no ${asked}; use rpm_limit (requests a minute) or concurrency (requests at once)`;
}

/** sub2api writes 0 for "no limit". */
function keyRequest(body: JsonObject, groups: Groups, now: number): KeyRequest {
  const group = groups.withId(numberAt(body, "group_id") ?? 0);
  const quota = numberAt(body, "quota") ?? 0;
  const perMinute = numberAt(body, "rpm_limit") ?? 0;
  const concurrent = numberAt(body, "concurrency") ?? 0;
  const days = numberAt(body, "expires_in_days") ?? 0;
  const customKey = textAt(body, "custom_key") ?? "";
  return {
    name: textAt(body, "name") ?? "",
    group: group?.name ?? "",
    rateLimit: {
      ...(perMinute === 0 ? {} : { perMinute }),
      ...(concurrent === 0 ? {} : { concurrent }),
    },
    ...(quota === 0 ? {} : { quota }),
    ...(days > 0 ? { expiresAt: now + days * DAY } : {}),
    ...(customKey === "" ? {} : { customKey }),
  };
}

/** All or nothing: everything is read before anything is changed. */
function change(key: SandboxKey, body: JsonObject, groups: Groups): string | null {
  const name = textAt(body, "name") ?? key.name;
  if (name.trim() === "") return "name is required";
  const groupId = numberAt(body, "group_id") ?? key.groupId;
  if (groups.withId(groupId) === null) return "group not found";
  const status = textAt(body, "status");
  if (status !== null && status !== "active" && status !== "inactive") {
    return "Invalid status, use active or inactive";
  }
  const limits: number[] = [];
  for (const member of ["quota", "rpm_limit", "concurrency"]) {
    const value = numberAt(body, member) ?? -1;
    if (value < 0 && body[member] !== undefined && body[member] !== null) return `Invalid ${member}`;
    limits.push(value);
  }
  const expires = textAt(body, "expires_at");
  const expiresAt = expires === null ? key.expiresAt : expires === "" ? null : Date.parse(expires);
  if (Number.isNaN(expiresAt)) return "Invalid expires_at format, use RFC3339";

  const [quota = -1, perMinute = -1, concurrent = -1] = limits;
  const limit = (asked: number, before: number | null) => (asked < 0 ? before : asked === 0 ? null : asked);
  key.name = name;
  key.groupId = groupId;
  key.disabled = status === null ? key.disabled : status === "inactive";
  key.quota = limit(quota, key.quota);
  key.perMinute = limit(perMinute, key.perMinute);
  key.concurrent = limit(concurrent, key.concurrent);
  key.expiresAt = expiresAt;
  if (body.reset_quota === true) key.quotaUsed = 0;
  return null;
}
