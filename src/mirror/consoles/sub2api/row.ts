import { blotKeyShapes } from "../../../secret.ts";
import type { ConsoleRow } from "../../console-row.ts";
import { countAt, flagAt, type JsonObject, numberAt, objectAt, textAt, wholeAt } from "../json.ts";
import { cleanAt } from "../texts.ts";
import { priceAt } from "./money.ts";

/** A row with the number by which the log is walked. */
export interface NumberedRow {
  readonly id: number;
  readonly row: ConsoleRow;
}

/** null: without an id or a time it is no row. */
export function rowOf(item: JsonObject): NumberedRow | null {
  const id = countAt(item, "id");
  const created = timeAt(item, "created_at");
  if (id === null || created === null) return null;
  const group = objectAt(item, "group");
  const keyId = wholeAt(item, "api_key_id");
  const duration = countAt(item, "duration_ms");
  const row: ConsoleRow = {
    identity: String(id),
    // Only what was billed is in this log.
    kind: "use",
    created_at: created,
    began_at: duration === null ? null : created - duration,
    key_ref: keyId === null ? null : `id:${keyId}`,
    request_id: requestIdOf(item),
    upstream_id: null,
    model: cleanAt(item, "model"),
    group: group === null ? null : cleanAt(group, "name"),
    multiplier: numberAt(item, "rate_multiplier"),
    stream: flagAt(item, "stream"),
    endpoint: cleanAt(item, "inbound_endpoint"),
    input_tokens: countAt(item, "input_tokens"),
    cache_read_tokens: countAt(item, "cache_read_tokens"),
    cache_write_tokens: countAt(item, "cache_creation_tokens"),
    output_tokens: countAt(item, "output_tokens"),
    list_microdollars: priceAt(item, "total_cost"),
    billed_microdollars: priceAt(item, "actual_cost"),
    duration_ms: duration,
    ip: cleanAt(item, "ip_address"),
  };
  return { id, row };
}

/**
 * The id that was handed out with the answer: `client:<x-client-request-id>`, or in old versions the bare x-request-id.
 * What has another prefix (web_search:, local:, generated:, grok-video:) was never handed out, and neither was the
 * upstream's id that the log has for a websocket.
 */
function requestIdOf(item: JsonObject): string | null {
  const stored = textAt(item, "request_id");
  if (stored === null || flagAt(item, "openai_ws_mode") === true) return null;
  const id = stored.startsWith(CLIENT) ? stored.slice(CLIENT.length) : stored;
  if (id.includes(":")) return null;
  // Records keep no other ids, and cleaning one would make it another.
  return /^[\x21-\x7e]{1,128}$/.test(id) && blotKeyShapes(id) === id ? id : null;
}

const CLIENT = "client:";

/** Milliseconds UTC. Without an offset nobody knows which hour is meant. */
export function timeAt(object: JsonObject, name: string): number | null {
  const text = textAt(object, name);
  if (text === null || !RFC3339.test(text)) return null;
  const time = Date.parse(text);
  // Go writes the year 1 where it has no time.
  return Number.isNaN(time) || time <= 0 ? null : time;
}

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:Z|[+-]\d\d:\d\d)$/;
