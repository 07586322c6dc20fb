import { fieldAt, type JsonObject, listAt, numberAt, parseObject, textAt, wholeAt } from "../../core/json.ts";
import { keyProblem, Secret } from "../../core/secret.ts";
import {
  ConsoleError,
  type CopiedSettings,
  type CreatedKey,
  type KeyActions,
  type KeyPlan,
  type KeySettings,
} from "./console.ts";
import { type ConsoleRequest, errorText, otherShape, type RequestBody, readJson } from "./http.ts";
import {
  expiredAlready,
  limitsIgnored,
  oldKeyExpired,
  oldKeyGone,
  oldKeyUsedUp,
  refused,
} from "./key-refusals.ts";
import { hashIn, readLiteLlmKeys, refOf } from "./litellm-key.ts";
import type { LiteLlmSession } from "./litellm-session.ts";
import { moneyAt, timeAt } from "./values.ts";

interface KeyActionsDeps {
  readonly session: LiteLlmSession;
  readonly now: () => number;
}

const NEW_KEY = "the new key";
const MICRODOLLARS = 1_000_000;
/** The presets of routes. A tool's key needs to call models only. */
const CALLS_MODELS = "llm_api";
const KEY_TYPES = [CALLS_MODELS, "default"];
/** Limits that a new key gets as they are. */
const COPIED = ["budget_duration", "rpm_limit", "tpm_limit", "max_parallel_requests", "team_id"] as const;

/**
 * LiteLLM makes the keys: operators can forbid a user's own ones. It shows a key only in the answer to its creation, and no two
 * keys have one alias. So a key whose answer was lost is deleted, and made again with the settings that it has.
 */
export class LiteLlmKeyActions implements KeyActions {
  readonly takesOwnKeys = false;
  readonly needsGroup = false;
  readonly #deps: KeyActionsDeps;

  constructor(deps: KeyActionsDeps) {
    this.#deps = deps;
  }

  /** A key belongs to its user, or to a team. keybearer makes keys of the user. */
  async groups(): Promise<readonly string[] | null> {
    return null;
  }

  async create({ name, settings }: KeyPlan): Promise<CreatedKey> {
    const lost = await this.#findByAlias(name);
    let asked: RequestBody;
    if (lost !== null) {
      asked = this.#copy(lost, null);
      await this.#delete(hashOf(lost));
    } else asked = "like" in settings ? await this.#copyOld(settings) : this.#buildFields(settings);
    const body = { ...asked, key_alias: name };
    const made = await this.#send({ method: "POST", path: "/key/generate", body }, NEW_KEY);
    const text = textAt(made, "key") ?? "";
    const hash = textAt(made, "token") ?? textAt(made, "token_id") ?? "";
    if (keyProblem(text) !== null) throw otherShape(NEW_KEY, "key");
    if (hashIn(hash) === null) throw otherShape(NEW_KEY, "token");
    const missing = limitsMissing(asked, made);
    if (missing.length > 0) {
      await this.#delete(hash);
      throw limitsIgnored(missing);
    }
    return { ref: refOf(hash), key: new Secret(text) };
  }

  async find(name: string): Promise<string | null> {
    const key = await this.#findByAlias(name);
    return key === null ? null : refOf(hashOf(key));
  }

  /** /key/block is for admins. A user may block the own keys by changing them (1.106); where not, the console says so. */
  async setEnabled(ref: string, enabled: boolean): Promise<void> {
    const body = { key: requireHash(ref), blocked: !enabled };
    await this.#send({ method: "POST", path: "/key/update", body }, "the change of a key");
  }

  async delete(ref: string): Promise<void> {
    await this.#delete(requireHash(ref));
  }

  async #delete(hash: string): Promise<void> {
    const request: Omit<ConsoleRequest, "bearer"> = {
      method: "POST",
      path: "/key/delete",
      body: { keys: [hash] },
    };
    const response = await this.#deps.session.send(request);
    // It is gone already.
    if (response.status === 404 && /no keys found/i.test(response.text)) return;
    readResult(response, "the deletion of a key");
  }

  async #findByAlias(alias: string): Promise<JsonObject | null> {
    const query = `&key_alias=${encodeURIComponent(alias)}`;
    const keys = await this.#readKeys(query);
    // 1.106 lists only that one.
    return keys.find((key) => textAt(key, "key_alias") === alias) ?? null;
  }

  async #readKeys(query: string): Promise<JsonObject[]> {
    return readLiteLlmKeys(async (path, about) => this.#send({ path }, about), query);
  }

  #buildFields({ group, quota, windows, expires_at, models }: KeySettings): RequestBody {
    if (group !== null) throw refused(`has teams instead of groups: leave out the group ${group}`);
    if (expires_at !== null && expires_at <= this.#deps.now()) throw expiredAlready();
    const [window, ...others] = windows;
    if (others.length > 0 || (window !== undefined && quota !== null))
      throw refused("gives a key one budget, either in all or for a time that starts over");
    const budget = window?.most ?? quota;
    return {
      key_type: CALLS_MODELS,
      ...(budget === null ? {} : { max_budget: budget / MICRODOLLARS }),
      ...(window === undefined ? {} : { budget_duration: window.window }),
      ...(models.length === 0 ? {} : { models }),
      ...this.#duration(expires_at),
    };
  }

  async #copyOld({ like, renewed }: CopiedSettings): Promise<RequestBody> {
    const hash = requireHash(like);
    const old = (await this.#readKeys(`&key_hash=${hash}`)).find((key) => hashOf(key) === hash);
    if (old === undefined) throw oldKeyGone();
    return this.#copy(old, renewed ?? null);
  }

  #copy(old: JsonObject, renewed: CopiedSettings["renewed"] | null): RequestBody {
    const expires = renewed?.expires_at ?? timeAt(old, "expires");
    if (expires !== null && expires <= this.#deps.now()) throw oldKeyExpired();
    const fields: Record<string, string | number | boolean | readonly string[]> = {};
    for (const name of COPIED) {
      const value = fieldAt(old, name);
      if (typeof value === "string" || typeof value === "number") fields[name] = value;
    }
    const models = fieldAt(old, "models");
    if (Array.isArray(models) && models.length > 0)
      fields.models = models.filter((model) => typeof model === "string");
    const type = textAt(old, "key_type");
    if (type !== null && KEY_TYPES.includes(type)) fields.key_type = type;
    const budget = this.#budgetLeft(old, renewed?.quota ?? null);
    if (budget !== null) fields.max_budget = budget;
    return { ...fields, ...this.#duration(expires) };
  }

  /** In dollars; null: unlimited. A budget that starts over is copied as it is. */
  #budgetLeft(old: JsonObject, renewed: number | null): number | null {
    if (renewed !== null) return renewed / MICRODOLLARS;
    const most = moneyAt(old, "max_budget");
    if (most === null || textAt(old, "budget_duration") !== null) return numberAt(old, "max_budget");
    const left = most - (moneyAt(old, "spend") ?? 0);
    if (left <= 0) throw oldKeyUsedUp();
    return left / MICRODOLLARS;
  }

  /** LiteLLM takes a time from now on, in whole seconds. */
  #duration(expiresAt: number | null): RequestBody {
    if (expiresAt === null) return {};
    return { duration: `${Math.max(1, Math.floor((expiresAt - this.#deps.now()) / 1000))}s` };
  }

  async #send(request: Omit<ConsoleRequest, "bearer">, about: string): Promise<JsonObject> {
    return readResult(await this.#deps.session.send(request), about);
  }
}

/** A refusal by the console itself is not changed by a new login or a later attempt. */
function readResult(response: Parameters<typeof readJson>[0], about: string): JsonObject {
  const { status, text } = response;
  const isRefusal = status >= 400 && status < 500 && ![401, 429].includes(status);
  if (isRefusal && parseObject(text) !== null) throw refused(`refused ${about}${errorText(response)}`);
  return readJson(response, about);
}

function hashOf(key: JsonObject): string {
  return textAt(key, "token") ?? "";
}

function requireHash(ref: string): string {
  const hash = hashIn(ref);
  if (hash === null) throw new ConsoleError("refused", "has no such key");
  return hash;
}

/** What was asked for and the new key does not have. A key without its limits must not stay. */
function limitsMissing(asked: RequestBody, made: JsonObject): string[] {
  const missing: string[] = [];
  if (asked.max_budget !== undefined && numberAt(made, "max_budget") === null) missing.push("quota");
  if (asked.duration !== undefined && timeAt(made, "expires") === null) missing.push("expiry");
  const models = listAt(made, "models") ?? [];
  if (Array.isArray(asked.models) && !asked.models.every((model) => models.includes(model)))
    missing.push("models");
  for (const name of ["rpm_limit", "tpm_limit", "max_parallel_requests"] as const)
    if (asked[name] !== undefined && wholeAt(made, name) === null) missing.push(name);
  return missing;
}
