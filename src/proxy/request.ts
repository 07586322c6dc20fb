import type { IncomingMessage } from "node:http";
import type { Clock } from "../clock.ts";
import type { Gateway, Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { admit } from "../limits/admit.ts";
import type { Lease } from "../limits/limiter.ts";
import { RequestText } from "../metering/estimate.ts";
import { type Metering, meteringOf } from "../metering/protocols.ts";
import { type Protocol, type Refusal, refuse } from "../refusal.ts";
import { requestId } from "../request-id.ts";
import type { Secret } from "../secret.ts";
import type { Opening } from "../usage/record.ts";
import type { BodyHead } from "./body-head.ts";
import type { RequestHead } from "./guard.ts";
import type { Hearing } from "./hearing.ts";
import { protocolOf } from "./route.ts";
import type { Destroyable } from "./running.ts";

/** What is known of a request while it is served. Filled in step by step, settled once. */
export interface Request {
  readonly id: string;
  readonly startedAt: number;
  readonly startedElapsed: number;
  readonly method: string;
  readonly protocol: Protocol;
  /** The configuration it began with and finishes on. */
  readonly snapshot: Snapshot;
  /** The path without query and without a token. Empty until it is known to hold none. */
  endpoint: string;
  /** What is asked for there; undefined: nobody wanted to know yet. See meteringFor. */
  metering: Metering | null | undefined;
  tool: Tool | null;
  gateway: Gateway | null;
  key: Secret | null;
  /** The program that owns the connection, where it was looked for. */
  program: string | null;
  /** What its body told so far; null until the body is looked at. */
  body: BodyHead | null;
  /** What it holds of the memory for bodies. */
  bufferedBytes: number;
  /** Its text, counted for a tool with `estimate`; else null. */
  text: RequestText | null;
  /** What is held for it under the tool's limits. */
  lease: Lease | null;
  /** How long it waited for room under them. */
  waitedMs: number;
  /** It waits for that now. */
  waiting: boolean;
  /** Listens to the gateway's answer, once there is one. */
  hearing: Hearing | null;
  /** Over which it came; null until it is let in. */
  connection: Destroyable | null;
  /** The owner, or the end of the daemon, cut it. */
  cut: boolean;
  settled: boolean;
  /** What was written down before it was sent. */
  opening: Opening | null;
  /** The name of a model that was last made harmless, and what became of it: the same one is asked for again and again. */
  shownModel: { readonly name: string; readonly shown: string } | null;
  /** It has a record that waits to be completed. */
  recorded: boolean;
}

/** As much of a request as there is before it is looked at. */
export type Arrival = Pick<IncomingMessage, "method" | "url" | "headers">;

export function openRequest(req: Arrival, snapshot: Snapshot, clock: Clock): Request {
  const startedAt = clock.now();
  return {
    id: requestId(startedAt),
    startedAt,
    startedElapsed: clock.elapsed(),
    method: req.method ?? "",
    protocol: protocolOf(req.url ?? "", req.headers),
    snapshot,
    endpoint: "",
    metering: undefined,
    tool: null,
    gateway: null,
    key: null,
    program: null,
    body: null,
    bufferedBytes: 0,
    text: null,
    lease: null,
    waitedMs: 0,
    waiting: false,
    hearing: null,
    connection: null,
    cut: false,
    settled: false,
    recorded: false,
    opening: null,
    shownModel: null,
  };
}

/** Worked out once: several steps ask for it. */
export function meteringFor(request: Request): Metering | null {
  if (request.metering === undefined) request.metering = meteringOf(request.method, request.endpoint);
  return request.metering;
}

export function headOf({ method = "", url: target = "", rawHeaders }: IncomingMessage): RequestHead {
  return { method, target, rawHeaders };
}

/** Notes whose request it is, and takes the key for it; or says why not. */
export function letIn(
  request: Request,
  { tool, program }: { readonly tool: Tool; readonly program: string | null },
  origin: string | undefined,
): Refusal | null {
  const { snapshot } = request;
  request.tool = tool;
  request.program = program;
  request.gateway = snapshot.gatewayOf(tool);
  // The guard only knew that some tool allows this origin.
  if (origin !== undefined && !tool.allowOrigins.includes(origin)) {
    return refuse("browser-request", `tool ${tool.name} does not allow the origin of this request`);
  }
  const admitted = admit(tool, request.gateway, snapshot.keyOf(tool), request.startedAt);
  if (!admitted.ok) return admitted.refusal;
  request.key = admitted.key;
  if (tool.estimate) request.text = new RequestText();
  return null;
}
