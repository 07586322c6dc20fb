import { createHash } from "node:crypto";
import {
  asFields,
  countAt,
  fieldAt,
  flagAt,
  isObject,
  type JsonObject,
  listAt,
  numberAt,
  objectAt,
  parseObject,
  textAt,
} from "../../core/json.ts";
import { CALL_ID_HEADER, isGatewayId } from "../../metering/gateway-ids.ts";
import { STANDARD_TIER, serviceTier } from "../../metering/service-tiers.ts";
import { cleanAt } from "./clean-text.ts";
import type { AccountFacts, ConsoleAdapter, ConsoleKey, KeyActions, Page } from "./console.ts";
import { type AdapterDeps, otherShape, readDate, readJson, required } from "./http.ts";
import { readLiteLlmKey, readLiteLlmKeys, refOf } from "./litellm-key.ts";
import { LiteLlmKeyActions } from "./litellm-key-actions.ts";
import type { LiteLlmSession } from "./litellm-session.ts";
import { ListedRows, type LogSource, type ReadRow, walkLog } from "./log-walk.ts";
import { dollarsToMicrodollars, moneyAt, timeAt } from "./values.ts";

export interface LiteLlmDeps extends AdapterDeps {
  readonly session: LiteLlmSession;
}

/** A row has 8 KB, because it repeats the prices of its model. */
const PAGE_SIZE = 500;

/** LiteLLM's proxy, read with a key of one of its users: such a user sees the own rows and keys. */
export class LiteLlm implements ConsoleAdapter {
  readonly kind = "litellm";
  /** The second one is for versions that do not list the first, and for requests from before its kind was known here. */
  readonly idNames = [CALL_ID_HEADER, "body"];
  /** A stream that the provider cut is billed, but its status was good. */
  readonly billsFailures = false;
  readonly socketRowsHaveIds = true;
  readonly #deps: LiteLlmDeps;
  readonly #listed = new ListedRows();
  /** How far its clock is ahead of ours. */
  #ahead = 0;

  constructor(deps: LiteLlmDeps) {
    this.#deps = deps;
  }

  walk(cursor: string | null, since: number): AsyncIterable<Page> {
    const source: LogSource = {
      get: async (path, about) => readList(await this.#get(path, about), about),
      numbers: { first: 1 },
      path: (page, { from, to }) =>
        // The end is a point in time, and a row of that second is later.
        `/spend/logs/v2?start_date=${dateTime(from)}&end_date=${dateTime(to + 1)}&page=${page}&page_size=${PAGE_SIZE}&sort_by=startTime&sort_order=desc`,
      readRow: readLiteLlmRow,
    };
    const now = this.#deps.now() + this.#ahead;
    return walkLog(source, cursor, since + this.#ahead, now, this.#listed);
  }

  async keys(): Promise<ConsoleKey[]> {
    const found = await readLiteLlmKeys((path, about) => this.#get(path, about));
    return found.map(readLiteLlmKey);
  }

  async account(): Promise<AccountFacts> {
    const info = objectAt(await this.#get("/user/info", "the account"), "user_info");
    const most = moneyAt(info, "max_budget");
    const spent = moneyAt(info, "spend");
    const balance = most === null || spent === null ? null : most - spent;
    return { balance, console_version: await this.#readVersion() };
  }

  keyActions(): KeyActions {
    return new LiteLlmKeyActions(this.#deps);
  }

  async #get(path: string, about: string): Promise<JsonObject> {
    const response = await this.#deps.session.send({ path });
    const date = readDate(response);
    if (date !== null) this.#ahead = Math.round((date - this.#deps.now()) / 1000) * 1000;
    return readJson(response, about);
  }

  /** Older versions say it to everyone, newer ones to nobody. */
  async #readVersion(): Promise<string | null> {
    const { status, text } = await this.#deps.client.send({ path: "/health/readiness" });
    return status === 200 ? cleanAt(parseObject(text), "litellm_version") : null;
  }
}

/** As log-walk.ts reads lists. LiteLLM finds rows by the time at which their requests began. */
function readList(answer: JsonObject, about: string): JsonObject {
  const rows = required(listAt(answer, "data"), "data", about);
  const items = rows.map((row) => {
    const began = isObject(row) ? timeAt(row, "startTime") : null;
    return { ...asFields(row), created_at: began === null ? null : Math.floor(began / 1000) };
  });
  const total = countAt(answer, "total");
  if (total === null) throw otherShape(about, "total");
  return { items, total };
}

/** As LiteLLM reads a time, UTC: `2026-11-19 13:42:44`, in a query. */
function dateTime(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", "%20");
}

export function readLiteLlmRow(raw: JsonObject): ReadRow | "other" | "unreadable" {
  const began = timeAt(raw, "startTime");
  const id = textAt(raw, "request_id");
  if (began === null || id === null) return "unreadable";
  const details = objectAt(raw, "metadata") ?? parseObject(textAt(raw, "metadata") ?? "");
  const ended = timeAt(raw, "endTime") ?? began;
  const kind = fieldAt(raw, "status") === "failure" ? "error" : "use";
  const hash = textAt(raw, "api_key");
  const callId = withoutAttempt(textAt(raw, "litellm_call_id") ?? textAt(details, "litellm_call_id") ?? id);
  const billed = moneyAt(raw, "spend");
  // After a fallback another one answered.
  const model =
    cleanAt(details, "original_model_group") ?? cleanAt(raw, "model_group") ?? cleanAt(raw, "model");
  // What keybearer itself asks about a key, such as its models, leaves such rows if the key is refused.
  if (kind === "error" && model === null && (billed ?? 0) === 0) return "other";
  const isCacheHit = textAt(raw, "cache_hit")?.toLowerCase() === "true" || flagAt(raw, "cache_hit") === true;
  return {
    // One row for each id of a provider's answer, which the mirror must be able to see: see reconcile.ts.
    identity: isGatewayId(id) ? id : digestOf(id),
    kind,
    created_at: ended,
    began_at: began,
    key_ref: hash === null ? null : refOf(hash),
    request_id: isGatewayId(callId) ? callId : null,
    upstream_id: null,
    model,
    group: cleanAt(details, "user_api_key_team_alias"),
    ...(isCacheHit ? FROM_CACHE : readPrice(objectAt(details, "cost_breakdown"))),
    stream: null,
    endpoint: cleanAt(raw, "call_type"),
    // What failed without a cost has an estimate of its input.
    ...(kind === "error" && (billed ?? 0) === 0 ? UNKNOWN_TOKENS : readTokens(raw, details)),
    billed_microdollars: billed,
    duration_ms: countAt(raw, "request_duration_ms") ?? Math.max(0, ended - began),
    ip: cleanAt(raw, "requester_ip_address"),
    user_agent: cleanAt(details, "user_agent"),
  };
}

/** Of an answer to /v1/responses the id has 400 characters. Another caller's row can have the same call id. */
function digestOf(id: string): string {
  return createHash("sha256").update(id).digest("hex").slice(0, 32);
}

/** If a request fails in the end, each attempt before the last that timed out has a row with a cost, and an id made of the request's (1.106). */
function withoutAttempt(callId: string): string {
  return callId.replace(/-attempt-\d+$/, "");
}

/** Answered from LiteLLM's own cache, which costs nothing. The tier keeps its rows apart from those that cost something. */
const FROM_CACHE = { list_microdollars: 0, multiplier: null, service_tier: "litellm-cache" } as const;

/** LiteLLM's own price before its discounts and margins, and their factor. Images have no such parts. */
function readPrice(parts: JsonObject | null) {
  const list = numberAt(parts, "original_cost");
  const total = numberAt(parts, "total_cost");
  const tier = serviceTier(cleanAt(parts, "service_tier"));
  const isKnown = list !== null && total !== null && list > 0 && total >= 0;
  return {
    list_microdollars: list === null || list < 0 ? null : dollarsToMicrodollars(list),
    multiplier: isKnown ? Number((total / list).toFixed(6)) : null,
    service_tier: tier === STANDARD_TIER ? null : tier,
  };
}

const UNKNOWN_TOKENS = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
} as const;

/** prompt_tokens includes cached tokens, whatever the provider's protocol. */
function readTokens(raw: JsonObject, details: JsonObject | null) {
  const prompt = countAt(raw, "prompt_tokens");
  const usage = objectAt(details, "usage_object");
  const parts = objectAt(usage, "prompt_tokens_details");
  const read = countAt(parts, "cached_tokens") ?? countAt(usage, "cache_read_input_tokens") ?? 0;
  const written =
    countAt(parts, "cache_creation_tokens") ?? countAt(usage, "cache_creation_input_tokens") ?? 0;
  return {
    input_tokens: prompt === null ? null : Math.max(0, prompt - read - written),
    cache_read_tokens: read,
    cache_write_tokens: written,
    output_tokens: countAt(raw, "completion_tokens"),
  };
}
