import type { IncomingMessage, ServerResponse } from "node:http";
import type { Snapshot } from "../config/snapshot.ts";
import { confirmProcess } from "../identity/by-process.ts";
import { readCredentials } from "../identity/credential.ts";
import { identify } from "../identity/identify.ts";
import type { Owners } from "../identity/process.ts";
import { admit } from "../limits/admit.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { requestId } from "../request-id.ts";
import type { Agents } from "./agents.ts";
import { answerRefusal } from "./answer.ts";
import type { Exchange, Outcome } from "./exchange.ts";
import type { Forwarder } from "./forward.ts";
import { guard } from "./guard.ts";
import { keySlot, outgoingHeaders } from "./headers.ts";
import { destination, endpointOf, protocolOf, route } from "./route.ts";
import { type Request, type SettleMeans, settle } from "./settle.ts";

export interface HandleMeans extends SettleMeans {
  readonly snapshot: () => Snapshot;
  readonly forwarder: Forwarder;
  readonly agents: Agents;
  readonly owners: Owners;
  /** Every `host:port` under which tools may call. */
  readonly hosts: () => readonly string[];
  readonly stopping: () => boolean;
  /** The gateway is the embedded sandbox, and its answers say so. */
  readonly sandbox: () => boolean;
}

/** A request, from top to bottom. Every step can refuse; every ending goes through settle. */
export async function handle(req: IncomingMessage, res: ServerResponse, means: HandleMeans): Promise<void> {
  const request = open(req, means);
  const target = req.url ?? "";
  const snapshot = means.snapshot();
  const end = (refusal: Refusal) => settle(request, refused(req, res, request, refusal), means);

  const guarded = guard(headOf(req), { hosts: means.hosts(), origins: snapshot.origins });
  if (guarded !== null) return end(guarded);
  if (means.stopping())
    return end(refuse("shutting-down", "keybearer is stopping. try again in a moment", 2));

  const routed = route(request.method, target, req.headers.host ?? "");
  if (routed.kind === "health") return plain(res, request.id, 200, "ok\n");
  if (routed.kind === "probe") return plain(res, request.id, 404, "not found\n");
  if (routed.kind === "wrong") return end(routed.refusal);
  request.endpoint = endpointOf(routed.path);

  const identified = await whoCalls(req, snapshot, routed.token, means);
  if (!identified.ok) return end(identified.refusal);
  const { tool } = identified;
  request.tool = tool;
  request.gateway = snapshot.gatewayOf(tool);
  const { origin } = req.headers;
  if (origin !== undefined && !tool.allowOrigins.includes(origin)) {
    return end(refuse("browser-request", `tool ${tool.name} does not allow the origin of this request`));
  }

  const admitted = admit(tool, request.gateway, snapshot.keyOf(tool), request.startedAt);
  if (!admitted.ok) return end(admitted.refusal);
  request.key = admitted.key;

  // It left while its program was looked for: nobody would hear of its leaving any more.
  if (req.socket.destroyed) return settle(request, { ...NOTHING, end: "client-left" }, means);
  if (req.headers.expect?.toLowerCase() === "100-continue") res.writeContinue();
  const outcome = await means.forwarder.forward({
    res,
    ...sending(req, request, routed.path, admitted.key, means),
  });
  settle(request, outcome.refusal ? refused(req, res, request, outcome.refusal, outcome) : outcome, means);
}

/** By token, and by program where some tool asks for that. */
export async function whoCalls(
  req: IncomingMessage,
  snapshot: Snapshot,
  token: string | null,
  means: HandleMeans,
) {
  const named = identify(snapshot, readCredentials(req.headers, token));
  if (snapshot.processTools.length === 0) return named;
  return confirmProcess(named, snapshot, () => means.owners.of(req.socket));
}

export function open(req: IncomingMessage, means: HandleMeans): Request {
  const startedAt = means.clock.now();
  return {
    id: requestId(startedAt),
    startedAt,
    startedElapsed: means.clock.elapsed(),
    method: req.method ?? "",
    protocol: protocolOf(req.url ?? "", req.headers),
    // Until the path is known to hold no token, it is not written down.
    endpoint: "",
    tool: null,
    gateway: null,
    key: null,
  };
}

export function headOf(req: IncomingMessage) {
  const { method = "", url: target = "", httpVersion, rawHeaders } = req;
  return { method, target, httpVersion, rawHeaders };
}

/** Everything about the way to the gateway that does not depend on how the client is connected. */
export function sending(
  req: IncomingMessage,
  request: Request,
  path: string,
  key: Exchange["key"],
  means: HandleMeans,
) {
  const { gateway, protocol, id } = request;
  if (gateway === null) throw new Error("a request is forwarded only once its gateway is known");
  const { origin, path: outgoingPath } = destination(path, gateway);
  const slot = keySlot(protocol, gateway, req.headers);
  return {
    req,
    gateway,
    origin,
    path: outgoingPath,
    headers: outgoingHeaders({ rawHeaders: req.rawHeaders, origin, key, slot }),
    agent: means.agents.agentFor(gateway, origin),
    key,
    ownHeaders: ["x-keybearer-request-id", id, ...(means.sandbox() ? ["x-keybearer-sandbox", "1"] : [])],
  };
}

export const NOTHING: Outcome = {
  end: "refused",
  status: null,
  cause: null,
  words: null,
  refusal: null,
  firstByteMs: null,
  bytesIn: 0,
  bytesOut: 0,
};

function refused(
  req: IncomingMessage,
  res: ServerResponse,
  request: Request,
  refusal: Refusal,
  before = NOTHING,
): Outcome {
  const status = answerRefusal(req, res, refusal, request.protocol, request.id);
  return { ...before, status, refusal };
}

function plain(res: ServerResponse, id: string, status: number, body: string): void {
  res.writeHead(status, { "content-type": "text/plain", "x-keybearer-request-id": id });
  res.end(body);
}
