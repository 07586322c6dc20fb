import type { Clock } from "../clock.ts";
import type { Limiter } from "../limits/limiter.ts";
import { jsonText, type LineLogger } from "../logger.ts";
import type { Prices } from "../metering/prices.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { type Closing, type UsageRecord, wholeRecord } from "../usage/record.ts";
import type { Strangers } from "../usage/strangers.ts";
import type { BodyBudget } from "./body-budget.ts";
import { callOf } from "./counting.ts";
import { NOTHING_SENT, type Outcome } from "./exchange.ts";
import type { GatewayHealth } from "./gateway-health.ts";
import type { KeyHealth } from "./key-health.ts";
import { closingOf, closingWithoutUsage, openingOf } from "./recording.ts";
import type { Request } from "./request.ts";
import type { Running } from "./running.ts";

export interface SettleMeans {
  readonly clock: Clock;
  readonly log: LineLogger;
  readonly keyHealth: KeyHealth;
  readonly gatewayHealth: GatewayHealth;
  readonly journal: Pick<Journal, "open" | "head" | "close" | "add" | "state">;
  readonly prices: Prices;
  readonly strangers: Strangers;
  readonly limiter: Limiter;
  readonly running: Running;
  readonly bodies: BodyBudget;
  /** Whether somebody follows live, and how they are told. */
  readonly followed: () => boolean;
  readonly tell: (record: UsageRecord) => void;
  /** The gateway answered 401: the key may have been rotated where it is kept. */
  readonly rereadKey: (tool: string) => void;
}

/** Serves a request, and settles it should a bug of ours keep it from that: no slot stays taken, no record open. */
export async function settling(
  request: Request,
  means: SettleMeans,
  serve: () => Promise<void>,
): Promise<void> {
  try {
    await serve();
  } finally {
    settle(request, { ...NOTHING_SENT, end: "gateway-failed" }, means);
  }
}

/**
 * The one way out of every request: finished, refused, left or failed. It happens once, and each step happens even when
 * another one fails: a bug in one of them must not leave a record open or a slot taken.
 */
export function settle(request: Request, ended: Outcome, means: SettleMeans): void {
  if (request.settled) return;
  request.settled = true;
  const outcome = request.cut ? { ...ended, end: "interrupted" as const } : ended;
  const attempt = <T>(what: string, step: () => T): T | null => {
    try {
      return step();
    } catch (error) {
      means.log.error({ err: error, id: request.id }, `a request could not be settled: ${what}`);
      return null;
    }
  };
  const endedAt = means.clock.now();
  const closing =
    attempt("its tokens and cost are unknown", () => closingOf(request, outcome, endedAt, means.prices)) ??
    closingWithoutUsage(request, outcome, endedAt);
  attempt("it is still listed as in flight", () => means.running.remove(request));
  attempt("the memory of its body is still taken", () => means.bodies.shrink(request, 0));
  attempt("its gateway's and its key's health are not noted", () => noteHealth(request, outcome, means));
  attempt("its record is not complete", () => record(request, closing, means));
  attempt("its limits are not settled", () => settleLease(request, closing, means.limiter));
  attempt("it is not in the log", () => logLine(request, closing, outcome, means));
}

function noteHealth({ tool, key, gateway }: Request, outcome: Outcome, means: SettleMeans): void {
  if (gateway !== null) means.gatewayHealth.note(gateway, outcome);
  if (tool === null || key === null || outcome.end === "refused") return;
  means.keyHealth.note(tool.name, key, outcome);
  if (outcome.status === 401) means.rereadKey(tool.name);
}

/** What was held for it is settled to what it used. */
function settleLease({ lease }: Request, closing: Closing, limiter: Limiter): void {
  if (lease === null) return;
  if (closing.counts)
    limiter.settle(lease, { tokens: closing.counted_tokens, spend: closing.counted_microdollars });
  else limiter.cancel(lease);
  // Only what was reported: a guess must not be learnt from.
  const call = closing.tokens_from === "reported" ? callOf(closing) : null;
  if (call !== null) limiter.note(lease.tool, call);
}

function record(request: Request, closing: Closing, means: SettleMeans): void {
  const { clock, journal, strangers } = means;
  request.opening ??= openingOf(request);
  const { opening } = request;
  if (request.recorded) journal.close(request.id, closing);
  else if (request.tool !== null || strangers.admit(clock.now())) journal.add(opening, closing);
  if (means.followed()) means.tell(wholeRecord(opening, closing));
}

/** Written out by hand, which takes a third of the time that a logger takes for so many fields. */
function logLine(request: Request, closing: Closing, outcome: Outcome, { log, clock }: SettleMeans): void {
  const failed = outcome.end === "gateway-failed" || outcome.refusal !== null || outcome.cause !== null;
  const level = failed ? "warn" : "info";
  if (!log.isLevelEnabled(level)) return;
  const { id, tool, gateway, method, endpoint, model } = request.opening ?? openingOf(request);
  const fields =
    `"id":"${id}","tool":${orNull(tool)},"gateway":${orNull(gateway)},"method":${jsonText(method)},` +
    `"endpoint":${jsonText(endpoint)},"model":${orNull(closing.model ?? model)},"status":${closing.status},` +
    `"end":"${closing.end}","refusal":${orNull(closing.refusal)},"cause":${orNull(closing.cause)},` +
    `"ms":${Math.round(clock.elapsed() - request.startedElapsed)},"bytes_in":${closing.bytes_in},` +
    `"bytes_out":${closing.bytes_out},"input_tokens":${closing.input_tokens},` +
    `"output_tokens":${closing.output_tokens},"cost_microdollars":${closing.cost_microdollars}`;
  log.writeLine(level, fields, failed ? (outcome.refusal?.message ?? "request failed") : "request");
}

function orNull(text: string | null): string {
  return text === null ? "null" : jsonText(text);
}
