import type { Agent, IncomingMessage } from "node:http";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import { decodes } from "../metering/decode.ts";
import type { Secret } from "../secret.ts";
import { Agents } from "./agents.ts";
import type { Call } from "./call.ts";
import { keySlot, requestHeaders } from "./headers.ts";
import { Passthrough } from "./passthrough.ts";
import { type Address, type Addresses, addressesOf, addressFor, upstreamPath } from "./routes.ts";

/** A request to a gateway, before anything of it is sent. */
export interface UpstreamRequest {
  readonly gateway: Gateway;
  readonly key: Secret;
  readonly address: Address;
  readonly agent: Agent;
  readonly method: string;
  readonly path: string;
  /** Name, value, name, value. */
  readonly headers: readonly string[];
}

/** The gateways and the connections to them. */
export class Upstream {
  readonly agents: Agents;
  readonly passthrough = new Passthrough();
  readonly #addresses = new WeakMap<Gateway, Addresses>();

  constructor(clock: Clock) {
    this.agents = new Agents(clock);
  }

  /**
   * @param body what is sent instead of the client's own body; null: the client's own, or none.
   * @param isFiltered something will be removed from the response.
   */
  request(call: Call, req: IncomingMessage, body: Buffer | null, isFiltered: boolean): UpstreamRequest {
    const { tool, gateway, key } = call;
    if (tool === null || gateway === null || key === null) throw new Error("the caller is not known yet");
    const address = this.#addressOf(gateway, call.path);
    const headers = requestHeaders({
      method: call.method,
      rawHeaders: req.rawHeaders,
      host: address.host,
      key,
      slot: keySlot(call.protocol, gateway, req.headers),
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
      path: upstreamPath(address, call.path),
      headers,
    };
  }

  #addressOf(gateway: Gateway, path: string): Address {
    let addresses = this.#addresses.get(gateway);
    if (addresses === undefined) {
      addresses = addressesOf(gateway);
      this.#addresses.set(gateway, addresses);
    }
    return addressFor(path, addresses);
  }
}
