import type { Agent, IncomingMessage } from "node:http";
import { withoutVersion } from "../config/fields/address.ts";
import type { Gateway } from "../config/shape.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { decodes } from "../metering/decode.ts";
import { Agents } from "./agents.ts";
import type { Call } from "./call.ts";
import { keyHeaderFor, requestHeaders } from "./headers.ts";
import { Passthrough } from "./passthrough.ts";

/** Where a request goes, in the parts that a connection needs. */
interface Address {
  /** Scheme, host and port. */
  readonly origin: string;
  /** As the Host header names it. */
  readonly host: string;
  /** An IPv6 address has no brackets here. */
  readonly hostname: string;
  readonly port: number;
  readonly secure: boolean;
  /** The request target. */
  readonly path: string;
}

const MESSAGES = /^\/v1\/messages(?:[/?]|$)/;

/** Where the client's path is at the gateway. base_url has its own version, which replaces the client's /v1. */
export function addressOf(gateway: Gateway, path: string): Address {
  if (MESSAGES.test(path)) return joined(gateway.messagesUrl, path);
  if (path.startsWith("/v1beta/")) return joined(withoutVersion(gateway.baseUrl), path);
  return joined(gateway.baseUrl, path.slice("/v1".length));
}

/** The path is appended, never resolved: `new URL("//evil.com", base)` is evil.com. */
function joined(base: string, path: string): Address {
  const { origin, host, hostname, port, protocol, pathname } = new URL(base);
  const secure = protocol === "https:";
  return {
    origin,
    host,
    hostname: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port) || (secure ? 443 : 80),
    secure,
    path: pathname.replace(/\/$/, "") + path,
  };
}

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
   * @param body the body that was read; null: it passes unread, or there is none.
   * @param isFiltered something will be removed from the response.
   */
  request(call: Call, req: IncomingMessage, body: Buffer | null, isFiltered: boolean): UpstreamRequest {
    const { tool, gateway, key } = call;
    if (tool === null || gateway === null || key === null) throw new Error("the caller is not known yet");
    const address = addressOf(gateway, call.path);
    const headers = requestHeaders({
      method: call.method,
      rawHeaders: req.rawHeaders,
      host: address.host,
      key,
      keyHeader: keyHeaderFor(call.protocol, gateway, req.headers),
      // In a stream the key is masked and usage removed, which needs plain bytes. Everything else is decoded to be read.
      readable: (encoding) => !isFiltered && call.fields.stream !== true && decodes(encoding),
      bodyLength: body === null ? null : body.length,
    });
    return {
      gateway,
      key,
      address,
      agent: this.agents.agentFor(gateway, address.origin, tool.name),
      method: call.method,
      headers,
    };
  }
}
