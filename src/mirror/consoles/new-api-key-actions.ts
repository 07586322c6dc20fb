import { asFields, countAt, fieldAt, flagAt, type JsonObject, textAt, wholeAt } from "../../core/json.ts";
import { keyProblem, Secret } from "../../core/secret.ts";
import { MINUTE_MS } from "../../core/units.ts";
import {
  ConsoleError,
  type CopiedSettings,
  type CreatedKey,
  type KeyActions,
  type KeyPlan,
  type KeySettings,
} from "./console.ts";
import {
  type ConsoleClient,
  type ConsoleRequest,
  otherShape,
  type RequestBody,
  required,
  requiredData,
} from "./http.ts";
import type { KeyCallBudget } from "./key-calls.ts";
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
import { type ListPage, listPages, readAll } from "./log-walk.ts";
import { readData, readShownKey, readStatus } from "./one-api-protocol.ts";

interface KeyActionsDeps {
  readonly client: ConsoleClient;
  readonly accessToken: Secret;
  /** Of every request. */
  readonly headers: Readonly<Record<string, string>>;
  readonly now: () => number;
  /** null: one-api, where refs have names, keys have no group, and lists show whole keys. */
  readonly keyCalls: KeyCallBudget | null;
}

const PATH = "/api/token/";
const LIST = "its keys";
const NEW_KEY = "the new key";
const NEVER = -1;
/** What a new key gets from the old one, where the console has it. `models` and `subnet` are one-api's. */
const COPIED = [
  "expired_time",
  "remain_quota",
  "unlimited_quota",
  "model_limits_enabled",
  "model_limits",
  "allow_ips",
  "group",
  "cross_group_retry",
  "auto_groups",
  "models",
  "subnet",
];

/** The console makes the keys. A new one is found by its name, because the response to its creation does not contain it. */
export class NewApiKeyActions implements KeyActions {
  readonly takesOwnKeys = false;
  readonly needsGroup = false;
  readonly #deps: KeyActionsDeps;

  constructor(deps: KeyActionsDeps) {
    this.#deps = deps;
  }

  get #isOneApi(): boolean {
    return this.#deps.keyCalls === null;
  }

  async groups(): Promise<readonly string[] | null> {
    if (this.#isOneApi) return null;
    const about = "its groups";
    const data = await this.#send({ path: "/api/user/self/groups" }, about);
    return Object.keys(requiredData(data, about));
  }

  async create({ name, settings }: KeyPlan): Promise<CreatedKey> {
    let keys = await this.#findByName(name);
    let asked: RequestBody = {};
    if (keys.length === 0) {
      this.#requireKeyCall();
      const fields = "like" in settings ? await this.#copy(settings) : await this.#buildFields(settings);
      await this.#send({ method: "POST", path: PATH, body: { name, ...fields } }, NEW_KEY);
      keys = await this.#findByName(name);
      asked = fields;
    }
    const [oldest, ...others] = keys.toSorted((a, b) => readId(a) - readId(b));
    if (oldest === undefined) {
      throw new ConsoleError("failing", "accepted the new key, but does not list it");
    }
    // An earlier request that seemed to be lost was executed after all.
    for (const other of others) await this.#deleteById(readId(other));
    const missing = limitsMissing(asked, oldest);
    if (missing.length > 0) {
      await this.#deleteById(readId(oldest));
      throw limitsIgnored(missing);
    }
    return { ref: this.#readRef(oldest), key: await this.#reveal(oldest) };
  }

  async find(name: string): Promise<string | null> {
    const [key] = await this.#findByName(name);
    return key === undefined ? null : this.#readRef(key);
  }

  async setEnabled(ref: string, enabled: boolean): Promise<void> {
    const id = await this.#findId(ref);
    if (id === null) throw refused("no longer has this key");
    // Without status_only, fields that the request lacks become 0.
    const path = `${PATH}?status_only=true`;
    await this.#send({ method: "PUT", path, body: { id, status: enabled ? 1 : 2 } }, "the change of a key");
  }

  async delete(ref: string): Promise<void> {
    const id = await this.#findId(ref);
    if (id !== null) await this.#deleteById(id);
  }

  async #deleteById(id: number): Promise<void> {
    try {
      await this.#send({ method: "DELETE", path: `${PATH}${id}` }, "the deletion of a key");
    } catch (error) {
      // A key that is gone is an error too, in words that differ between versions.
      const isRefusal = error instanceof ConsoleError && error.kind === "refused";
      if (!isRefusal || (await this.#isListed(id))) throw error;
    }
  }

  /** The newest keys are on the first page. The search is asked only if that is not enough: new-api allows 10 a minute. */
  async #findByName(name: string): Promise<JsonObject[]> {
    const newest = await this.#listPage((page) => `${PATH}?p=${page}&page_size=100`);
    const found = newest.rows.map(asFields).filter((key) => textAt(key, "name") === name);
    if (found.length > 0 || newest.last) return found;
    const keyword = encodeURIComponent(name);
    const search = await this.#listPage(
      (page) => `${PATH}search?keyword=${keyword}&token=&p=${page}&page_size=100`,
    );
    // Some versions search for names that begin with the keyword.
    return search.rows.map(asFields).filter((key) => textAt(key, "name") === name);
  }

  async #listPage(path: (page: number) => string): Promise<ListPage> {
    for await (const page of this.#listPages(path)) return page;
    throw otherShape(LIST, "data");
  }

  #listPages(path: (page: number) => string): AsyncGenerator<ListPage, void> {
    const get = (path: string, about: string) => this.#send({ path }, about);
    return listPages(get, LIST, { first: this.#isOneApi ? 0 : 1 }, path);
  }

  async #isListed(id: number): Promise<boolean> {
    const keys = await readAll(this.#listPages((page) => `${PATH}?p=${page}&page_size=100`));
    return keys.some((key) => countAt(key, "id") === id);
  }

  async #buildFields({ group, quota, windows, expires_at, models }: KeySettings): Promise<RequestBody> {
    if (windows.length > 0) throw refused("cannot limit what a key spends in some hours or days");
    if (models.length > 0 && this.#isOneApi) throw modelsRefused();
    if (group !== null && (await this.groups())?.includes(group) !== true) throw unknownGroup(group);
    if (expires_at !== null && expires_at <= this.#deps.now()) throw expiredAlready();
    const units = quota === null ? 0 : await this.#toUnits(quota);
    return {
      // 0 would mean 1970.
      expired_time: expires_at === null ? NEVER : Math.floor(expires_at / 1000),
      unlimited_quota: quota === null,
      remain_quota: units,
      model_limits_enabled: models.length > 0,
      model_limits: models.join(","),
      allow_ips: "",
      group: group ?? "",
      cross_group_retry: false,
    };
  }

  async #toUnits(microdollars: number): Promise<number> {
    return toUnits(microdollars, (await readStatus(this.#deps.client)).quotaPerUnit);
  }

  async #copy({ like, renewed }: CopiedSettings): Promise<RequestBody> {
    const id = await this.#findId(like);
    if (id === null) throw oldKeyGone();
    const about = "the old key";
    const old = requiredData(await this.#send({ path: `${PATH}${id}` }, about), about);
    const expiresAt = renewed?.expires_at ?? null;
    const quota = renewed?.quota ?? null;
    const copied = { ...old };
    if (expiresAt !== null) copied.expired_time = Math.floor(expiresAt / 1000);
    if (quota !== null) copied.remain_quota = await this.#toUnits(quota);
    const expires = wholeAt(copied, "expired_time") ?? NEVER;
    if (expires !== NEVER && expires * 1000 <= this.#deps.now()) throw oldKeyExpired();
    const isUnlimited = flagAt(copied, "unlimited_quota") === true;
    if (!isUnlimited && (wholeAt(copied, "remain_quota") ?? 0) <= 0) throw oldKeyUsedUp();
    const fields: Record<string, string | number | boolean | readonly string[]> = {};
    for (const name of COPIED) {
      const value = fieldAt(copied, name);
      if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
        fields[name] = value;
      } else if (Array.isArray(value)) {
        fields[name] = value.filter((one) => typeof one === "string");
      }
    }
    return fields;
  }

  /** Lists show keys whole up to v0.12.0 and in one-api. */
  async #reveal(key: JsonObject): Promise<Secret> {
    const shown = readShownKey(textAt(key, "key") ?? "");
    if (shown.how === "whole") return shown.key;
    this.#requireKeyCall();
    this.#deps.keyCalls?.spend();
    const data = await this.#send({ method: "POST", path: `${PATH}${readId(key)}/key` }, NEW_KEY);
    const text = `sk-${(textAt(data, "key") ?? "").replace(/^sk-/, "")}`;
    if (keyProblem(text) !== null) throw otherShape(NEW_KEY, "key");
    return new Secret(text);
  }

  /** A key that cannot be shown yet is not created either. */
  #requireKeyCall(): void {
    const { keyCalls } = this.#deps;
    if (keyCalls === null || keyCalls.left() > 0) return;
    const wait = keyCalls.wait();
    const minutes = Math.max(1, Math.ceil(wait / MINUTE_MS));
    throw new ConsoleError(
      "rate-limited",
      `shows 20 keys in 20 minutes, and can be asked again in ${minutes} min`,
      Math.ceil(wait / 1000),
    );
  }

  #readRef(key: JsonObject): string {
    return this.#isOneApi ? `name:${textAt(key, "name")}` : `id:${readId(key)}`;
  }

  /** null: there is no such key. */
  async #findId(ref: string): Promise<number | null> {
    const id = /^id:(\d+)$/.exec(ref)?.[1];
    if (id !== undefined) return Number(id);
    const name = ref.replace(/^name:/, "");
    const [key, ...others] = await this.#findByName(name);
    if (others.length > 0) throw refused(`has several keys with the name ${name}`);
    return key === undefined ? null : readId(key);
  }

  async #send(request: Omit<ConsoleRequest, "bearer" | "headers">, about: string): Promise<unknown> {
    const { client, accessToken, headers } = this.#deps;
    const response = await client.send({ ...request, bearer: accessToken, headers });
    return readData(response, about, "refused");
  }
}

function readId(key: JsonObject): number {
  return required(countAt(key, "id"), "id", LIST);
}

/** Rounds down. Uses BigInt because a large quota times the units of a dollar exceeds what a double holds. */
function toUnits(microdollars: number, quotaPerUnit: number): number {
  if (!Number.isSafeInteger(quotaPerUnit)) return Math.floor((microdollars / 1_000_000) * quotaPerUnit);
  return Number((BigInt(microdollars) * BigInt(quotaPerUnit)) / 1_000_000n);
}

/** What was asked for and the listed key does not have. */
function limitsMissing(asked: RequestBody, listed: JsonObject): string[] {
  const missing: string[] = [];
  if (asked.unlimited_quota === false && flagAt(listed, "unlimited_quota") === true) missing.push("quota");
  const expires = asked.expired_time ?? NEVER;
  if (expires !== NEVER && wholeAt(listed, "expired_time") === NEVER) missing.push("expiry");
  if (asked.model_limits_enabled === true && flagAt(listed, "model_limits_enabled") !== true)
    missing.push("models");
  return missing;
}
