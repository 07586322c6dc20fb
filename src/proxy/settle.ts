import { expectedTokens, namedMaximum } from "../limits/estimate.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Tokens } from "../metering/usage.ts";
import { reportedCall, usedBy } from "../usage/counted.ts";
import { CLIENT_LEFT } from "../usage/journal/lines.ts";
import { type Closing, OWN_REQUEST, wholeRecord } from "../usage/record.ts";
import type { Call } from "./call.ts";
import { highestCost } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import { isModelRefusal, isUnexplained } from "./key-health/cause.ts";
import type { Outcome } from "./outcome.ts";
import {
  buildClosing,
  buildOpening,
  type CallUsage,
  type CountedUse,
  measureUsage,
  priceTokens,
} from "./records.ts";

const RESERVATION: CountedUse = { tokens: null, microdollars: null, seenTokens: null };

/**
 * Ends a call, however it went: record, limits, log line, event. It does so once, and a bug in one step does not keep the
 * others from running, so that no record stays open and no capacity taken.
 */
export function settle(call: Call, ended: Outcome, deps: ProxyDeps): void {
  if (call.isSettled) return;
  call.isSettled = true;
  const outcome: Outcome = call.isCanceled ? { ...ended, end: "interrupted" } : ended;
  const endedAt = deps.clock.now();
  const attempt = (what: string, step: () => void) => {
    try {
      step();
    } catch (error) {
      deps.log.error({ err: error, id: call.id }, `a request could not be settled: ${what}`);
    }
  };
  let usage: CallUsage | null = null;
  attempt("its tokens and cost are unknown", () => {
    usage = measureUsage(call, outcome, deps.prices);
  });
  let counted: CountedUse = RESERVATION;
  attempt("what was reserved for it counts", () => {
    counted = countUse(call, outcome, usage, deps);
  });
  const closing = buildClosing(call, outcome, endedAt, usage, counted);
  attempt("it is still listed as in flight", () => deps.inFlight.remove(call));
  attempt("the memory of its body is still taken", () => deps.bodies.release(call));
  attempt("what it showed of its gateway is lost", () => noteGateway(call, outcome, deps));
  attempt("what it showed of its key is lost", () => noteKey(call, outcome, deps));
  attempt("which model answered is not noted", () => {
    if (call.tool !== null) deps.otherModels.note(call.tool.name, closing.model, closing.model_answered);
  });
  const code = unsentCode(call, outcome);
  let isCounted = false;
  if (code !== null)
    attempt("it is not counted", () => {
      isCounted = countUnsent(call, code, deps);
    });
  if (!isCounted) attempt("its record is not complete", () => completeRecord(call, closing, deps));
  attempt("its limits are not settled", () => settleLimits(call, closing, deps.limiter));
  const metrics = deps.metrics();
  if (metrics !== null) attempt("it is not in the metrics", () => metrics.countRequest(call, closing));
  if (!isCounted) attempt("it is not in the log", () => writeLogLine(call, closing, outcome, deps));
}

/** What kind of refusal it was; null: it may have been sent to a gateway, so it always has its own record. */
function unsentCode({ opening }: Call, { end, refusal }: Outcome): string | null {
  if (opening !== null) return null;
  if (end === "refused") return refusal?.code ?? null;
  return end === CLIENT_LEFT ? CLIENT_LEFT : null;
}

/** True: many others of its kind came in this minute, and it has no record and no log line of its own. */
function countUnsent({ id, tool, gateway }: Call, code: string, { journal }: ProxyDeps): boolean {
  return journal.count({ id, tool: tool?.name ?? null, gateway: gateway?.name ?? null, code });
}

function noteGateway({ gateway }: Call, outcome: Outcome, { gatewayHealth }: ProxyDeps): void {
  if (gateway !== null) gatewayHealth.note(gateway, outcome);
}

function noteKey({ id, tool, key, gateway, metering }: Call, outcome: Outcome, deps: ProxyDeps): void {
  if (tool === null || key === null) return;
  // Also after a refusal of ours: the request may have been the one that was to try the key.
  deps.keyHealth.settle(tool.name, key, id, outcome, metering === null);
  if (outcome.end === "refused") return;
  if (outcome.status === 401) deps.rereadKey(tool.name);
  const { cause } = outcome.observed;
  if (gateway === null || cause === null) return;
  if (isUnexplained(cause) || isModelRefusal(cause)) deps.checkKey(tool.name, gateway, key, cause);
}

function completeRecord(call: Call, closing: Closing, deps: ProxyDeps): void {
  const { journal } = deps;
  const opening = call.opening ?? buildOpening(call);
  if (call.opening !== null) journal.close(call.id, closing);
  else journal.add(opening, closing);
  if (deps.isFollowed()) deps.notify({ ...wholeRecord(opening, closing), ...OWN_REQUEST });
}

function settleLimits({ lease }: Call, closing: Closing, limiter: Limiter): void {
  if (lease === null) return;
  if (closing.counts) limiter.settle(lease, usedBy(closing));
  else limiter.cancel(lease);
  const used = reportedCall(closing);
  if (used !== null) limiter.noteTokens(lease.tool, used);
}

/** The usage log has every request, so here the ones that went well are for debugging only. */
function writeLogLine(call: Call, closing: Closing, outcome: Outcome, { log, clock }: ProxyDeps): void {
  const { refusal, observed } = outcome;
  const hasFailed = outcome.end === "gateway-failed" || refusal !== null || observed.cause !== null;
  if (!hasFailed && !log.isLevelEnabled("debug")) return;
  const { id, tool, gateway, method, endpoint, model } = call.opening ?? buildOpening(call);
  const fields = {
    id,
    tool,
    gateway,
    method,
    endpoint,
    model,
    status: closing.status,
    end: closing.end,
    refusal: closing.refusal,
    cause: closing.cause,
    cause_detail: closing.cause_detail,
    ms: Math.round(clock.elapsed() - call.startedElapsed),
    bytes_in: closing.bytes_in,
    bytes_out: closing.bytes_out,
    input_tokens: closing.input_tokens,
    output_tokens: closing.output_tokens,
    cost_microdollars: closing.cost_microdollars,
  };
  if (hasFailed) log.warn(fields, refusal?.message ?? "request failed");
  else log.debug(fields, "request");
}

/**
 * What a call takes from its tool's limits: what it used; an estimate if the client left (countAborted); nothing if the
 * gateway refused it; otherwise its reservation.
 * @param usage null: it could not be determined.
 */
function countUse(call: Call, outcome: Outcome, usage: CallUsage | null, deps: ProxyDeps): CountedUse {
  const { observed, refusal, end } = outcome;
  const isReported = usage?.from === "reported" && usage.outputIsKnown;
  // A call that the gateway refused, by its status or inside a stream, counts nothing.
  const status = call.observer?.status ?? outcome.status ?? 0;
  const isRefusedByGateway = refusal === null && (status >= 400 || observed.reading?.refused === true);
  const hasLeft = end === CLIENT_LEFT && call.sentAt !== null && call.metering !== null;
  if (hasLeft && !isReported && !isRefusedByGateway) return countAborted(call, outcome, deps);
  const unknown = isRefusedByGateway ? 0 : null;
  const tokens = usage?.outputIsKnown ? usage.tokens : null;
  return {
    tokens: tokens ? sumInput(tokens) + tokens.output : unknown,
    microdollars: usage?.costMicrodollars ?? unknown,
    seenTokens: null,
  };
}

/**
 * A client that leaves (Esc in Claude Code) cuts the report of its output. The gateway may stop too, or finish and bill
 * everything. So the usual output of the tool's requests counts, or what was seen if that is more. The reservation would be
 * far too much: agents name the model's maximum. If the console showed that this gateway stops, only what was seen counts.
 */
function countAborted(call: Call, outcome: Outcome, deps: ProxyDeps): CountedUse {
  const { lease, metering, gateway, fields } = call;
  if (lease === null) return RESERVATION;
  const { reading, stream } = outcome.observed;
  const tokens = reading?.tokens ?? null;
  // Gateways that translate from another protocol first report an input of zero.
  const reported = tokens !== null && sumInput(tokens) > 0 ? tokens : null;
  const sizing = { named: null, bodyBytes: call.bytesIn, hasOutput: metering !== "embeddings" };
  const expected = expectedTokens(sizing, deps.limiter.recentMedian(lease.tool));
  const seen = call.observer?.seenTokens() ?? 0;
  const isBilledAsSeen = stream === true && gateway !== null && deps.billsAsStreamed(gateway.name);
  // The gateway enforces the request's own maximum.
  const usual = Math.min(expected.output, namedMaximum(fields.lengths) ?? Infinity);
  const output = isBilledAsSeen ? seen : Math.max(seen, usual);
  const input = reported === null ? expected.input : sumInput(reported);
  const cost =
    reported === null
      ? highestCost({ input, output }, call, deps.prices)
      : priceTokens(call, outcome, { ...reported, output }, deps.prices).costMicrodollars;
  const held = lease.reservation;
  return {
    tokens: Math.min(input + output, held.tokens),
    microdollars: cost === null || held.spend === null ? null : Math.min(cost, held.spend),
    seenTokens: seen,
  };
}

function sumInput({ input, cacheRead, cacheWrite }: Tokens): number {
  return input + cacheRead + cacheWrite;
}
