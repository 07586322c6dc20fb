import { asFields, countAt, flagAt, type JsonObject, textAt, wholeAt } from "../../core/json.ts";
import type { Secret } from "../../core/secret.ts";
import { cleanAt } from "./clean-text.ts";
import type { AccountFacts, ConsoleAdapter, ConsoleKey, KeyActions, Page } from "./console.ts";
import { type AdapterDeps, type CallLimit, type ConsoleClient, otherShape, pacedClient } from "./http.ts";
import {
  type Get,
  ListedRows,
  type LogSource,
  listPages,
  readAll,
  type UnnamedRow,
  walkLog,
} from "./log-walk.ts";
import { NewApiKeyActions } from "./new-api-key-actions.ts";
import {
  getWithToken,
  ONE_API_ID_NAMES,
  readAccount,
  readBilled,
  readKey,
  readStatus,
} from "./one-api-protocol.ts";

/** An address may call 480 times in three minutes; 40 calls are left to the owner's browser. */
const CALL_LIMIT: CallLimit = { calls: 440, milliseconds: 180_000 };

/** The program that new-api was forked from: ten rows a page, no totals, and rows name their key only by its name. */
export class OneApi implements ConsoleAdapter {
  readonly kind = "one-api";
  readonly idNames = ONE_API_ID_NAMES;
  readonly billsFailures = false;
  readonly socketRowsHaveIds = false;
  readonly #client: ConsoleClient;
  readonly #get: Get;
  /** For the usage log. */
  readonly #getRows: Get;
  readonly #now: () => number;
  readonly #keyActions: KeyActions;
  readonly #listed = new ListedRows();

  constructor(deps: AdapterDeps & { readonly accessToken: Secret }) {
    const { accessToken, now } = deps;
    const client = pacedClient(deps, () => CALL_LIMIT);
    this.#now = now;
    this.#client = client;
    this.#get = getWithToken(client, accessToken);
    this.#getRows = getWithToken(
      pacedClient(deps, () => CALL_LIMIT, "rows"),
      accessToken,
    );
    this.#keyActions = new NewApiKeyActions({ client, accessToken, headers: {}, now, keyCalls: null });
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const { quotaPerUnit, time } = await readStatus(this.#client);
    const ahead = time === null ? 0 : time - this.#now();
    const source: LogSource = {
      get: this.#getRows,
      numbers: { first: 0 },
      path: (page, { from, to }) =>
        `/api/log/self?p=${page}&type=0&start_timestamp=${from}&end_timestamp=${to}`,
      readRow: (raw) => readRow(raw, quotaPerUnit),
    };
    yield* walkLog(source, cursor, since + ahead, this.#now() + ahead, this.#listed);
  }

  /** Two keys of one name are both listed, so that the report can say that their rows are ambiguous. */
  async keys(): Promise<ConsoleKey[]> {
    const about = "its keys";
    const { quotaPerUnit } = await readStatus(this.#client);
    const listed = await readAll(
      listPages(this.#get, about, { first: 0 }, (page) => `/api/token/?p=${page}`),
    );
    const keys: ConsoleKey[] = [];
    const seen = new Set<number>();
    for (const item of listed) {
      const raw = asFields(item);
      const id = wholeAt(raw, "id");
      if (id === null && textAt(raw, "name") === null) continue;
      // A key created meanwhile moves another to the next page, where it appears again.
      if (id !== null && seen.has(id)) continue;
      if (id !== null) seen.add(id);
      const facts = readKey(raw, quotaPerUnit, this.#now());
      keys.push({ ref: `name:${facts.name}`, ...facts, group: null, multiplier: null });
    }
    if (listed.length > 0 && keys.length === 0) throw otherShape(about, "name");
    return keys;
  }

  async account(): Promise<AccountFacts> {
    return readAccount(this.#get, await readStatus(this.#client));
  }

  keyActions(): KeyActions {
    return this.#keyActions;
  }
}

/** The only type that is usage. Unlike in new-api, 5 is an operator's test of a channel; failures have no row. */
const CONSUME = 2;

function readRow(raw: JsonObject, quotaPerUnit: number): UnnamedRow | "other" | "unreadable" {
  const type = wholeAt(raw, "type");
  const seconds = countAt(raw, "created_at");
  if (type === null || seconds === null) return "unreadable";
  if (type !== CONSUME) return "other";
  const createdAt = seconds * 1000;
  const name = cleanAt(raw, "token_name");
  const duration = countAt(raw, "elapsed_time");
  return {
    kind: "use",
    created_at: createdAt,
    began_at: duration === null ? null : createdAt - duration,
    key_ref: name === null ? null : `name:${name}`,
    request_id: cleanAt(raw, "request_id"),
    upstream_id: null,
    model: cleanAt(raw, "model_name"),
    // The group is the user's, and the multiplier is only in a text for people.
    group: null,
    multiplier: null,
    service_tier: null,
    stream: flagAt(raw, "is_stream"),
    endpoint: null,
    input_tokens: countAt(raw, "prompt_tokens"),
    cache_read_tokens: null,
    cache_write_tokens: null,
    output_tokens: countAt(raw, "completion_tokens"),
    list_microdollars: null,
    billed_microdollars: readBilled(raw, quotaPerUnit),
    duration_ms: duration,
    ip: null,
    user_agent: null,
  };
}
