import type { Gateway, Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import { requestId } from "../core/ids.ts";
import type { ConnectionOwner } from "../core/process-lookup.ts";
import type { Protocol, Refusal } from "../core/refusal.ts";
import type { Secret } from "../core/secret.ts";
import type { Lease } from "../limits/limiter.ts";
import type { Chunks } from "../metering/chunks.ts";
import type { TextBytes } from "../metering/estimate.ts";
import type { Metering } from "../metering/protocols.ts";
import { NOTHING_READ, type RequestFields } from "../metering/request.ts";
import type { Opening } from "../usage/record.ts";
import type { ResponseObserver } from "./observer.ts";
import type { CallerProject } from "./projects.ts";
import type { RequestHead } from "./request-head.ts";

/** Why a call does not go on. */
export type Stop = Refusal | "client-left";

/** One request of a tool, from its head to its record. The steps of the pipeline fill it in. */
export class Call {
  readonly id: string;
  /** Wall clock and monotonic clock. */
  readonly startedAt: number;
  readonly startedElapsed: number;
  readonly method: string;
  /** The protocol in which the client expects its answer. */
  readonly protocol: Protocol;
  readonly head: RequestHead;
  /** The configuration when it began. Later saves do not affect it. */
  readonly snapshot: Snapshot;

  /** The request target without a token in front of it. Empty until it is routed. */
  path = "";
  /** The path without query and without anything that looks like a key. */
  endpoint = "";
  /** What is billed there; null: nothing by tokens. */
  metering: Metering | null = null;

  /** Set when the caller is known. */
  tool: Tool | null = null;
  gateway: Gateway | null = null;
  key: Secret | null = null;
  /** The name of the token that it showed; null: none. */
  tokenName: string | null = null;
  /** The program that owns the connection, if some tool asks for it. */
  program: string | null = null;
  /** The process of the connection, if some tool asks for its program. */
  owner: ConnectionOwner | null = null;
  /** Where that process works, as far as it is known; null: `usage.project` is off. */
  project: CallerProject | null = null;

  /** The whole body; null: there is none, or it passes unread. */
  body: Chunks | null = null;
  /** The request has a body that is not read here. */
  passesUnread = false;
  /** Bytes of the body that arrived, and those that are in memory. */
  bytesIn = 0;
  bufferedBytes = 0;
  fields: RequestFields = NOTHING_READ;
  /** The text of the request, counted for a tool with `estimate`. */
  text: TextBytes | null = null;
  /** The model asked for, as it may be logged. */
  model: string | null = null;

  /** It is sent with its own id: see CALL_ID_HEADER. */
  bringsId = false;

  /** What the tool's limits hold for it. */
  lease: Lease | null = null;
  /** How long it waited for capacity. */
  waitedMs = 0;
  /** It waits now, for capacity or for its gateway. */
  isWaiting = false;

  /** The first half of its record, once it is written. */
  opening: Opening | null = null;
  /** When there was a connection to the gateway; null: nothing can have been sent. */
  sentAt: number | null = null;
  /** Reads the gateway's response, once there is one. */
  observer: ResponseObserver | null = null;
  /** The owner canceled it, or the daemon stopped. */
  isCanceled = false;
  isSettled = false;

  constructor(head: RequestHead, clock: Clock) {
    this.startedAt = clock.now();
    this.startedElapsed = clock.elapsed();
    this.id = requestId(this.startedAt);
    this.head = head;
    this.method = head.method;
    this.protocol = head.protocol;
    this.snapshot = head.snapshot;
  }

  /** It goes to a gateway. @param path the request target without a token in front of it. */
  setPath(path: string): void {
    this.path = path;
    this.endpoint = this.head.endpoint;
    this.metering = this.head.metering;
  }

  /** The group's factor on the list price. */
  get multiplier(): number {
    const group = this.tool?.group ?? null;
    return group === null ? 1 : (this.gateway?.groups[group]?.multiplier ?? 1);
  }

  /** The models of the tool's group; null: any. */
  get allowedModels(): readonly string[] | null {
    const group = this.tool?.group ?? null;
    const models = group === null ? undefined : this.gateway?.groups[group]?.models;
    return models === undefined || models.includes("*") ? null : models;
  }

  /** Whether the tool has a limit on tokens or money. */
  get limitsUse(): boolean {
    const { tool } = this;
    if (tool === null) return false;
    const { tokens, spend, session } = tool.limits;
    if (tokens.length > 0 || spend.length > 0 || tool.quota !== null) return true;
    return session !== null && (session.tokens !== null || session.spend !== null);
  }

  /** Whether the tool's limits depend on the body: on its model, or on how much it asks for. */
  get limitsNeedBody(): boolean {
    return this.limitsUse || this.allowedModels !== null;
  }
}
