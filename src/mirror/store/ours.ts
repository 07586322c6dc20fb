import { meteringOf } from "../../metering/protocols.ts";
import { mayHaveArrived, type RecordEnd, type TokensFrom } from "../../usage/record.ts";
import type { OurRequest, OurTokens } from "../reconcile/context.ts";
import { byName } from "./many.ts";
import { flagOf } from "./stored-row.ts";
import type { OwnNumbers } from "./take.ts";

/** A record as far as judging needs it, with what is stored of its verdict. */
export interface Ours {
  readonly request: OurRequest;
  /** When it is judged: where its row would be written. */
  readonly own: number;
  readonly tool: string | null;
  readonly gateway_ids: Readonly<Record<string, string>>;
  /** null: it has none. In the order of VERDICT. */
  readonly verdict: readonly unknown[] | null;
}

/** The columns of oursOf's rows, followed by those of VERDICT and what the record's own numbers were. */
export const RECORD = [
  "id",
  "started_at",
  "waited_ms",
  "ended_at",
  "end",
  "tool",
  "key",
  "model",
  "model_answered",
  "stream",
  "status",
  "refusal",
  "method",
  "endpoint",
  "bytes_in",
  "first_byte_at",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "tokens_from",
  "gateway_ids",
] as const;
/** What a verdict says, by which it is seen whether it changed. */
export const VERDICT = ["verdict", "how", "row", "reason", "theirs"] as const;

interface LightRecord {
  readonly id: string;
  readonly started_at: number;
  readonly waited_ms: number;
  readonly ended_at: number | null;
  readonly end: RecordEnd | null;
  readonly tool: string | null;
  readonly key: string | null;
  readonly model: string | null;
  readonly model_answered: string | null;
  readonly stream: number | null;
  readonly status: number | null;
  readonly refusal: string | null;
  readonly method: string;
  readonly endpoint: string;
  readonly bytes_in: number;
  readonly first_byte_at: number | null;
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly tokens_from: TokensFrom;
  readonly gateway_ids: string;
}

export function oursOf(values: readonly unknown[], idNames: readonly string[]): Ours {
  const record = byName(RECORD, values) as unknown as LightRecord;
  const verdict = values.slice(RECORD.length, RECORD.length + VERDICT.length);
  const ours = values[RECORD.length + VERDICT.length];
  const ids = JSON.parse(record.gateway_ids) as Readonly<Record<string, string>>;
  return {
    request: requestOf(record, idsOf(ids, idNames), typeof ours === "string" ? JSON.parse(ours) : record),
    own: record.ended_at ?? record.started_at,
    tool: record.tool,
    gateway_ids: ids,
    verdict: verdict[0] == null ? null : verdict,
  };
}

function requestOf(
  record: LightRecord,
  ids: readonly string[],
  own: Pick<OwnNumbers, "tokens_from" | keyof OurNumbers>,
): OurRequest {
  const { id, started_at, ended_at, end, key, model, model_answered, stream, status } = record;
  const billable = mayHaveArrived(record);
  return {
    id,
    started_at,
    sent_at: started_at + record.waited_ms,
    ended_at,
    running: end === null,
    key,
    model,
    model_answered,
    stream: flagOf(stream),
    status,
    ids,
    // Decided before each comparison, by what was learned by then.
    own_id: false,
    tokens: tokensOf(own),
    // What was reported of an answer that broke off is what there was up to then.
    exact: own.tokens_from === "reported" && end === "complete",
    expected: billable && isExpected(record, own.tokens_from),
    billable,
    failed: record.refusal === null && status !== null && status >= 400,
    upgraded: status === 101,
  };
}

function isExpected(record: LightRecord, from: TokensFrom): boolean {
  const { method, endpoint, status, end, refusal } = record;
  if (end !== "complete" || refusal !== null || status === null || status < 200 || status >= 400)
    return false;
  // Nobody knows whether it is billed, but for what its answer tells.
  return meteringOf(method, endpoint) !== "other" || from === "reported";
}

interface OurNumbers {
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
}

function tokensOf(own: OurNumbers & { readonly tokens_from: TokensFrom }): OurTokens | null {
  const { input_tokens, output_tokens } = own;
  // The console's, without what they took the place of: the verdict was lost with mirror.db.
  if (own.tokens_from === "console" || input_tokens === null || output_tokens === null) return null;
  return {
    input: input_tokens,
    cache_read: own.cache_read_tokens ?? 0,
    cache_write: own.cache_write_tokens ?? 0,
    output: output_tokens,
  };
}

function idsOf(ids: Readonly<Record<string, string>>, names: readonly string[]): string[] {
  return [...new Set(names.flatMap((name) => ids[name] ?? []))];
}
