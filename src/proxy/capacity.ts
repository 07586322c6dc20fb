import type { Socket } from "node:net";
import type { Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { type Refusal, refuse, toolRemoved } from "../core/refusal.ts";
import { admit, isInGroup, modelRefusal } from "../limits/admit.ts";
import type { Ask } from "../limits/counters.ts";
import { type CallTokens, expectedTokens, namedMaximum } from "../limits/estimate.ts";
import { type Prices, toMicrodollars } from "../metering/prices.ts";
import { isBilledLater } from "../metering/protocols.ts";
import { NO_TOKENS, type Tokens } from "../metering/usage.ts";
import type { Call, Stop } from "./call.ts";
import type { ProxyDeps } from "./deps.ts";

/** Takes what the call needs from its tool's limits, and waits for it if the tool allows that. null: it may go on. */
export async function takeCapacity(call: Call, socket: Socket, deps: ProxyDeps): Promise<Stop | null> {
  const { limiter } = deps;
  const { tool } = call;
  if (tool === null) throw new Error("the caller is not known yet");
  const wrongModel = checkModel(call, tool);
  if (wrongModel !== null) return wrongModel;
  const ask = limiter.countsSessions(tool)
    ? { ...buildAsk(call, tool, deps), origin: { session: call.head.session, token: call.tokenName } }
    : buildAsk(call, tool, deps);
  call.lease = limiter.takeNow(tool, ask);
  return call.lease === null ? await waitForCapacity(call, tool, ask, socket, deps) : null;
}

async function waitForCapacity(
  call: Call,
  tool: Tool,
  ask: Ask,
  socket: Socket,
  { limiter, clock, snapshot }: ProxyDeps,
): Promise<Stop | null> {
  let leave = () => {};
  const onClose = () => leave();
  socket.once("close", onClose);
  const { model, metering, passesUnread } = call;
  const lacksModel = model === null && metering !== null;
  const request = { ask, model, lacksModel, mayWait: !passesUnread };
  const taken = await limiter.take(tool, request, (leaveQueue) => {
    call.isWaiting = true;
    leave = leaveQueue;
    if (socket.destroyed) leave();
  });
  socket.off("close", onClose);
  const hasWaited = call.isWaiting;
  call.isWaiting = false;
  // From the start of the call, rounded up, so that started_at + waited_ms falls into the window that admitted it.
  if (hasWaited) call.waitedMs = Math.ceil(clock.elapsed() - call.startedElapsed);
  if (!taken.ok) return taken.refusal ?? "client-left";
  call.lease = taken.lease;
  return checkStillAllowed(tool.name, snapshot(), clock.now());
}

/** A call that waited keeps its configuration, but does not pass where a new call would be refused. */
export function checkStillAllowed(name: string, snapshot: Snapshot, now: number): Refusal | null {
  const tool = snapshot.config.tools[name];
  if (tool === undefined) return toolRemoved(name);
  const admitted = admit(tool, snapshot.gatewayOf(tool), snapshot.keyOf(tool), now);
  return admitted.ok ? null : admitted.refusal;
}

/** A request that names no model passes: the gateway chooses, and the record says which model answered. */
function checkModel(call: Call, tool: Tool): Refusal | null {
  const { metering, method, endpoint, model, fields } = call;
  // Some gateways take the first of two models, most take the last.
  if (metering !== null && fields.ambiguous && call.limitsNeedBody) {
    return refuse(
      "bad-request",
      "the request names two models or is no valid JSON, and gateways differ in which model they take",
    );
  }
  const models = call.allowedModels;
  if (models === null || tool.group === null) return null;
  if (metering === null && isBilledLater(method, endpoint)) {
    const message = `keybearer cannot tell which models ${endpoint} runs, and tool ${tool.name} may use only those of group ${tool.group}`;
    return refuse("model-not-in-group", message);
  }
  if (model === null || isInGroup(model, models)) return null;
  return modelRefusal(tool.name, tool.group, model, models);
}

/** What the call may use at most, as far as it is known before it is sent; see limits/estimate.ts. */
function buildAsk(call: Call, tool: Tool, { limiter, prices }: ProxyDeps): Ask {
  const { metering, body, fields } = call;
  // A batch is billed later, and nothing says how much: its price is unknown.
  if (metering === null) return { tokens: 0, spend: isBilledLater(call.method, call.endpoint) ? null : 0 };
  const sizing = {
    named: namedMaximum(fields.lengths),
    bodyBytes: body === null ? null : body.length,
    hasOutput: metering !== "embeddings",
  };
  const needsMedian = sizing.named === null || sizing.bodyBytes === null;
  const expected = expectedTokens(sizing, needsMedian ? limiter.recentMedian(tool.name) : null);
  return { tokens: expected.input + expected.output, spend: highestCost(expected, call, prices) };
}

/**
 * The most that the call can cost, with the group's multiplier: all of the input may be written to a cache, and a gateway
 * may ignore the service tier that was asked for. null: there is no price.
 */
export function highestCost({ input, output }: CallTokens, call: Call, prices: Prices): number | null {
  const { model, startedAt, snapshot, fields } = call;
  const plain: Tokens = { ...NO_TOKENS, input, output };
  const cached: Tokens = { ...NO_TOKENS, cacheWrite: input, output };
  const tiers = fields.serviceTier === null ? [null] : [null, fields.serviceTier];
  const names = { asked: model, answered: null };
  let highest = 0;
  for (const tier of tiers) {
    for (const tokens of [plain, cached]) {
      const price = prices.findPrice(names, tokens, startedAt, snapshot.config.prices, tier);
      if (price === null) return null;
      highest = Math.max(highest, price);
    }
  }
  return toMicrodollars(highest, call.multiplier);
}
