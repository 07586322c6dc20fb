import type { IncomingMessage } from "node:http";
import type { Refusal } from "../refusal.ts";
import { askForUsage, readWhole } from "./ask-usage.ts";
import { type BodyHead, putBackHeld, readHead } from "./body-head.ts";
import type { Asking } from "./exchange.ts";
import { uploadStopped } from "./failure.ts";
import { meteringFor, type Request } from "./request.ts";
import { isJudged } from "./room.ts";
import { createUsageFilter } from "./usage-filter.ts";

const FILES = /^\/v1\/(?:files|uploads)(?:\/|$)/;
/** A longer request is sent as it is, without being asked for its usage. */
const MOST_ASKED = 16 * 1024 * 1024;

/** An upload whose parts name no model, and may be large. Nothing of it is read here. */
export function isFileUpload(endpoint: string): boolean {
  return FILES.test(endpoint);
}

/** Looks at the beginning of the body, so that the record can say which model was asked for. At once where it is there. */
export function readBody(req: IncomingMessage, request: Request): Refusal | null | Promise<Refusal | null> {
  const { endpoint, gateway, tool } = request;
  if (gateway === null || tool === null || isFileUpload(endpoint)) return null;
  const patience = gateway.timeouts.firstByte;
  const head = readHead(req, endpoint, { patience, toEnd: isJudged(tool, gateway.groups) });
  if (head instanceof Promise) return head.then((later) => noteHead(req, request, later, patience));
  return noteHead(req, request, head, patience);
}

function noteHead(req: IncomingMessage, request: Request, head: BodyHead, patience: number): Refusal | null {
  request.body = head;
  // What is whole goes to the gateway from here; what is not is read again, from its beginning.
  if (!head.over) putBackHeld(req, head);
  return head.end === "stalled" ? uploadStopped(patience) : null;
}

/** The request as it is sent for a tool with `ask_usage`; null: as the client sent it. At once where nobody asks. */
export function askingOf(req: IncomingMessage, request: Request): Asking | null | Promise<Asking | null> {
  const { gateway, tool } = request;
  if (gateway === null || tool?.askUsage !== true) return null;
  const metering = meteringFor(request);
  if (metering !== "chat" && metering !== "completions") return null;
  return askIn(req, request.body, gateway.timeouts.firstByte);
}

async function askIn(req: IncomingMessage, head: BodyHead | null, patience: number): Promise<Asking | null> {
  const whole = await readWhole(req, { most: MOST_ASKED, patience }, head);
  const body = whole === null ? null : askForUsage(whole);
  return body === null ? null : { body, filter: createUsageFilter() };
}

/** Takes the body out of what was read ahead, if that is all of it. null: it is still in the request. */
export function takeBody({ body }: Request): readonly Buffer[] | null {
  if (body === null || !body.over) return null;
  const { held } = body;
  body.held = null;
  return held ?? NOTHING;
}

const NOTHING: readonly Buffer[] = Object.freeze([]);
