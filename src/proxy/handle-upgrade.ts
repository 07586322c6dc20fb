import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { admit } from "../limits/admit.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { answerUpgradeRefusal } from "./answer.ts";
import { guard } from "./guard.ts";
import { type HandleMeans, headOf, NOTHING, open, sending, whoCalls } from "./handle.ts";
import { endpointOf, route } from "./route.ts";
import { settle } from "./settle.ts";

/**
 * A request to change the protocol. Only a known tool whose gateway says `websockets: true` gets further than 426, the
 * one answer from which clients fall back at once to plain requests, where every other refusal is told in words.
 */
export async function handleUpgrade(
  req: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  means: HandleMeans,
): Promise<void> {
  const request = open(req, means);
  const answer = (refusal: Refusal) => answerUpgradeRefusal(socket, refusal, request.protocol, request.id);
  const end = (refusal: Refusal) => settle(request, { ...NOTHING, status: answer(refusal), refusal }, means);
  // Nobody else listens on a connection that has left the server.
  socket.on("error", () => socket.destroy());

  const snapshot = means.snapshot();
  const guarded = guard(headOf(req), { hosts: means.hosts(), origins: snapshot.origins });
  if (guarded !== null) return end(guarded);
  if (means.stopping())
    return end(refuse("shutting-down", "keybearer is stopping. try again in a moment", 2));
  const routed = route(request.method, req.url ?? "", req.headers.host ?? "");
  const websocket = req.method === "GET" && req.headers.upgrade?.toLowerCase() === "websocket";
  const identified = routed.kind === "gateway" ? await whoCalls(req, snapshot, routed.token, means) : null;
  if (
    routed.kind !== "gateway" ||
    !websocket ||
    !identified?.ok ||
    !snapshot.gatewayOf(identified.tool).websockets
  ) {
    return end(refuse("websockets-off", "upgrades are not passed through. send a plain request"));
  }
  request.endpoint = endpointOf(routed.path);
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
  if (socket.destroyed) return settle(request, { ...NOTHING, end: "client-left" }, means);
  const way = sending(req, request, routed.path, admitted.key, means);
  const headers = { ...way.headers, connection: "Upgrade", upgrade: "websocket" };
  settle(request, await means.forwarder.forwardUpgrade({ ...way, headers, socket, head, answer }), means);
}
