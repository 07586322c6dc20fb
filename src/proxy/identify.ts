import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../core/refusal.ts";
import { whoCalls } from "../identity/by-process.ts";
import { readCredentials } from "../identity/credential.ts";
import type { Identified } from "../identity/identify.ts";
import { admit } from "../limits/admit.ts";
import type { Call, Stop } from "./call.ts";
import type { ProxyDeps } from "./deps.ts";
import { otherUser } from "./failure.ts";

/** Finds out which tool calls, and takes its key. null: the call may go on. */
export async function identify(call: Call, req: IncomingMessage, deps: ProxyDeps): Promise<Stop | null> {
  const stopped = await checkUser(req, deps);
  if (stopped !== null) return stopped;
  const caller = await findCaller(call, req, deps);
  if (!caller.ok) return caller.refusal;
  const refusal = acceptCaller(call, caller, req.headers.origin, deps);
  // From here on the owner sees the call, and can cut it.
  if (refusal === null) deps.inFlight.add(call, req.socket);
  return refusal;
}

/** Only the user that runs keybearer may call. Checked before a token is looked at. */
export async function checkUser(req: IncomingMessage, { peers }: ProxyDeps): Promise<Stop | null> {
  const peer = await peers.of(req.socket);
  if (peer === "other-user") return otherUser();
  if (peer !== "gone") return null;
  req.socket.destroy();
  return "client-left";
}

export function findCaller(
  call: Call,
  req: IncomingMessage,
  { processLookup }: ProxyDeps,
): Promise<Identified> {
  const credentials = readCredentials(req.headers, call.tokenInPath);
  return whoCalls(call.snapshot, credentials, () => processLookup.of(req.socket));
}

export function acceptCaller(
  call: Call,
  { tool, program }: Extract<Identified, { ok: true }>,
  origin: string | undefined,
  { keyBreaker }: ProxyDeps,
): Refusal | null {
  const { snapshot } = call;
  call.tool = tool;
  call.program = program;
  call.gateway = snapshot.gatewayOf(tool);
  // The guard checked only whether some tool allows this origin.
  if (origin !== undefined && !tool.allowOrigins.includes(origin)) {
    return refuse("browser-request", `tool ${tool.name} does not allow the origin of this request`);
  }
  const admitted = admit(tool, call.gateway, snapshot.keyOf(tool), call.startedAt);
  if (!admitted.ok) return admitted.refusal;
  const paused = keyBreaker.admit(tool.name, admitted.key, call.id);
  // Its record names the key too, whether it is sent or not.
  call.key = admitted.key;
  return paused;
}
