import { estimateTokens } from "../metering/estimate.ts";
import { CALL_ID_HEADER, type GatewayIds, NO_IDS } from "../metering/gateway-ids.ts";
import { type Prices, toMicrodollars } from "../metering/prices.ts";
import type { Tokens } from "../metering/usage.ts";
import type { ResponseHead } from "../usage/journal/journal.ts";
import type { Closing, Opening, TokensFrom } from "../usage/record.ts";
import type { Call } from "./call.ts";
import { loggableModel } from "./loggable.ts";
import type { Observed } from "./observer.ts";
import type { Outcome } from "./outcome.ts";
import { processSession } from "./session.ts";

/** The first half of a record: what is written before the first byte goes to the gateway. */
export function buildOpening(call: Call): Opening {
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
    // Empty, unless it was routed to a gateway.
    endpoint: call.endpoint === "" ? "" : call.head.loggedEndpoint,
    model: call.model,
    process: call.program,
    user_agent: call.head.userAgent,
    session: call.tool === null ? null : call.head.session,
    token: call.tokenName,
    waited_ms: call.waitedMs,
    held_tokens: reservation?.tokens ?? null,
    held_microdollars: reservation?.spend ?? null,
    admitted_at: reservation?.at ?? null,
    counted_session: reservation?.session?.id ?? null,
    // By this clock: `admitted_at` is the store's time where machines share limits.
    sent_at: reservation?.ownAt ?? call.startedAt + call.waitedMs,
    gateway_ids: withOwnId(call, NO_IDS),
  };
}

/** With the id that it was sent with. One that the gateway sent under the same name counts instead. */
function withOwnId({ bringsId, id }: Call, ids: GatewayIds): GatewayIds {
  return bringsId ? { [CALL_ID_HEADER]: id, ...ids } : ids;
}

/** The head of a response. If keybearer is killed before the response ends, the record still has the gateway's ids. */
export function buildResponseHead(
  call: Call,
  status: number,
  ids: Observed["gatewayIds"],
  elapsed: number,
): ResponseHead {
  return { status, first_byte_at: wallTime(call, elapsed), gateway_ids: withOwnId(call, ids) };
}

/** What a call used, and what that costs. */
export interface CallUsage {
  /** null: nothing is known. */
  readonly tokens: Tokens | null;
  readonly from: TokensFrom;
  readonly outputIsKnown: boolean;
  readonly listMicrodollars: number | null;
  /** With the group's multiplier. */
  readonly costMicrodollars: number | null;
}

export function measureUsage(call: Call, outcome: Outcome, prices: Prices): CallUsage {
  const { tokens, from, outputIsKnown } = usedTokens(call, outcome);
  const { listMicrodollars, costMicrodollars } = priceTokens(
    call,
    outcome,
    outputIsKnown ? tokens : null,
    prices,
  );
  return { tokens, from, outputIsKnown, listMicrodollars, costMicrodollars };
}

/** What these tokens of a call cost. */
export function priceTokens(
  call: Call,
  outcome: Outcome,
  tokens: Tokens | null,
  prices: Prices,
): Pick<CallUsage, "listMicrodollars" | "costMicrodollars"> {
  const names = { asked: call.model, answered: modelAnswered(call, outcome) };
  const tier = outcome.observed.reading?.serviceTier ?? call.fields.serviceTier;
  const own = call.snapshot.config.prices;
  const price = tokens === null ? null : prices.findPrice(names, tokens, call.startedAt, own, tier);
  return {
    listMicrodollars: price === null ? null : toMicrodollars(price),
    costMicrodollars: price === null ? null : toMicrodollars(price, call.multiplier),
  };
}

/** What a call takes from its tool's limits. */
export interface CountedUse {
  /** null: what was reserved. */
  readonly tokens: number | null;
  readonly microdollars: number | null;
  /** Output tokens that arrived before the client left, about; null: it did not leave. */
  readonly seenTokens: number | null;
}

/** The second half of a record. @param usage null: it could not be determined. */
export function buildClosing(
  call: Call,
  outcome: Outcome,
  endedAt: number,
  usage: CallUsage | null,
  counted: CountedUse,
): Closing {
  const { observed, end, status, refusal } = outcome;
  const { firstByteElapsed } = observed;
  const firstByteAt = firstByteElapsed === null ? null : wallTime(call, firstByteElapsed);
  const tokens = usage?.tokens ?? null;
  const output = usage?.outputIsKnown ? (tokens?.output ?? null) : null;
  const place = call.project?.show(call.snapshot);
  return {
    sent_at: call.sentAt,
    first_byte_at: firstByteAt,
    // The wall clock may have been set back meanwhile.
    ended_at: Math.max(endedAt, firstByteAt ?? call.startedAt),
    model: call.model,
    session: sessionByProcess(call),
    project: place?.project ?? null,
    branch: place?.branch ?? null,
    model_answered: modelAnswered(call, outcome),
    // Without an answer, what was asked for.
    stream: observed.stream ?? (call.sentAt === null ? null : call.fields.stream),
    status,
    end,
    cause: observed.cause?.name ?? null,
    cause_detail: observed.cause?.detail ?? null,
    refusal: refusal?.code ?? null,
    input_tokens: tokens?.input ?? null,
    cache_read_tokens: tokens?.cacheRead ?? null,
    cache_write_tokens: tokens?.cacheWrite ?? null,
    output_tokens: output,
    reasoning_tokens: usage?.outputIsKnown ? (tokens?.reasoning ?? null) : null,
    tokens_from: usage?.from ?? "none",
    list_microdollars: usage?.listMicrodollars ?? null,
    cost_microdollars: usage?.costMicrodollars ?? null,
    bytes_in: call.bytesIn,
    bytes_out: observed.bytesOut,
    counts: call.sentAt !== null,
    counted_tokens: counted.tokens,
    counted_microdollars: counted.microdollars,
    seen_tokens: counted.seenTokens,
    gateway_ids: withOwnId(call, observed.gatewayIds),
  };
}

/** null: the client names its session, or the process is not known. */
function sessionByProcess({ tool, head, owner, project }: Call): string | null {
  const caller = owner ?? project?.owner ?? null;
  return caller === null || tool === null || head.session !== null ? null : processSession(caller);
}

type UsedTokens = Pick<CallUsage, "tokens" | "from" | "outputIsKnown">;

const NOT_KNOWN: UsedTokens = { tokens: null, from: "none", outputIsKnown: false };

/** What the gateway reported, or an estimate if the tool is configured for one. */
function usedTokens(call: Call, { observed, status, end }: Outcome): UsedTokens {
  const { reading } = observed;
  if (reading === null) return NOT_KNOWN;
  // A stream of messages reports its input first and its output last. Before its end, the output is a placeholder.
  const isCut = reading.reached === null && observed.stream === true && end !== "complete";
  const isIncomplete = isCut || reading.reached === false || reading.failed;
  const reported = reading.tokens;
  if (reported !== null && !isIncomplete) return { tokens: reported, from: "reported", outputIsKnown: true };
  const isBilled = call.metering !== null && status !== null && status < 400 && !reading.refused;
  if (call.text !== null && isBilled) {
    const estimated = estimateTokens(call.text, reading.text);
    const output = Math.max(reported?.output ?? 0, estimated.output);
    return { tokens: { ...(reported ?? estimated), output }, from: "estimated", outputIsKnown: true };
  }
  // A stream that either side cut may have reported its input. What a gateway refuses inside a stream costs nothing.
  if (reported === null || reading.refused) return NOT_KNOWN;
  return { tokens: reported, from: "reported", outputIsKnown: false };
}

function modelAnswered(call: Call, { observed }: Outcome): string | null {
  const model = observed.reading?.model ?? null;
  // Most answers name the model that was asked for.
  return model === call.model ? model : loggableModel(model, call.snapshot);
}

export function wallTime({ startedAt, startedElapsed }: Call, elapsed: number): number {
  return Math.round(startedAt + elapsed - startedElapsed);
}
