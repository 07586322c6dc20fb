import type { IncomingMessage, ServerResponse } from "node:http";
import { whoCalls } from "../identity/by-process.ts";
import { readCredentials } from "../identity/credential.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { answerRefusal } from "./answer.ts";
import { NOTHING_SENT, type Outcome } from "./exchange.ts";
import { guard } from "./guard.ts";
import type { HandleMeans } from "./means.ts";
import { headOf, letIn, openRequest, type Request } from "./request.ts";
import { endpointOf, route } from "./route.ts";
import { sending } from "./sending.ts";
import { settle } from "./settle.ts";

/** A request, from top to bottom. Every step can refuse; every ending goes through settle. */
export async function handle(req: IncomingMessage, res: ServerResponse, means: HandleMeans): Promise<void> {
  const request = openRequest(req, means.clock);
  const snapshot = means.snapshot();
  const end = (refusal: Refusal) => settle(request, refused(req, res, request, refusal), means);

  const guarded = guard(headOf(req), { hosts: means.hosts(), origins: snapshot.origins });
  if (guarded !== null) return end(guarded);
  if (means.stopping())
    return end(refuse("shutting-down", "keybearer is stopping. try again in a moment", 2));

  const routed = route(request.method, req.url ?? "", req.headers.host ?? "");
  if (routed.kind === "health") return plain(res, request.id, 200, "ok\n");
  if (routed.kind === "probe") return plain(res, request.id, 404, "not found\n");
  if (routed.kind === "wrong") return end(routed.refusal);
  request.endpoint = endpointOf(routed.path);

  const credentials = readCredentials(req.headers, routed.token);
  const identified = await whoCalls(snapshot, credentials, () => means.owners.of(req.socket));
  if (!identified.ok) return end(identified.refusal);
  const notLetIn = letIn(request, identified.tool, snapshot, req.headers.origin);
  if (notLetIn !== null) return end(notLetIn);

  // It left while its program was looked for: nobody would hear of its leaving any more.
  if (req.socket.destroyed) return settle(request, { ...NOTHING_SENT, end: "client-left" }, means);
  if (req.headers.expect?.toLowerCase() === "100-continue") res.writeContinue();
  const outcome = await means.forwarder.forward({ res, ...sending(req, request, routed.path, means) });
  settle(request, outcome.refusal ? refused(req, res, request, outcome.refusal, outcome) : outcome, means);
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

function plain(res: ServerResponse, id: string, status: number, body: string): void {
  res.writeHead(status, { "content-type": "text/plain", "x-keybearer-request-id": id });
  res.end(body);
}
