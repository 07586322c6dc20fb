import {
  type Agent,
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket } from "node:net";
import { Stream } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import type { Gateway } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { decodes } from "../metering/decode.ts";
import { type Address, findAddress } from "./address.ts";
import { Agents } from "./agents.ts";
import type { Call } from "./call.ts";
import { byName, isName, keyHeaderFor, requestHeaders, withCallId } from "./headers.ts";
import type { OutgoingHead } from "./request-head.ts";

/** A request to a gateway, before anything of it is sent. */
export interface UpstreamRequest {
  readonly gateway: Gateway;
  readonly key: Secret;
  readonly address: Address;
  readonly agent: Agent;
  readonly method: string;
  /** Name, value, name, value. */
  readonly headers: readonly string[];
}

/** The gateways and the connections to them. */
export class Upstream {
  readonly agents: Agents;
  readonly passthrough = new Passthrough();

  constructor(clock: Clock) {
    this.agents = new Agents(clock);
  }

  /**
   * @param bodyLength bytes of the body that was read; null: it passes unread, or there is none.
   * @param isFiltered something will be removed from the response.
   */
  request(call: Call, req: IncomingMessage, bodyLength: number | null, isFiltered: boolean): UpstreamRequest {
    const { tool, gateway, key, method } = call;
    if (tool === null || gateway === null || key === null) throw new Error("the caller is not known yet");
    // In a stream the key is redacted and usage removed, which needs plain bytes. Everything else is decoded to be read.
    const needsUncompressed = isFiltered || call.fields.stream === true;
    const { address, headers } =
      bodyLength === null
        ? // Its content-length is the client's own, which call.head may have from an earlier request.
          buildHead(call, req.rawHeaders, gateway, key, needsUncompressed, null)
        : findHead(call, gateway, key, needsUncompressed, bodyLength);
    const agent = this.agents.agentFor(gateway, address.origin, tool.name);
    const sent = call.bringsId ? withCallId(headers, call.id) : headers;
    return { gateway, key, address, agent, method, headers: sent };
  }
}

/** Of a request whose body was read. Requests with the same head to the same gateway share it, all but the content-length. */
function findHead(
  call: Call,
  gateway: Gateway,
  key: Secret,
  needsUncompressed: boolean,
  length: number,
): Pick<OutgoingHead, "address" | "headers"> {
  const known = call.head.outgoing;
  const isSame =
    known?.gateway === gateway && known.key === key && known.needsUncompressed === needsUncompressed;
  if (isSame) return { address: known.address, headers: withLength(known.headers, length) };
  const built = buildHead(call, call.head.rawHeaders, gateway, key, needsUncompressed, length);
  call.head.keepOutgoing(built);
  return built;
}

function buildHead(
  { method, path, protocol, head }: Call,
  rawHeaders: readonly string[],
  gateway: Gateway,
  key: Secret,
  needsUncompressed: boolean,
  bodyLength: number | null,
): OutgoingHead {
  const address = findAddress(gateway, path);
  const headers = requestHeaders({
    method,
    rawHeaders,
    host: address.host,
    key,
    keyHeader: keyHeaderFor(protocol, gateway, head.headers),
    readable: (encoding) => !needsUncompressed && decodes(encoding),
    bodyLength,
  });
  return { gateway, key, needsUncompressed, address, headers };
}

/** Makes the request. Nothing of it is sent before the next turn of the event loop. */
export function startRequest(
  { address, agent, method }: UpstreamRequest,
  headers: readonly string[],
): ClientRequest {
  const { hostname, port, path, secure } = address;
  const send = secure ? httpsRequest : httpRequest;
  // Headers in a list keep their case and order.
  return send({ hostname, port, agent, method, path, headers });
}

interface PassthroughEvents {
  /** The request has a socket, which may still connect. */
  onSocket(request: ClientRequest, socket: Socket): void;
  onError(error: Error): void;
}

/** http-proxy-3 pipes this in place of a body that the caller pipes itself, once there is a connection to send it on. */
class NoBody extends Stream {
  override pipe<Target extends NodeJS.WritableStream>(target: Target): Target {
    return target;
  }
}

/**
 * Sends what is not read here with http-proxy-3: requests without a body, uploads and large bodies. Its options hold no key
 * when it is created, because it prints them under DEBUG.
 */
class Passthrough {
  /** toProxy: the path is taken as it is, and not resolved as a URL. */
  readonly #proxy = createProxyServer({
    selfHandleResponse: true,
    prependPath: false,
    toProxy: true,
    secure: true,
  });
  /** By the headers of each attempt: a request may be sent twice. */
  readonly #requests = new WeakMap<object, PassthroughEvents>();
  readonly #noBody = new NoBody();

  constructor() {
    this.#proxy.on("proxyReq", (request, _req, _res, { headers = {} }, socket) =>
      this.#requests.get(headers)?.onSocket(request, socket),
    );
    // It throws errors that have no listener. These are of clients that left, which their connections' `close` reports.
    this.#proxy.on("error", () => {});
  }

  /** @param hasBody the caller pipes the body to the request that onSocket gets. */
  send(
    req: IncomingMessage,
    res: ServerResponse,
    hasBody: boolean,
    request: UpstreamRequest,
    events: PassthroughEvents,
  ): void {
    const headers = byName(request.headers);
    this.#requests.set(headers, events);
    // It takes the path and the headers from the client's request, and puts `headers` on top. It has no option to leave the
    // client's out, and nothing reads this request's own any more: call.head has them.
    req.headers = {};
    req.url = request.address.path;
    const options = { ...targetOf(request), headers, ...(hasBody ? { buffer: this.#noBody } : {}) };
    this.#proxy.web(req, res, options, (error) => events.onError(error));
  }
}

/** Replaces the content-length, of which there is exactly one. */
function withLength(headers: readonly string[], length: number): string[] {
  const copy = [...headers];
  for (let i = 0; i < copy.length; i += 2)
    if (isName(copy[i] ?? "", "content-length")) copy[i + 1] = String(length);
  return copy;
}

function targetOf({ address, agent }: UpstreamRequest) {
  const { secure, host, hostname, port } = address;
  return { target: { protocol: secure ? "https:" : "http:", host, hostname, port }, agent };
}
