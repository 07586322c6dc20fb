import type { IncomingMessage } from "node:http";
import type { Clock } from "../clock.ts";
import type { Group, Tool } from "../config/shape.ts";
import type { Ask } from "../limits/counters.ts";
import type { Limiter } from "../limits/limiter.ts";
import { isInGroup } from "../limits/model-rule.ts";
import { modelRefusal } from "../limits/refusals.ts";
import { askFor, type CallTokens, expectedTokens, namedMaximum } from "../limits/reservation.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { microdollars, type Prices } from "../usage/prices.ts";
import { meteringOf, type Tokens } from "../usage/record.ts";
import { modelAsked, multiplierOf } from "./recording.ts";
import type { Request } from "./request.ts";

export interface RoomMeans {
  readonly clock: Clock;
  readonly limiter: Limiter;
  readonly prices: Prices;
}

/** Finds room under the tool's limits, and waits for it if the tool says so. null: it may go, or has left. */
export async function findRoom(
  req: IncomingMessage,
  request: Request,
  { limiter, prices, clock }: RoomMeans,
): Promise<Refusal | null> {
  const { tool } = request;
  if (tool === null) return null;
  const wrongModel = judgeModel(request, tool);
  if (wrongModel !== null) return wrongModel;
  const model = modelAsked(request);
  const ask = askOf(req, request, limiter.usual(tool.name), prices);
  let leave = () => {};
  let waited = false;
  const onClose = () => leave();
  req.socket.once("close", onClose);
  const taken = await limiter.take(tool, { ask, model }, (left) => {
    waited = true;
    leave = left;
    if (req.socket.destroyed) left();
  });
  req.socket.off("close", onClose);
  // From its very beginning, and rounded up: with when it began, the log must tell the window in which it was let in.
  if (waited) request.waitedMs = Math.ceil(clock.elapsed() - request.startedElapsed);
  if (!taken.ok) return taken.refusal;
  request.lease = taken.lease;
  return null;
}

/**
 * Whether the whole beginning of the body must be read: where what it says decides something, and where the request may
 * have to wait. A connection is not read from while bytes of it lie there unread, and its end would not be heard of.
 */
export function mustBeRead(tool: Tool, groups: Readonly<Record<string, Group>>): boolean {
  return tool.limits.wait > 0 || isJudged(tool, groups);
}

/** Whether its model, or how much it may use, decides something. */
export function isJudged(tool: Tool, groups: Readonly<Record<string, Group>>): boolean {
  const { tokens, spend } = tool.limits;
  return tokens.length > 0 || spend.length > 0 || tool.quota !== null || restriction(tool, groups) !== null;
}

/** The models of the tool's group; null: any. */
function restriction({ group }: Tool, groups: Readonly<Record<string, Group>>): readonly string[] | null {
  const models = group === null ? undefined : groups[group]?.models;
  return models === undefined || models.includes("*") ? null : models;
}

/** What a body does not tell within what is read of it goes on: its record says which model answered. */
function judgeModel({ body, gateway }: Request, tool: Tool): Refusal | null {
  const models = restriction(tool, gateway?.groups ?? {});
  if (models === null || tool.group === null) return null;
  // Also where the last one is null, or no name at all: Go then stays with the one before.
  if (body?.disputed) {
    return refuse("bad-request", "the request names two models, and gateways differ in which one they take");
  }
  const model = body?.model ?? null;
  if (model === null && body?.end === "unreadable") {
    const message = `the body cannot be read, and tool ${tool.name} may use only the models of group ${tool.group}. send it uncompressed`;
    return refuse("bad-request", message);
  }
  if (model === null) return null;
  return isInGroup(model, models) ? null : modelRefusal(tool.name, tool.group, model, models);
}

/** What the request may use at most, as far as can be said; see limits/reservation.ts. */
function askOf(req: IncomingMessage, request: Request, usual: CallTokens | null, prices: Prices): Ask {
  const metering = meteringOf(request.method, request.endpoint);
  if (metering === null) return { tokens: 0, spend: 0 };
  const length = Number(req.headers["content-length"]);
  const sizing = {
    named: namedMaximum(request.body?.lengths ?? {}),
    bodyBytes: Number.isSafeInteger(length) ? length : null,
    hasOutput: metering !== "embeddings",
  };
  return askFor(expectedTokens(sizing, usual), (tokens) => dearest(tokens, request, prices));
}

/** The input as if all of it were written to a cache, where that costs more; the group's multiplier is in it. */
function dearest({ input, output }: CallTokens, request: Request, prices: Prices): number | null {
  const names = { asked: modelAsked(request), answered: null };
  const none: Tokens = { input: 0, cacheRead: 0, cacheWrite: 0, output, reasoning: 0 };
  const costs = [
    { ...none, input },
    { ...none, cacheWrite: input },
  ].map((tokens) => prices.priceOf(names, tokens, request.startedAt, request.snapshot.config.prices));
  const known = costs.filter((cost) => cost !== null);
  if (known.length === 0) return null;
  return Math.max(...known.map((cost) => microdollars(cost, multiplierOf(request))));
}
