import type { IncomingMessage } from "node:http";
import type { Tool } from "../config/shape.ts";
import { decodes } from "../metering/decode.ts";
import type { Asking, Sending } from "./exchange.ts";
import { keySlot, outgoingHeaders } from "./headers.ts";
import type { HandleMeans } from "./means.ts";
import { recordHead } from "./recording.ts";
import { meteringFor, type Request } from "./request.ts";
import { pathBehind } from "./route.ts";

/** Everything about the way to the gateway that does not depend on how the client is connected. */
export function sending(
  req: IncomingMessage,
  request: Request,
  path: string,
  means: HandleMeans,
  asking: Asking | null = null,
): Sending {
  const { tool, gateway, key, protocol, id } = request;
  if (tool === null || gateway === null || key === null)
    throw new Error("a request is forwarded only once it was let in");
  const way = means.ways.wayFor(gateway, tool, path);
  const slot = keySlot(protocol, gateway, req.headers);
  const metering = meteringFor(request);
  // What is taken out of an answer again must be there in plain.
  const readable = metering === null ? null : asking === null ? decodes : () => false;
  const headers = outgoingHeaders({
    method: request.method,
    rawHeaders: req.rawHeaders,
    host: way.address.host,
    key,
    slot,
    readable,
    length: asking === null ? null : asking.body.length,
  });
  return {
    req,
    gateway,
    way,
    path: pathBehind(way.address, path),
    headers,
    key,
    metering,
    countText: tool.estimate,
    seeBody: seeBody(request),
    heardIn: request,
    onHead: (status, ids) => recordHead(request, status, ids, means),
    ownHeaders: ownHeaders(id, tool, means),
  };
}

function ownHeaders(id: string, tool: Tool, { sandbox, limiter }: HandleMeans): string[] {
  const own = ["x-keybearer-request-id", id];
  if (sandbox()) own.push("x-keybearer-sandbox", "1");
  limiter.rateHeaders(tool, own);
  return own;
}

/** The rest of a body may still tell the model, and all of it what an estimate needs. */
function seeBody({ body, text }: Request): ((chunk: Buffer) => void) | null {
  const head = body === null || body.whole ? null : body;
  if (head === null && text === null) return null;
  return (chunk) => {
    head?.see(chunk);
    text?.see(chunk);
  };
}
