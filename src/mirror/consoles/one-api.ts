import { asFields, countAt, flagAt, type JsonObject, textAt, wholeAt } from "../../core/json.ts";
import { cleanAt } from "./clean-text.ts";
import type { ConsoleAdapter, ConsoleKey } from "./console.ts";
import { type CallLimit, otherShape } from "./http.ts";
import type { UnnamedRow } from "./log-walk.ts";
import { OneApiConsole, type OneApiDeps } from "./one-api-console.ts";
import { readBilled, readKey } from "./one-api-protocol.ts";

/** An address may call 480 times in three minutes; 40 calls are left to the owner's browser. */
const CALL_LIMIT: CallLimit = { calls: 440, milliseconds: 180_000 };

/** The program that new-api was forked from: ten rows a page, no totals, and rows name their key only by its name. */
export class OneApi extends OneApiConsole implements ConsoleAdapter {
  readonly kind = "one-api";
  readonly socketRowsHaveIds = false;

  constructor(deps: OneApiDeps) {
    super(deps, {
      firstPage: 0,
      pageSize: "",
      readRow,
      limit: () => CALL_LIMIT,
      headers: {},
      keyCalls: null,
    });
  }

  /** Two keys of one name are both listed, so that the report can say that their rows are ambiguous. */
  async keys(): Promise<ConsoleKey[]> {
    const about = "its keys";
    const { items, quotaPerUnit } = await this.listKeys(about);
    const keys: ConsoleKey[] = [];
    const seen = new Set<number>();
    for (const item of items) {
      const raw = asFields(item);
      const id = wholeAt(raw, "id");
      if (id === null && textAt(raw, "name") === null) continue;
      // A key created meanwhile moves another to the next page, where it appears again.
      if (id !== null && seen.has(id)) continue;
      if (id !== null) seen.add(id);
      const facts = readKey(raw, quotaPerUnit, this.now());
      keys.push({ ref: `name:${facts.name}`, ...facts, group: null, multiplier: null });
    }
    if (items.length > 0 && keys.length === 0) throw otherShape(about, "name");
    return keys;
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
