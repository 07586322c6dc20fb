import type { Clock } from "../clock.ts";
import { estimateTokens } from "../metering/estimate.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import type { Tokens } from "../metering/usage.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { type Closing, NOT_CLOSED, type Opening, type TokensFrom } from "../usage/record.ts";
import { countedBy } from "./counting.ts";
import type { Outcome } from "./exchange.ts";
import { harmless } from "./harmless.ts";
import { meteringFor, type Request } from "./request.ts";

/** Long enough for any model; whatever else somebody puts there is not written down whole. */
const LONGEST_MODEL = 200;
/** As long as the guard lets an address be. */
const LONGEST_ENDPOINT = 8192;

export function modelAsked(request: Request): string | null {
  return modelOf(request, request.body?.model);
}

function modelOf(request: Request, name: string | null | undefined): string | null {
  if (name === null || name === undefined) return null;
  if (request.shownModel?.name !== name)
    request.shownModel = { name, shown: harmless(name, request.snapshot, LONGEST_MODEL) };
  return request.shownModel.shown;
}

/** An id that had to be changed to be written down is of no use to find anything by. */
function idsOf({ snapshot }: Request, ids: Outcome["gatewayIds"]): Outcome["gatewayIds"] {
  const isKept = (id: string) => harmless(id, snapshot, id.length) === id;
  for (const name in ids)
    if (!isKept(ids[name] ?? ""))
      return Object.fromEntries(Object.entries(ids).filter(([, id]) => isKept(id)));
  return ids;
}

/** Whether it has its record, which is for `recorded`; false: none can be written, and so it must not be sent. */
export function openRecord(request: Request, journal: Pick<Journal, "open">): Promise<boolean> {
  request.opening = openingOf(request);
  return journal.open(request.opening);
}

/** Should this process end before the answer does, its record still has the status and the gateway's ids. */
export function recordHead(
  request: Request,
  status: number,
  ids: Outcome["gatewayIds"],
  { journal, clock }: { readonly journal: Pick<Journal, "head">; readonly clock: Clock },
): void {
  journal.head(request.id, {
    status,
    first_byte_at: Math.round(request.startedAt + clock.elapsed() - request.startedElapsed),
    gateway_ids: idsOf(request, ids),
  });
}

/** What is written down before the first byte goes to the gateway. */
export function openingOf(request: Request): Opening {
  const { tool, gateway, lease } = request;
  return {
    id: request.id,
    started_at: request.startedAt,
    tool: tool?.name ?? null,
    gateway: gateway?.name ?? null,
    group: tool?.group ?? null,
    multiplier: multiplierOf(request),
    key: request.key?.fingerprint ?? null,
    protocol: request.protocol,
    method: request.method,
    endpoint: harmless(request.endpoint, request.snapshot, LONGEST_ENDPOINT),
    model: modelAsked(request),
    process: request.program,
    waited_ms: request.waitedMs,
    held_tokens: lease?.reservation.tokens ?? null,
    held_microdollars: lease?.reservation.spend ?? null,
    admitted_at: lease?.reservation.at ?? null,
  };
}

export function multiplierOf({ tool, gateway }: Request): number {
  const group = tool?.group ?? null;
  return group === null ? 1 : (gateway?.groups[group]?.multiplier ?? 1);
}

/** What completes the record. `endedAt` is wall time, which the gateway's console tells as well. */
export function closingOf(request: Request, outcome: Outcome, endedAt: number, prices: Prices): Closing {
  const { startedAt, startedElapsed } = request;
  const { tokens, from, short } = countedIn(request, outcome);
  const model = modelAsked(request);
  const answered = modelOf(request, outcome.reading?.model);
  const multiplier = multiplierOf(request);
  const price =
    tokens === null || short
      ? null
      : prices.priceOf({ asked: model, answered }, tokens, startedAt, request.snapshot.config.prices);
  const firstByteAt =
    outcome.firstByteElapsed === null
      ? null
      : Math.round(startedAt + outcome.firstByteElapsed - startedElapsed);
  const used = {
    input_tokens: tokens?.input ?? null,
    cache_read_tokens: tokens?.cacheRead ?? null,
    cache_write_tokens: tokens?.cacheWrite ?? null,
    output_tokens: short ? null : (tokens?.output ?? null),
    cost_microdollars: price === null ? null : microdollars(price, multiplier),
  };
  const counted = countedBy(outcome, used);
  return {
    first_byte_at: firstByteAt,
    // The wall clock may have been set back meanwhile.
    ended_at: Math.max(endedAt, firstByteAt ?? startedAt),
    model,
    model_answered: answered,
    stream: outcome.stream,
    status: outcome.status,
    end: outcome.end,
    cause: outcome.cause?.name ?? null,
    refusal: outcome.refusal?.code ?? null,
    // Field by field: to spread objects into a large one is slow.
    input_tokens: used.input_tokens,
    cache_read_tokens: used.cache_read_tokens,
    cache_write_tokens: used.cache_write_tokens,
    output_tokens: used.output_tokens,
    reasoning_tokens: short ? null : (tokens?.reasoning ?? null),
    tokens_from: from,
    list_microdollars: price === null ? null : microdollars(price),
    cost_microdollars: used.cost_microdollars,
    bytes_in: outcome.bytesIn,
    bytes_out: outcome.bytesOut,
    counts: counted.counts,
    counted_tokens: counted.counted_tokens,
    counted_microdollars: counted.counted_microdollars,
    gateway_ids: idsOf(request, outcome.gatewayIds),
  };
}

/** The same where tokens and cost could not be worked out: what was held for the request counts. */
export function closingWithoutUsage(request: Request, outcome: Outcome, endedAt: number): Closing {
  return {
    ...NOT_CLOSED,
    ended_at: Math.max(endedAt, request.startedAt),
    stream: outcome.stream,
    status: outcome.status,
    end: outcome.end,
    cause: outcome.cause?.name ?? null,
    refusal: outcome.refusal?.code ?? null,
    bytes_in: outcome.bytesIn,
    bytes_out: outcome.bytesOut,
    counts: outcome.arrived,
  };
}

interface Counted {
  readonly tokens: Tokens | null;
  readonly from: TokensFrom;
  /**
   * It ended before its last word. Streams of messages count their input first and their output last, and what they say
   * of the output before that is a placeholder: the output of this one is not known, and so neither is its price.
   */
  readonly short: boolean;
}

/** What the gateway reported, else an estimate where the tool wants one and there was an answer to pay for. */
function countedIn(request: Request, { reading, status }: Outcome): Counted {
  const reported = reading?.tokens ?? null;
  const short = reported !== null && reading?.reached === false;
  if (reported !== null && !(short && request.text !== null))
    return { tokens: reported, from: "reported", short };
  const paid = meteringFor(request) !== null && status !== null && status < 400;
  if (request.text === null || reading === null || !paid) return { tokens: null, from: "none", short: false };
  const estimated = estimateTokens(request.text.seen, reading.text);
  const output = Math.max(reported?.output ?? 0, estimated.output);
  return { tokens: { ...(reported ?? estimated), output }, from: "estimated", short: false };
}
