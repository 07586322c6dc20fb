import type { Clock } from "../core/clock.ts";
import type { Account } from "./account.ts";
import { type AnsweringNeeds, answer } from "./answering.ts";
import type { Book } from "./book.ts";
import { keyBilling, keyUsage } from "./console/key-usage.ts";
import { sendPaced } from "./delivery.ts";
import { admit, identify } from "./door.ts";
import { type Body, type Exchange, pause, readBody, sendJson } from "./exchange.ts";
import { type Faults, type Pace, paceOf } from "./faults.ts";
import type { Group, Groups } from "./groups.ts";
import { parseObject } from "./json.ts";
import type { Keys, SandboxKey } from "./keys.ts";
import { playFault } from "./misfortune.ts";
import { geminiModelList, modelEntry, modelList } from "./protocols/model-list.ts";
import {
  concurrencyRefusal,
  invalidRequest,
  modelRefusal,
  type Refusal,
  rateRefusal,
  type Shape,
  tooLarge,
} from "./refusals.ts";
import type { AskRoute, GatewayRoute, ListingRoute } from "./routes.ts";
import { countTokens } from "./tokens.ts";
import type { UsageLog } from "./usage-log.ts";
import type { Zone } from "./zone.ts";

export interface GatewayNeeds extends AnsweringNeeds {
  readonly clock: Clock;
  readonly zone: Zone;
  readonly account: Account;
  readonly keys: Keys;
  readonly groups: Groups;
  readonly faults: Faults;
  readonly usage: UsageLog;
  readonly book: Book;
}

/** JSON bodies only; what is uploaded to /v1/files is not kept, and may be of any size. */
export const MOST_BODY_BYTES = 32 * 1024 * 1024;

type WholeBody = Extract<Body, { ok: true }>;

/** A key that was let in, with all that its request brought. */
interface Visit {
  readonly exchange: Exchange;
  readonly key: SandboxKey;
  readonly group: Group;
  readonly pace: Pace;
  readonly body: WholeBody;
}

/** The data plane: everything that is asked with a key. */
export async function serveGateway(
  exchange: Exchange,
  route: GatewayRoute,
  needs: GatewayNeeds,
): Promise<void> {
  exchange.response.setHeader("X-Client-Request-ID", exchange.id);
  exchange.entry.requestId = exchange.id;
  const reading = readBody(exchange, needs.book, route.kind === "files" ? 0 : MOST_BODY_BYTES);
  const shown = identify(exchange.request.headers, exchange.query, needs.keys);
  exchange.entry.keyId = shown.ok ? shown.key.id : null;
  const fault = shown.ok ? needs.faults.take(shown.key.id) : null;
  if (fault?.kind === "refuse" && fault.early === true) {
    await playFault(exchange, fault);
    return;
  }
  const body = await reading;
  if (!body.ok && body.reason === "gone") return;
  if (!shown.ok) return refuse(exchange, shown.refusal);
  if (fault !== null && (await playFault(exchange, fault))) return;
  const entry = admit(shown.key, exchange.path, needs);
  if (!entry.ok) return refuse(exchange, entry.refusal);
  if (!body.ok) return refuse(exchange, tooLarge(shapeOf(route), MOST_BODY_BYTES));
  await serveVisit({ exchange, key: shown.key, group: entry.group, pace: paceOf(fault), body }, route, needs);
}

async function serveVisit(visit: Visit, route: GatewayRoute, needs: GatewayNeeds): Promise<void> {
  if (route.kind === "ask") return serveAsk(visit, route, needs);
  const { exchange, group, pace } = visit;
  if (pace.beforeHeaders > 0) await pause(pace.beforeHeaders, exchange.gone);
  if (route.kind !== "model") return sendPaced(exchange, listing(visit, route, needs), pace);
  const model = group.models.find((each) => each.id === route.id);
  if (model === undefined) return refuse(exchange, modelRefusal("openai", route.id));
  return sendPaced(exchange, modelEntry(model), pace);
}

/** The answers that cannot fail. */
function listing(visit: Visit, route: ListingRoute, needs: GatewayNeeds): object {
  const { exchange, group, key, body } = visit;
  switch (route.kind) {
    case "models":
      return route.style === "gemini" ? geminiModelList(group.models) : modelList(group.models);
    case "files":
      return fileObject(exchange, body, needs.clock);
    case "key-usage":
      return keyUsage(key, group, exchange.query, needs);
    case "key-billing":
      return keyBilling(group, needs.zone, needs.clock.now());
  }
}

async function serveAsk(visit: Visit, route: AskRoute, needs: GatewayNeeds): Promise<void> {
  const { exchange, group, key, pace } = visit;
  const { protocol, endpoint } = route;
  const { shape } = protocol;
  const body = parseObject(visit.body.bytes);
  if (body === null) return refuse(exchange, invalidRequest(shape, "Failed to parse request body"));
  const ask = protocol.read(body, route.address);
  if (typeof ask === "string") return refuse(exchange, invalidRequest(shape, ask));
  const model = group.models.find((each) => each.id === ask.model);
  if (model === undefined) return refuse(exchange, modelRefusal(shape, ask.model));
  if (model.makes !== protocol.wants) {
    const message = `model ${model.id} makes ${model.makes}, not ${protocol.wants}`;
    return refuse(exchange, invalidRequest(shape, message));
  }
  if (route.counts) {
    const count = Math.max(1, countTokens(ask.prompt));
    if (pace.beforeHeaders > 0) await pause(pace.beforeHeaders, exchange.gone);
    return sendPaced(exchange, shape === "gemini" ? { totalTokens: count } : { input_tokens: count }, pace);
  }
  const refusal = takeSeat(key, shape, needs.clock.elapsed());
  if (refusal !== null) return refuse(exchange, refusal);
  try {
    await answer({ exchange, protocol, endpoint, ask, model, key, group, pace }, needs);
  } finally {
    key.running -= 1;
  }
}

/** A key's rate limit: how many at once, how many a minute (SPEC.md section 8). Null once the seat is taken. */
function takeSeat(key: SandboxKey, shape: Shape, elapsed: number): Refusal | null {
  if (key.concurrent !== null && key.running >= key.concurrent) return concurrencyRefusal(shape);
  const wait = key.perMinute === null ? 0 : key.window.take(key.perMinute, elapsed);
  if (wait > 0) return rateRefusal(shape, wait);
  key.running += 1;
  return null;
}

function refuse(exchange: Exchange, refusal: Refusal): void {
  sendJson(exchange, refusal.status, refusal.body, refusal.headers);
}

function shapeOf(route: GatewayRoute): Shape {
  return route.kind === "ask" ? route.protocol.shape : "openai";
}

function fileObject(exchange: Exchange, body: WholeBody, clock: Clock): object {
  return {
    id: `file-${exchange.id.replaceAll("-", "")}`,
    object: "file",
    bytes: body.length,
    created_at: Math.floor(clock.now() / 1000),
    filename: "upload",
    purpose: "user_data",
    status: "processed",
    sha256: body.sha256,
  };
}
