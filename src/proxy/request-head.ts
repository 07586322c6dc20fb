import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Gateway } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Protocol, Refusal } from "../core/refusal.ts";
import type { Secret } from "../core/secret.ts";
import { findMetering, type Metering } from "../metering/protocols.ts";
import { modelInPath } from "../metering/request.ts";
import type { Address } from "./address.ts";
import { type Identified, identifyByToken, readCredentials } from "./credentials.ts";
import { guard } from "./guard.ts";
import { isName } from "./headers.ts";
import { loggableEndpoint, loggableModel, loggableUserAgent } from "./loggable.ts";
import { detectProtocol, type Route, readEndpoint, route } from "./routes.ts";
import { readSession } from "./session.ts";
import type { TokenUses } from "./token-uses.ts";

/** A head as it goes to a gateway. */
export interface OutgoingHead {
  readonly gateway: Gateway;
  readonly key: Secret;
  /** The response must come uncompressed. */
  readonly needsUncompressed: boolean;
  readonly address: Address;
  /** Name, value, name, value. The content-length is that of the request it was made for. */
  readonly headers: readonly string[];
}

type RequestParts = Pick<IncomingMessage, "method" | "url" | "headers" | "rawHeaders">;

/**
 * The head of a request, and what it decides by itself under one configuration. Each part is determined when it is first
 * needed, and kept for the next request: see HeadCache.
 */
export class RequestHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** The content-length may be an earlier request's. */
  readonly headers: IncomingHttpHeaders;
  /** Name, value, name, value: before Node joins or drops duplicates. The content-length may be an earlier request's. */
  readonly rawHeaders: readonly string[];
  readonly snapshot: Snapshot;
  /** The protocol in which the client expects its answer. */
  readonly protocol: Protocol;
  readonly #hosts: readonly string[];
  #refusal: Refusal | null | undefined;
  #route: Route | undefined;
  #caller: Identified | undefined;
  #metering: Metering | null | undefined;
  #endpoint: string | undefined;
  #loggedEndpoint: string | undefined;
  #userAgent: string | null | undefined;
  #session: string | null | undefined;
  #modelInPath: string | null | undefined;
  /** Private, so that nothing prints it: the key is in its headers. */
  #outgoing: OutgoingHead | null = null;
  /** The last model that a request with this head named, and as it may be recorded. */
  #model: string | null = null;
  #loggedModel: string | null = null;

  /** @param hosts every `host:port` under which tools may call. */
  constructor(
    { method = "", url = "", headers, rawHeaders }: RequestParts,
    snapshot: Snapshot,
    hosts: readonly string[],
  ) {
    this.method = method;
    this.target = url;
    this.headers = headers;
    this.rawHeaders = rawHeaders;
    this.snapshot = snapshot;
    this.protocol = detectProtocol(url, headers);
    this.#hosts = hosts;
  }

  /** Why a request with this head is refused before its caller is known; null: it is not. */
  get refusal(): Refusal | null {
    if (this.#refusal === undefined) this.#refusal = guard(this, this.#hosts, this.snapshot.origins);
    return this.#refusal;
  }

  get route(): Route {
    this.#route ??= route(this.method, this.target, this.headers.host ?? "");
    return this.#route;
  }

  /** The path without query and without anything that looks like a key. Steps compare it. */
  get endpoint(): string {
    this.#endpoint ??= this.route.kind === "gateway" ? readEndpoint(this.route.path) : "";
    return this.#endpoint;
  }

  /** What is billed there; null: nothing by tokens. */
  get metering(): Metering | null {
    if (this.#metering === undefined) this.#metering = findMetering(this.method, this.endpoint);
    return this.#metering;
  }

  /** The endpoint as it is recorded: also without tokens and configured keys. */
  get loggedEndpoint(): string {
    this.#loggedEndpoint ??= loggableEndpoint(this.endpoint, this.snapshot);
    return this.#loggedEndpoint;
  }

  /** As it may be recorded; null: there is none, or it may not. */
  get userAgent(): string | null {
    if (this.#userAgent === undefined) {
      const text = this.headers["user-agent"];
      this.#userAgent = text === undefined ? null : loggableUserAgent(text, this.snapshot);
    }
    return this.#userAgent;
  }

  /** The session that the client names, as it may be recorded; null: none. */
  get session(): string | null {
    if (this.#session === undefined) this.#session = readSession(this.headers, this.snapshot);
    return this.#session;
  }

  /** null: the path names none. */
  get modelInPath(): string | null {
    if (this.#modelInPath === undefined) this.#modelInPath = modelInPath(this.endpoint);
    return this.#modelInPath;
  }

  /** A model that a request with this head names, as it may be recorded. They mostly name the same one. */
  loggedModel(name: string | null): string | null {
    if (name !== this.#model) {
      this.#loggedModel = loggableModel(name, this.snapshot);
      this.#model = name;
    }
    return this.#loggedModel;
  }

  /** The tool of the token. A refusal is not kept: it says when the token was revoked. */
  callerByToken(tokenUses: Pick<TokenUses, "revokedAt">): Identified {
    if (this.#caller !== undefined) return this.#caller;
    const token = this.route.kind === "gateway" ? this.route.token : null;
    const caller = identifyByToken(this.snapshot, readCredentials(this.headers, token), tokenUses);
    if (caller.ok) this.#caller = caller;
    return caller;
  }

  /** As it was last sent to a gateway; null: it was not. */
  get outgoing(): OutgoingHead | null {
    return this.#outgoing;
  }

  keepOutgoing(outgoing: OutgoingHead): void {
    this.#outgoing = outgoing;
  }

  /** Whether a request under this configuration has this head. Nothing here depends on the value of content-length. */
  matches(req: RequestParts, snapshot: Snapshot): boolean {
    const { rawHeaders } = this;
    const others = req.rawHeaders;
    if (snapshot !== this.snapshot || req.method !== this.method || req.url !== this.target) return false;
    if (others.length !== rawHeaders.length) return false;
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i] ?? "";
      if (others[i] !== name) return false;
      if (others[i + 1] !== rawHeaders[i + 1] && !isName(name, "content-length")) return false;
    }
    return true;
  }
}

/**
 * The last head of each connection. A client repeats its head on a connection that it keeps, all but the content-length. What
 * the head decides is then known, which saves about 50 µs of CPU per request (http-proxy-3 takes 190 in all).
 */
export class HeadCache {
  readonly #hosts: readonly string[];
  readonly #last = new WeakMap<Socket, RequestHead>();

  constructor(hosts: readonly string[]) {
    this.#hosts = hosts;
  }

  find(req: IncomingMessage, snapshot: Snapshot): RequestHead {
    const last = this.#last.get(req.socket);
    if (last?.matches(req, snapshot)) return last;
    const head = this.make(req, snapshot);
    this.#last.set(req.socket, head);
    return head;
  }

  /** One that is not remembered. */
  make(req: RequestParts, snapshot: Snapshot): RequestHead {
    return new RequestHead(req, snapshot, this.#hosts);
  }
}
