import { expectedTokens, namedMaximum } from "../limits/estimate.ts";
import type { Tokens } from "../metering/usage.ts";
import { CLIENT_LEFT } from "../usage/journal/lines.ts";
import type { Call } from "./call.ts";
import { highestCost } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import type { Outcome } from "./outcome.ts";
import { type CallUsage, type CountedUse, priceTokens } from "./records.ts";

export const RESERVATION: CountedUse = { tokens: null, microdollars: null, seenTokens: null };

type CountDeps = Pick<ProxyDeps, "limiter" | "prices" | "billsAsStreamed">;

/**
 * What a call takes from its tool's limits: what it used; an estimate if the client left (countAborted); nothing if the
 * gateway refused it; otherwise its reservation.
 * @param usage null: it could not be determined.
 */
export function countUse(call: Call, outcome: Outcome, usage: CallUsage | null, deps: CountDeps): CountedUse {
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
function countAborted(call: Call, outcome: Outcome, deps: CountDeps): CountedUse {
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
