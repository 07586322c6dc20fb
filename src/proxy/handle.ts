import type { IncomingMessage, ServerResponse } from "node:http";
import { whoCalls } from "../identity/by-process.ts";
import { readCredentials } from "../identity/credential.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { answerRefusal } from "./answer.ts";
import { askingOf, readBody, takeBody } from "./body.ts";
import { bytesToBuffer } from "./body-budget.ts";
import { exchangeOf, NOTHING_SENT, type Outcome } from "./exchange.ts";
import { logUnavailable, otherUser, overloaded } from "./failure.ts";
import { guard } from "./guard.ts";
import type { HandleMeans } from "./means.ts";
import { openRecord } from "./recording.ts";
import { headOf, letIn, openRequest, type Request } from "./request.ts";
import { findRoom } from "./room.ts";
import { endpointOf, route } from "./route.ts";
import { sending } from "./sending.ts";
import { settle, settling } from "./settle.ts";

export function handle(req: IncomingMessage, res: ServerResponse, means: HandleMeans): Promise<void> {
  const request = openRequest(req, means.snapshot(), means.clock);
  return settling(request, means, () => serve(req, res, request, means));
}

/**
 * A request, from top to bottom. Every step can refuse; every ending goes through settle. Steps that rarely have to wait
 * are waited for only then: each wait costs a turn of the microtasks and what it keeps for it.
 */
async function serve(
  req: IncomingMessage,
  res: ServerResponse,
  request: Request,
  means: HandleMeans,
): Promise<void> {
  const { snapshot } = request;
  const end = (refusal: Refusal) => settle(request, refused(req, res, request, refusal), means);

  const guarded = guard(headOf(req), { hosts: means.hosts(), origins: snapshot.origins });
  if (guarded !== null) return end(guarded);
  if (means.stopping())
    return end(refuse("shutting-down", "keybearer is stopping. try again in a moment", 2));

  const routed = route(request.method, req.url ?? "", req.headers.host ?? "");
  if (routed.kind === "health") return plain(res, request, 200, "ok\n");
  if (routed.kind === "probe") return plain(res, request, 404, "not found\n");
  if (routed.kind === "wrong") return end(routed.refusal);
  request.endpoint = endpointOf(routed.path);

  // Before a token is looked at: whoever took our port while it was free may have been shown one.
  const looking = means.peers.of(req.socket);
  const peer = looking instanceof Promise ? await looking : looking;
  if (peer === "other-user") return end(otherUser());
  // It may leave whenever something is waited for, and nobody would hear of that any more.
  const left = () => settle(request, { ...NOTHING_SENT, end: "client-left" }, means);
  if (peer === "gone") {
    req.socket.destroy();
    return left();
  }

  const credentials = readCredentials(req.headers, routed.token);
  const calling = whoCalls(snapshot, credentials, () => means.owners.of(req.socket));
  const identified = calling instanceof Promise ? await calling : calling;
  if (!identified.ok) return end(identified.refusal);
  const notLetIn = letIn(request, identified, req.headers.origin);
  if (notLetIn !== null) return end(notLetIn);
  means.running.add(request, req.socket);

  const most = bytesToBuffer(req, identified.tool, request.endpoint);
  if (!means.bodies.reserve(request, most)) return end(overloaded());
  if (req.headers.expect?.toLowerCase() === "100-continue") res.writeContinue();
  const reading = readBody(req, request);
  const unread = reading instanceof Promise ? await reading : reading;
  if (unread !== null) return end(unread);
  // What follows of a body that is not asked for its usage is not held.
  if (request.body?.over || !identified.tool.askUsage)
    means.bodies.shrink(request, request.body?.bytesHeld ?? 0);
  if (hasLeft(req, request)) return left();
  const finding = findRoom(req, request, means);
  const noRoom = finding instanceof Promise ? await finding : finding;
  if (noRoom === "left") return left();
  if (noRoom !== null) return end(noRoom);
  const asking = request.tool?.askUsage ? await askingOf(req, request) : null;
  means.bodies.shrink(request, asking?.body.length ?? request.body?.bytesHeld ?? 0);
  if (hasLeft(req, request)) return left();
  const opening = openRecord(request, means.ledger);
  request.recorded = opening instanceof Promise ? await opening : opening;
  if (!request.recorded) return end(logUnavailable(means.ledger.state()));
  means.limiter.recorded(request.lease, request.id);
  if (hasLeft(req, request)) return left();
  const way = sending(req, request, routed.path, means, asking);
  const outcome = await means.forwarder.forward(exchangeOf(way, res, asking, takeBody(request)));
  settle(request, outcome.refusal ? refused(req, res, request, outcome.refusal, outcome) : outcome, means);
}

/** A client that only ends its side in the middle of the body has left too, though its connection may linger. */
function hasLeft(req: IncomingMessage, { body }: Request): boolean {
  return req.socket.destroyed || body?.end === "left";
}

function refused(
  req: IncomingMessage,
  res: ServerResponse,
  request: Request,
  refusal: Refusal,
  before = NOTHING_SENT,
): Outcome {
  const status = answerRefusal(req, res, refusal, request.protocol, request.id);
  return { ...before, status, refusal };
}

/** Nothing that is recorded. */
function plain(res: ServerResponse, request: Request, status: number, body: string): void {
  request.settled = true;
  res.writeHead(status, { "content-type": "text/plain", "x-keybearer-request-id": request.id });
  res.end(body);
}
