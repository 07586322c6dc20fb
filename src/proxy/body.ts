import type { IncomingMessage } from "node:http";
import type { Refusal } from "../refusal.ts";
import { askForUsage, readWhole } from "./ask-usage.ts";
import { readHead } from "./body-head.ts";
import type { Asking } from "./exchange.ts";
import { uploadStopped } from "./failure.ts";
import { meteringFor, type Request } from "./request.ts";
import { isJudged } from "./room.ts";
import { createUsageFilter } from "./usage-filter.ts";

/** Uploads whose parts name no model, and may be large. */
const FILES = /^\/v1\/(?:files|uploads)(?:\/|$)/;
/** A longer request is sent as it is, without being asked for its usage. */
const MOST_ASKED = 16 * 1024 * 1024;

/** Looks at the beginning of the body, so that the record can say which model was asked for. */
export async function readBody(req: IncomingMessage, request: Request): Promise<Refusal | null> {
  const { endpoint, gateway, tool } = request;
  if (gateway === null || tool === null || FILES.test(endpoint)) return null;
  const patience = gateway.timeouts.firstByte;
  request.body = await readHead(req, endpoint, { patience, toEnd: isJudged(tool, gateway.groups) });
  return request.body.end === "stalled" ? uploadStopped(patience) : null;
}

/** The request as it is sent for a tool with `ask_usage`; null: as the client sent it. */
export async function askingOf(req: IncomingMessage, request: Request): Promise<Asking | null> {
  if (request.gateway === null || request.tool?.askUsage !== true) return null;
  const metering = meteringFor(request);
  if (metering !== "chat" && metering !== "completions") return null;
  const whole = await readWhole(req, { most: MOST_ASKED, patience: request.gateway.timeouts.firstByte });
  const body = whole === null ? null : askForUsage(whole);
  return body === null ? null : { body, filter: createUsageFilter() };
}
