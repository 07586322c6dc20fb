import { countAt, flagAt, type JsonObject, wholeAt } from "../json.ts";
import { billedOf } from "../new-api/row.ts";
import type { UnnamedRow } from "../new-api/walk.ts";
import { cleanAt } from "../texts.ts";

/** Not as in new-api: here 5 is an operator's test of a channel, and failed requests are not listed. */
const CONSUME = 2;

export function readOneApiRow(raw: JsonObject, quotaPerUnit: number): UnnamedRow | "other" | "unreadable" {
  const type = wholeAt(raw, "type");
  const createdAt = countAt(raw, "created_at");
  if (type === null || createdAt === null) return "unreadable";
  if (type !== CONSUME) return "other";
  const name = cleanAt(raw, "token_name");
  const duration = countAt(raw, "elapsed_time");
  return {
    kind: "use",
    created_at: createdAt * 1000,
    began_at: duration === null ? null : createdAt * 1000 - duration,
    key_ref: name === null ? null : `name:${name}`,
    request_id: cleanAt(raw, "request_id"),
    upstream_id: null,
    model: cleanAt(raw, "model_name"),
    // The group is the user's, and the factor stands only in a text for people.
    group: null,
    multiplier: null,
    stream: flagAt(raw, "is_stream"),
    endpoint: null,
    input_tokens: countAt(raw, "prompt_tokens"),
    cache_read_tokens: null,
    cache_write_tokens: null,
    output_tokens: countAt(raw, "completion_tokens"),
    list_microdollars: null,
    billed_microdollars: billedOf(raw, quotaPerUnit),
    duration_ms: duration,
    ip: null,
  };
}
