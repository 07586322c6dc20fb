import type { IncomingMessage } from "node:http";
import type { Clock } from "../clock.ts";
import type { Group, Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { admit } from "../limits/admit.ts";
import type { Ask } from "../limits/counters.ts";
import { askFor, type CallTokens, expectedTokens, namedMaximum } from "../limits/estimate.ts";
import type { Limiter } from "../limits/limiter.ts";
import { isInGroup } from "../limits/model-rule.ts";
import { modelRefusal, type Unseen } from "../limits/refusals.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import { isBilledLater } from "../metering/protocols.ts";
import type { Tokens } from "../metering/usage.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { readToEnd } from "./body-head.ts";
import { uploadStopped } from "./failure.ts";
import { modelAsked, multiplierOf } from "./recording.ts";
import { meteringFor, type Request } from "./request.ts";

export interface RoomMeans {
  readonly clock: Clock;
  readonly limiter: Limiter;
  readonly prices: Prices;
  /** In force now, which may be another than the request began with. */
  readonly snapshot: () => Snapshot;
}

/** A longer body is not held while it waits for room. */
const MOST_WAITING = 16 * 1024 * 1024;

/** null: it may go; "left": its client did. */
type Room = Refusal | "left" | null;

/** Finds room under the tool's limits, and waits for it if the tool says so. A promise only where there is none now. */
export function findRoom(req: IncomingMessage, request: Request, means: RoomMeans): Room | Promise<Room> {
  const { tool } = request;
  if (tool === null) return null;
  const wrongModel = judgeModel(request, tool);
  if (wrongModel !== null) return wrongModel;
  const ask = askOf(req, request, means.limiter.usual(tool.name), means.prices);
  request.lease = means.limiter.takeNow(tool, ask);
  return request.lease === null ? waitForRoom(req, request, tool, ask, means) : null;
}

async function waitForRoom(
  req: IncomingMessage,
  request: Request,
  tool: Tool,
  ask: Ask,
  { limiter, clock, snapshot }: RoomMeans,
): Promise<Room> {
  // Bytes that nobody reads keep the end of a connection from being heard: whoever waits is read to the end of the body.
  const patience = request.gateway?.timeouts.firstByte ?? 0;
  const whole = limiter.wouldWait(tool, ask)
    ? await readToEnd(req, { most: MOST_WAITING, patience }, request.body)
    : "ended";
  if (whole === "left") return "left";
  if (whole === "stalled") return uploadStopped(patience);
  let leave = () => {};
  let waited = false;
  const onClose = () => leave();
  req.socket.once("close", onClose);
  const taken = await limiter.take(
    tool,
    { ask, model: modelAsked(request), mayWait: whole === "ended", unseen: unseenIn(request) },
    (left) => {
      waited = true;
      request.waiting = true;
      leave = left;
      if (req.socket.destroyed) left();
    },
  );
  req.socket.off("close", onClose);
  request.waiting = false;
  // From its very beginning, and rounded up: with when it began, the log must tell the window in which it was let in.
  if (waited) request.waitedMs = Math.ceil(clock.elapsed() - request.startedElapsed);
  if (!taken.ok) return taken.refusal ?? "left";
  request.lease = taken.lease;
  return waited ? stillAllowed(tool.name, snapshot(), clock.now()) : null;
}

/** Whoever waited goes with the configuration it came with, but not where a request that comes now would be refused. */
function stillAllowed(name: string, snapshot: Snapshot, now: number): Refusal | null {
  const tool = snapshot.config.tools[name];
  if (tool === undefined)
    return refuse("token-unknown", `tool ${name} was removed while this request waited`);
  const admitted = admit(tool, snapshot.gatewayOf(tool), snapshot.keyOf(tool), now);
  return admitted.ok ? null : admitted.refusal;
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
function judgeModel(request: Request, tool: Tool): Refusal | null {
  const { body, gateway, method, endpoint } = request;
  const models = restriction(tool, gateway?.groups ?? {});
  if (models === null || tool.group === null) return null;
  if (meteringFor(request) === null && isBilledLater(method, endpoint)) {
    const message = `which models ${endpoint} runs cannot be told, and tool ${tool.name} may use only those of group ${tool.group}`;
    return refuse("model-not-in-group", message);
  }
  // Also where the last one is null, or no name at all: Go then stays with the one before.
  if (body?.disputed) {
    return refuse(
      "bad-request",
      "the request names two models or is no valid JSON, and gateways differ in which model they take",
    );
  }
  const model = body?.model ?? null;
  if (model === null && body?.end === "unreadable") {
    const message = `the body cannot be read, and tool ${tool.name} may use only the models of group ${tool.group}. send it uncompressed`;
    return refuse("bad-request", message);
  }
  if (model === null) return null;
  return isInGroup(model, models) ? null : modelRefusal(tool.name, tool.group, model, models);
}

/** Why the body told no model, where that is what its sender can change. */
function unseenIn({ body }: Request): Unseen | null {
  const end = body?.end;
  return end === "unreadable" || end === "later" || end === "none" ? end : null;
}

/** What the request may use at most, as far as can be said; see limits/estimate.ts. */
function askOf(req: IncomingMessage, request: Request, usual: CallTokens | null, prices: Prices): Ask {
  const metering = meteringFor(request);
  // What a batch will cost is told neither by it nor by its answer: a limit on money cannot hold it.
  if (metering === null)
    return { tokens: 0, spend: isBilledLater(request.method, request.endpoint) ? null : 0 };
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
  const priceOf = (tokens: Tokens) =>
    prices.priceOf(names, tokens, request.startedAt, request.snapshot.config.prices);
  const read = priceOf({ input, cacheRead: 0, cacheWrite: 0, output, reasoning: 0 });
  const written = priceOf({ input: 0, cacheRead: 0, cacheWrite: input, output, reasoning: 0 });
  const dearer = (read?.picodollars ?? -1) > (written?.picodollars ?? -1) ? read : written;
  return dearer === null ? null : microdollars(dearer, multiplierOf(request));
}
