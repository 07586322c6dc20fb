import type { ConsoleRow } from "../../src/mirror/console-row.ts";

/** A console row with nothing special in it but what is given. */
export function consoleRow(
  given: Partial<ConsoleRow> & Pick<ConsoleRow, "identity" | "created_at">,
): ConsoleRow {
  return {
    kind: "use",
    began_at: null,
    key_ref: "id:1",
    request_id: null,
    upstream_id: null,
    model: "gpt-5.1",
    group: "coding",
    multiplier: 1.5,
    service_tier: null,
    stream: true,
    endpoint: "/v1/responses",
    input_tokens: 1200,
    cache_read_tokens: 800,
    cache_write_tokens: 0,
    output_tokens: 342,
    list_microdollars: 6000,
    billed_microdollars: 9000,
    duration_ms: null,
    ip: null,
    user_agent: null,
    ...given,
  };
}
