import type { IncomingMessage } from "node:http";
import type { Clock } from "../clock.ts";
import type { Gateway, Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { admit } from "../limits/admit.ts";
import { type Protocol, type Refusal, refuse } from "../refusal.ts";
import { requestId } from "../request-id.ts";
import type { Secret } from "../secret.ts";
import type { RequestHead } from "./guard.ts";
import { protocolOf } from "./route.ts";

/** What is known of a request while it is served. Filled in step by step, settled once. */
export interface Request {
  readonly id: string;
  readonly startedAt: number;
  readonly startedElapsed: number;
  readonly method: string;
  readonly protocol: Protocol;
  /** The path without query and without a token. Empty until it is known to hold none. */
  endpoint: string;
  tool: Tool | null;
  gateway: Gateway | null;
  key: Secret | null;
}

export function openRequest(req: IncomingMessage, clock: Clock): Request {
  const startedAt = clock.now();
  return {
    id: requestId(startedAt),
    startedAt,
    startedElapsed: clock.elapsed(),
    method: req.method ?? "",
    protocol: protocolOf(req.url ?? "", req.headers),
    endpoint: "",
    tool: null,
    gateway: null,
    key: null,
  };
}

export function headOf({ method = "", url: target = "", rawHeaders }: IncomingMessage): RequestHead {
  return { method, target, rawHeaders };
}

/** Notes whose request it is, and takes the key for it; or says why not. */
export function letIn(
  request: Request,
  tool: Tool,
  snapshot: Snapshot,
  origin: string | undefined,
): Refusal | null {
  request.tool = tool;
  request.gateway = snapshot.gatewayOf(tool);
  // The guard only knew that some tool allows this origin.
  if (origin !== undefined && !tool.allowOrigins.includes(origin)) {
    return refuse("browser-request", `tool ${tool.name} does not allow the origin of this request`);
  }
  const admitted = admit(tool, request.gateway, snapshot.keyOf(tool), request.startedAt);
  if (!admitted.ok) return admitted.refusal;
  request.key = admitted.key;
  return null;
}
