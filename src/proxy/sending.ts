import type { IncomingMessage } from "node:http";
import type { Sending } from "./exchange.ts";
import { keySlot, outgoingHeaders } from "./headers.ts";
import type { HandleMeans } from "./means.ts";
import type { Request } from "./request.ts";
import { destination } from "./route.ts";

/** Everything about the way to the gateway that does not depend on how the client is connected. */
export function sending(req: IncomingMessage, request: Request, path: string, means: HandleMeans): Sending {
  const { gateway, key, protocol, id } = request;
  if (gateway === null || key === null) throw new Error("a request is forwarded only once it was let in");
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
