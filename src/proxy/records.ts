import type { Clock } from "../clock.ts";
import type { CallTokens } from "../limits/estimate.ts";
import { estimateTokens } from "../metering/estimate.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import type { Tokens } from "../metering/usage.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { type Closing, NOT_CLOSED, type Opening, type TokensFrom } from "../usage/record.ts";
import type { Call } from "./call.ts";
import type { Observed } from "./observer.ts";
import type { Outcome } from "./outcome.ts";
import { sanitizeForLog } from "./sanitize.ts";

const MAX_MODEL = 200;
/** As long as the guard lets a target be. */
const MAX_ENDPOINT = 8192;

/** The first half of a record: what is written before the first byte goes to the gateway. */
export function openingOf(call: Call): Opening {
  const reservation = call.lease?.reservation ?? null;
  return {
    id: call.id,
    started_at: call.startedAt,
    tool: call.tool?.name ?? null,
    gateway: call.gateway?.name ?? null,
    group: call.tool?.group ?? null,
    multiplier: call.multiplier,
    key: call.key?.fingerprint ?? null,
    protocol: call.protocol,
    method: call.method,
    endpoint: sanitizeForLog(call.endpoint, call.snapshot, MAX_ENDPOINT),
    model: call.model,
    process: call.program,
    waited_ms: call.waitedMs,
    held_tokens: reservation?.tokens ?? null,
    held_microdollars: reservation?.spend ?? null,
    admitted_at: reservation?.at ?? null,
  };
}

/** If keybearer is killed before the response ends, the record still has the status and the gateway's ids. */
export function recordHead(
  call: Call,
  status: number,
  ids: Observed["gatewayIds"],
  { journal, clock }: { readonly journal: Pick<Journal, "head">; readonly clock: Clock },
): void {
  journal.head(call.id, {
    status,
    first_byte_at: wallTime(call, clock.elapsed()),
    gateway_ids: loggableIds(call, ids),
  });
}

/** The second half of a record. */
export function closingOf(call: Call, outcome: Outcome, endedAt: number, prices: Prices): Closing {
  const { observed, end, status, refusal } = outcome;
  const { firstByteElapsed, reading } = observed;
  const answered = reading?.model ?? null;
  const modelAnswered = answered === null ? null : sanitizeForLog(answered, call.snapshot, MAX_MODEL);
  const { tokens, from, outputIsKnown } = usedTokens(call, outcome);
  const tier = reading?.serviceTier ?? call.fields.serviceTier;
  const price =
    tokens === null || !outputIsKnown
      ? null
      : prices.priceOf(
          { asked: call.model, answered: modelAnswered },
          tokens,
          call.startedAt,
          call.snapshot.config.prices,
          tier,
        );
  const firstByteAt = firstByteElapsed === null ? null : wallTime(call, firstByteElapsed);
  const output = outputIsKnown ? (tokens?.output ?? null) : null;
  const cost = price === null ? null : microdollars(price, call.multiplier);
  // Nothing counts where the gateway itself refused, by its status or inside a stream. What is not known counts as held.
  const isRefusedByGateway = refusal === null && ((status ?? 0) >= 400 || reading?.refused === true);
  const uncounted = isRefusedByGateway ? 0 : null;
  const total = tokens === null || output === null ? null : inputOf(tokens) + output;
  return {
    first_byte_at: firstByteAt,
    // The wall clock may have been set back meanwhile.
    ended_at: Math.max(endedAt, firstByteAt ?? call.startedAt),
    model: call.model,
    model_answered: modelAnswered,
    stream: observed.stream,
    status,
    end,
    cause: observed.cause?.name ?? null,
    refusal: refusal?.code ?? null,
    input_tokens: tokens?.input ?? null,
    cache_read_tokens: tokens?.cacheRead ?? null,
    cache_write_tokens: tokens?.cacheWrite ?? null,
    output_tokens: output,
    reasoning_tokens: outputIsKnown ? (tokens?.reasoning ?? null) : null,
    tokens_from: from,
    list_microdollars: price === null ? null : microdollars(price),
    cost_microdollars: cost,
    bytes_in: call.bytesIn,
    bytes_out: observed.bytesOut,
    counts: outcome.mayHaveArrived,
    counted_tokens: total ?? uncounted,
    counted_microdollars: cost ?? uncounted,
    gateway_ids: loggableIds(call, observed.gatewayIds),
  };
}

/** The same if tokens and cost could not be determined: what was held for the call counts. */
export function closingWithoutUsage(call: Call, outcome: Outcome, endedAt: number): Closing {
  const { observed, end, status, refusal } = outcome;
  return {
    ...NOT_CLOSED,
    ended_at: Math.max(endedAt, call.startedAt),
    stream: observed.stream,
    status,
    end,
    cause: observed.cause?.name ?? null,
    refusal: refusal?.code ?? null,
    bytes_in: call.bytesIn,
    bytes_out: observed.bytesOut,
    counts: outcome.mayHaveArrived,
  };
}

/** What a call used, as reported; null: not all of it is known. */
export function reportedCall(closing: Closing): CallTokens | null {
  const { tokens_from, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = closing;
  if (tokens_from !== "reported" || input_tokens === null || output_tokens === null) return null;
  const input = input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
  return { input, output: output_tokens };
}

interface UsedTokens {
  readonly tokens: Tokens | null;
  readonly from: TokensFrom;
  readonly outputIsKnown: boolean;
}

const NOT_KNOWN: UsedTokens = { tokens: null, from: "none", outputIsKnown: false };

/** What the gateway reported, or an estimate if the tool wants one. */
function usedTokens(call: Call, { observed, status, end }: Outcome): UsedTokens {
  const { reading } = observed;
  if (reading === null) return NOT_KNOWN;
  // A stream of messages reports its input first and its output last. Before its end, the output is a placeholder.
  const isShort =
    reading.reached === false ||
    reading.failed ||
    (reading.reached === null && observed.stream && end === "gateway-failed");
  const reported = reading.tokens;
  if (reported !== null && !isShort) return { tokens: reported, from: "reported", outputIsKnown: true };
  const isBilled = call.metering !== null && status !== null && status < 400 && !reading.refused;
  if (call.text !== null && isBilled) {
    const estimated = estimateTokens(call.text, reading.text);
    const output = Math.max(reported?.output ?? 0, estimated.output);
    return { tokens: { ...(reported ?? estimated), output }, from: "estimated", outputIsKnown: true };
  }
  // A client that left has its input reported. A stream that the gateway cut may be billed in any way, or not at all.
  if (reported === null || end === "gateway-failed") return NOT_KNOWN;
  return { tokens: reported, from: "reported", outputIsKnown: false };
}

function inputOf({ input, cacheRead, cacheWrite }: Tokens): number {
  return input + cacheRead + cacheWrite;
}

function wallTime({ startedAt, startedElapsed }: Call, elapsed: number): number {
  return Math.round(startedAt + elapsed - startedElapsed);
}

/** An id that would have to be changed to be logged finds nothing, so it is left out. */
function loggableIds({ snapshot }: Call, ids: Observed["gatewayIds"]): Observed["gatewayIds"] {
  const entries = Object.entries(ids);
  const kept = entries.filter(([, id]) => sanitizeForLog(id, snapshot, id.length) === id);
  return kept.length === entries.length ? ids : Object.fromEntries(kept);
}
