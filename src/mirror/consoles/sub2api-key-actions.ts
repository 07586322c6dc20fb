import { createHash } from "node:crypto";
import {
  asFields,
  type JsonObject,
  listAt,
  numberAt,
  parseObject,
  textAt,
  wholeAt,
} from "../../core/json.ts";
import type { Secret } from "../../core/secret.ts";
import { DAY_MS } from "../../core/units.ts";
import { cleanAt } from "./clean-text.ts";
import {
  ConsoleError,
  type CopiedSettings,
  type CreatedKey,
  type KeyActions,
  type KeyPlan,
  type KeySettings,
  type ShownKey,
} from "./console.ts";
import {
  type AdapterDeps,
  type ConsoleResponse,
  errorText,
  type RequestBody,
  readRetryAfter,
  required,
  requiredData,
} from "./http.ts";
import {
  expiredAlready,
  limitsIgnored,
  modelsRefused,
  oldKeyExpired,
  oldKeyGone,
  oldKeyUsedUp,
  refused,
  unknownGroup,
} from "./key-refusals.ts";
import { readShownKey } from "./sub2api-key.ts";
import { bodyErrorCode, readAnyData, type Sub2apiSession } from "./sub2api-session.ts";
import { moneyAt, timeAt } from "./values.ts";

type Sub2apiKeyDeps = Pick<AdapterDeps, "now" | "pause"> & { readonly session: Sub2apiSession };

const PATH = "/api/v1/keys";
const PAGE_SIZE = 100;
const MAX_PAGES = 50;
const WINDOWS: readonly string[] = ["5h", "1d", "7d"];
const MICRO = 1_000_000;
/** With pauses of 1, 2, 4, 8 and 16 seconds: the console works on a creation for at most 30 seconds. */
const MAX_ATTEMPTS = 6;

/** The fields of a new key beside its name and text. */
type KeyFields = Record<string, number | readonly string[]>;

export class Sub2apiKeyActions implements KeyActions {
  readonly takesOwnKeys = true;
  readonly needsGroup = true;
  readonly #deps: Sub2apiKeyDeps;

  constructor(deps: Sub2apiKeyDeps) {
    this.#deps = deps;
  }

  async groups(): Promise<readonly string[]> {
    return [...(await this.#readGroups()).keys()];
  }

  /** Safe to repeat: the console never has two keys with the same text, not even for two requests at once. */
  async create({ name, id, key, settings }: KeyPlan): Promise<CreatedKey> {
    if (key === null) throw new TypeError("a key for sub2api is made here");
    let limits = "like" in settings ? null : listLimits(settings);
    let item = await this.#findByName(name);
    if (item === null) {
      const fields = "like" in settings ? await this.#copy(settings) : await this.#buildFields(settings);
      limits ??= limitsIn(fields);
      await this.#post(id, { name, custom_key: key, ...fields });
      item = await this.#findByName(name);
      // It repeats the response to an earlier request, even if that key was deleted since.
      if (item === null) throw new ConsoleError("failing", "accepted the new key, but does not list it");
    }
    if (!isSame(readShownKey(textAt(item, "key") ?? ""), key)) {
      throw refused(`has another key with the name ${name}`);
    }
    const ref = readRef(item);
    const expiresAt = "like" in settings ? await this.#findExpiry(settings) : settings.expires_at;
    const complete = await this.#withExpiry(item, expiresAt);
    if (limits !== null) await this.#requireLimits(complete, limits);
    return { ref, key };
  }

  async find(name: string): Promise<string | null> {
    const item = await this.#findByName(name);
    return item === null ? null : readRef(item);
  }

  async setEnabled(ref: string, enabled: boolean): Promise<void> {
    const item = await this.#read(ref);
    if (item === null) throw refused("no longer has this key");
    await this.#update(item, { status: enabled ? "active" : "inactive" });
  }

  async delete(ref: string): Promise<void> {
    const response = await this.#deps.session.send({ method: "DELETE", path: pathOf(ref) });
    if (!isGone(response)) readResult(response, "the deletion of a key");
  }

  /** The ids of groups by name. */
  async #readGroups(): Promise<Map<string, number>> {
    const about = "its groups";
    const data = readResult(await this.#deps.session.get("/api/v1/groups/available"), about);
    const groups = new Map<string, number>();
    for (const value of required(Array.isArray(data) ? data : null, "data", about)) {
      const item = asFields(value);
      const name = cleanAt(item, "name");
      const id = wholeAt(item, "id");
      if (name !== null && id !== null) groups.set(name, id);
    }
    return groups;
  }

  /** Old versions ignore `search` and list every key. */
  async #findByName(name: string): Promise<JsonObject | null> {
    const about = "the list of keys";
    let read = 0;
    for (let page = 1; page <= MAX_PAGES; page += 1) {
      const query = `page=${page}&page_size=${PAGE_SIZE}&search=${encodeURIComponent(name)}`;
      const response = await this.#deps.session.get(`${PATH}?${query}`);
      const data = requiredData(readResult(response, about), about);
      const items = required(listAt(data, "items"), "items", about);
      const found = items.map(asFields).find((item) => textAt(item, "name") === name);
      if (found !== undefined) return found;
      read += items.length;
      if (items.length === 0 || read >= required(wholeAt(data, "total"), "total", about)) break;
    }
    return null;
  }

  /** null: there is no such key. */
  async #read(ref: string): Promise<JsonObject | null> {
    const about = "a key";
    const response = await this.#deps.session.get(pathOf(ref));
    return isGone(response) ? null : requiredData(readResult(response, about), about);
  }

  async #buildFields({ group, quota, windows, expires_at, models }: KeySettings): Promise<KeyFields> {
    const fields: KeyFields = {};
    if (models.length > 0) throw modelsRefused();
    if (group !== null) {
      const id = (await this.#readGroups()).get(group);
      if (id === undefined) throw unknownGroup(group);
      fields.group_id = id;
    }
    if (quota !== null) fields.quota = quota / MICRO;
    for (const { window, most } of windows) {
      if (!WINDOWS.includes(window)) {
        throw refused(`limits what a key spends in 5h, 1d or 7d, not in ${window}`);
      }
      fields[`rate_limit_${window}`] = most / MICRO;
    }
    if (expires_at !== null) {
      if (expires_at <= this.#deps.now()) throw expiredAlready();
      fields.expires_in_days = this.#daysUntil(expires_at);
    }
    return fields;
  }

  async #copy({ like, renewed }: CopiedSettings): Promise<KeyFields> {
    const item = await this.#read(like);
    if (item === null) throw oldKeyGone();
    const fields: KeyFields = { ...ipLists(item) };
    const groupId = wholeAt(item, "group_id");
    if (groupId !== null) fields.group_id = groupId;
    const quota = moneyAt(item, "quota") ?? 0;
    if (quota > 0) {
      const left = renewed?.quota ?? quota - (moneyAt(item, "quota_used") ?? 0);
      if (left <= 0) throw oldKeyUsedUp();
      fields.quota = left / MICRO;
    }
    for (const window of WINDOWS) {
      const most = numberAt(item, `rate_limit_${window}`) ?? 0;
      if (most > 0) fields[`rate_limit_${window}`] = most;
    }
    const expiresAt = renewed?.expires_at ?? timeAt(item, "expires_at");
    if (expiresAt !== null) {
      if (expiresAt <= this.#deps.now()) throw oldKeyExpired();
      fields.expires_in_days = this.#daysUntil(expiresAt);
    }
    return fields;
  }

  /** Rounded up: the exact time is set afterwards. */
  #daysUntil(time: number): number {
    return Math.ceil((time - this.#deps.now()) / DAY_MS);
  }

  /**
   * The Idempotency-Key also depends on the fields. The console refuses one that comes again with another body for a day, and
   * what is left of a quota changes between two attempts.
   */
  async #post(planId: string, body: RequestBody): Promise<void> {
    const digest = createHash("sha256").update(JSON.stringify(body)).digest("hex").slice(0, 16);
    const headers = { "Idempotency-Key": `${planId}-${digest}` };
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.#deps.session.send({ method: "POST", path: PATH, headers, body });
      const code = response.status === 409 ? bodyErrorCode(response) : null;
      if (code === "API_KEY_EXISTS") return;
      const isBusy = code === "IDEMPOTENCY_IN_PROGRESS" || code === "IDEMPOTENCY_RETRY_BACKOFF";
      if (!isBusy) {
        readResult(response, "the new key");
        return;
      }
      const retryAfter = readRetryAfter(response);
      if (attempt === MAX_ATTEMPTS) {
        throw new ConsoleError("failing", "still works on an earlier request for this key", retryAfter);
      }
      // Retry-After is when it gives up, always 30 seconds. Almost always the earlier request is done at once.
      const seconds = 2 ** (attempt - 1);
      await this.#deps.pause(Math.min(seconds, retryAfter ?? seconds) * 1000);
    }
  }

  /** null: the other key never expires, or is gone meanwhile. */
  async #findExpiry({ like, renewed }: CopiedSettings): Promise<number | null> {
    const expiresAt = renewed?.expires_at ?? null;
    if (expiresAt !== null) return expiresAt;
    const item = await this.#read(like);
    return item === null ? null : timeAt(item, "expires_at");
  }

  /** The console creates keys that expire after whole days. */
  async #withExpiry(item: JsonObject, expiresAt: number | null): Promise<JsonObject> {
    if (expiresAt === null || timeAt(item, "expires_at") === expiresAt) return item;
    return this.#update(item, { expires_at: new Date(expiresAt).toISOString() });
  }

  /** 0.1.135 clears the lists of addresses unless a request repeats them. */
  async #update(item: JsonObject, fields: RequestBody): Promise<JsonObject> {
    const about = "the change of a key";
    const body = { ...fields, ...ipLists(item) };
    const response = await this.#deps.session.send({ method: "PUT", path: pathOf(readRef(item)), body });
    return requiredData(readResult(response, about), about);
  }

  /** Old versions ignore limits that they do not know. A key without its limits must not stay. */
  async #requireLimits(item: JsonObject, { quota, windows, expiry }: KeyLimits): Promise<void> {
    const missing: string[] = [];
    if (quota && (numberAt(item, "quota") ?? 0) <= 0) missing.push("quota");
    for (const window of windows) {
      if ((numberAt(item, `rate_limit_${window}`) ?? 0) <= 0) missing.push(`${window} limit`);
    }
    if (expiry && timeAt(item, "expires_at") === null) missing.push("expiry");
    if (missing.length === 0) return;
    await this.delete(readRef(item));
    throw limitsIgnored(missing);
  }
}

/** Which limits a new key must have. */
interface KeyLimits {
  readonly quota: boolean;
  readonly windows: readonly string[];
  readonly expiry: boolean;
}

function listLimits({ quota, windows, expires_at }: KeySettings): KeyLimits {
  return { quota: quota !== null, windows: windows.map(({ window }) => window), expiry: expires_at !== null };
}

function limitsIn(fields: KeyFields): KeyLimits {
  return {
    quota: fields.quota !== undefined,
    windows: WINDOWS.filter((window) => fields[`rate_limit_${window}`] !== undefined),
    expiry: fields.expires_in_days !== undefined,
  };
}

/** The `data` of a response. A refusal by the console itself is not changed by a new login or a later attempt. */
function readResult(response: ConsoleResponse, about: string): unknown {
  const { status, text } = response;
  const isRefusal = status >= 400 && status < 500 && status !== 429 && parseObject(text) !== null;
  if (isRefusal) throw refused(`refused ${about}${errorText(response)}`);
  return readAnyData(response, about);
}

function isGone({ status, text }: ConsoleResponse): boolean {
  return status === 404 && parseObject(text) !== null;
}

function isSame(shown: ShownKey, key: Secret): boolean {
  switch (shown.how) {
    case "whole":
      return shown.key.equals(key);
    case "ends":
      return key.hasEnds(shown.head, shown.tail);
    case "hash":
      return shown.hash === key.sha256();
    case "hidden":
      return true;
  }
}

function readRef(item: JsonObject): string {
  return `id:${required(wholeAt(item, "id"), "id", "a key")}`;
}

function pathOf(ref: string): string {
  const id = /^id:(\d+)$/.exec(ref)?.[1];
  if (id === undefined) throw refused("has no such key");
  return `${PATH}/${id}`;
}

/** The addresses from which a key may or may not be used, where it has such lists. */
function ipLists(item: JsonObject): Record<string, readonly string[]> {
  const lists: Record<string, readonly string[]> = {};
  for (const name of ["ip_whitelist", "ip_blacklist"]) {
    const list = (listAt(item, name) ?? []).filter((address) => typeof address === "string");
    if (list.length > 0) lists[name] = list;
  }
  return lists;
}
