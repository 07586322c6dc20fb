import type { Limiter } from "../limits/limiter.ts";
import { reportedCall, usedBy } from "../usage/counted.ts";
import { CLIENT_LEFT } from "../usage/journal/lines.ts";
import { type Closing, OWN_REQUEST, wholeRecord } from "../usage/record.ts";
import type { Call } from "./call.ts";
import { countUse, RESERVATION } from "./counted.ts";
import type { ProxyDeps } from "./deps.ts";
import { isModelRefusal, isUnexplained } from "./key-health/cause.ts";
import type { Outcome } from "./outcome.ts";
import { buildClosing, buildOpening, type CallUsage, type CountedUse, measureUsage } from "./records.ts";

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
