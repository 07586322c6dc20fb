import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { whoCalls } from "../identity/by-process.ts";
import { readCredentials } from "../identity/credential.ts";
import { type Refusal, refuse } from "../refusal.ts";
import { answerUpgradeRefusal } from "./answer.ts";
import { NOTHING_SENT } from "./exchange.ts";
import { logUnavailable, otherUser } from "./failure.ts";
import { guard } from "./guard.ts";
import type { HandleMeans } from "./means.ts";
import { openRecord } from "./recording.ts";
import { headOf, letIn, openRequest, type Request } from "./request.ts";
import { findRoom, isJudged } from "./room.ts";
import { endpointOf, route } from "./route.ts";
import { sending } from "./sending.ts";
import { settle, settling } from "./settle.ts";

/**
 * A request to change the protocol. Only a known tool whose gateway says `websockets: true` gets further than 426, the
 * one answer from which clients fall back at once to plain requests, where every other refusal is told in words.
 */
export function handleUpgrade(
  req: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  means: HandleMeans,
): Promise<void> {
  const request = openRequest(req, means.snapshot(), means.clock);
  return settling(request, means, () => serve({ req, socket, head }, request, means));
}

interface Offer {
  readonly req: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
}

async function serve({ req, socket, head }: Offer, request: Request, means: HandleMeans): Promise<void> {
  const { snapshot } = request;
  const answer = (refusal: Refusal) => answerUpgradeRefusal(socket, refusal, request.protocol, request.id);
  const end = (refusal: Refusal) =>
    settle(request, { ...NOTHING_SENT, status: answer(refusal), refusal }, means);
  // Nobody else listens on a connection that has left the server.
  socket.on("error", () => socket.destroy());

  const guarded = guard(headOf(req), { hosts: means.hosts(), origins: snapshot.origins });
  if (guarded !== null) return end(guarded);
  if (means.stopping())
    return end(refuse("shutting-down", "keybearer is stopping. try again in a moment", 2));
  const peer = await means.peers.of(req.socket);
  if (peer === "other-user") return end(otherUser());
  const left = () => settle(request, { ...NOTHING_SENT, end: "client-left" }, means);
  if (peer === "gone") {
    socket.destroy();
    return left();
  }
  const routed = route(request.method, req.url ?? "", req.headers.host ?? "");
  const websocket = req.method === "GET" && req.headers.upgrade?.toLowerCase() === "websocket";
  const findOwner = () => means.owners.of(req.socket);
  const identified =
    routed.kind === "gateway"
      ? await whoCalls(snapshot, readCredentials(req.headers, routed.token), findOwner)
      : null;
  if (routed.kind === "gateway") request.endpoint = endpointOf(routed.path);
  if (identified?.ok) {
    // The record of a 426 says whose it is, too.
    request.tool = identified.tool;
    request.gateway = snapshot.gatewayOf(identified.tool);
  }
  if (
    routed.kind !== "gateway" ||
    !websocket ||
    !identified?.ok ||
    !snapshot.gatewayOf(identified.tool).websockets
  ) {
    return end(refuse("websockets-off", "upgrades are not passed through. send a plain request"));
  }
  // Nobody reads what passes there: neither its model nor what it uses. A plain request can be held to its limits.
  if (isJudged(identified.tool, snapshot.gatewayOf(identified.tool).groups)) {
    const message = `tool ${identified.tool.name} has limits that need plain requests. send one`;
    return end(refuse("websockets-off", message));
  }
  const notLetIn = letIn(request, identified, req.headers.origin);
  if (notLetIn !== null) return end(notLetIn);
  means.running.add(request, socket);
  // The server no longer looks after this connection, and one that only its client has ended would stay in the queue.
  const onEnd = () => socket.destroy();
  socket.once("end", onEnd).read(0);
  const noRoom = await findRoom(req, request, means);
  socket.off("end", onEnd);
  if (noRoom === "left") return left();
  if (noRoom !== null) return end(noRoom);
  if (socket.destroyed) return left();
  request.recorded = await openRecord(request, means.ledger);
  if (!request.recorded) return end(logUnavailable(means.ledger.state()));
  means.limiter.recorded(request.lease, request.id);
  if (socket.destroyed) return left();
  const way = sending(req, request, routed.path, means);
  settle(request, await means.forwarder.forwardUpgrade({ ...way, socket, head, answer }), means);
}
