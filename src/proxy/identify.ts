import { realpath } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import type { Tool } from "../config/schema.ts";
import type { ConnectionOwner } from "../core/process-lookup.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import { admit } from "../limits/admit.ts";
import type { Call, Stop } from "./call.ts";
import type { Identified } from "./credentials.ts";
import type { ProxyDeps } from "./deps.ts";
import { otherUser } from "./failure.ts";

/** Finds out which tool calls, and takes its key. null: the call may go on. */
export async function identify(call: Call, req: IncomingMessage, deps: ProxyDeps): Promise<Stop | null> {
  const stopped = await checkUser(req, deps);
  if (stopped !== null) return stopped;
  const caller = await findCaller(call, req, deps);
  if (!caller.ok) return caller.refusal;
  const others = caller.tool.owner === null ? null : await checkOwner(call, req, caller.tool, deps);
  const refusal = others ?? acceptCaller(call, caller, req.headers.origin, deps);
  // From here on the owner sees the call, and can cut it.
  if (refusal === null) {
    deps.inFlight.add(call, req.socket);
    lookUpProject(call, req, deps);
  }
  return refusal;
}

/** Of the owners of a system service, only one may call as a tool with `owner`. */
export async function checkOwner(
  { snapshot }: Call,
  { socket }: IncomingMessage,
  { name, owner }: Tool,
  { peers }: ProxyDeps,
): Promise<Refusal | null> {
  if (owner === null) return null;
  const uid = snapshot.config.owners.find((each) => each.name === owner)?.uid ?? null;
  // A person's own keybearer looks up no owner: the setting has no effect there.
  if (uid === null || (await peers.userOf(socket)) === uid) return null;
  return refuse("other-user", `tool ${name} is for the user ${owner} alone`);
}

/** Beside the request: its record has what is known when it ends. */
export function lookUpProject(call: Call, { socket }: IncomingMessage, { projects }: ProxyDeps): void {
  if (call.snapshot.config.usage.project !== "off") call.project = projects()?.of(socket) ?? null;
}

/** Only the user that runs keybearer may call, or an owner of the system service. Checked before any token. */
export async function checkUser(req: IncomingMessage, { peers, snapshot }: ProxyDeps): Promise<Stop | null> {
  const peer = await peers.of(req.socket);
  if (peer === "other-user") return otherUser(snapshot().config.owners);
  if (peer !== "gone") return null;
  req.socket.destroy();
  return "client-left";
}

/**
 * Finds the tool by its token and, for tools with `process`, by the program that owns the connection. With both, both must
 * match; with `process` alone the program is enough. That is weaker than a token: anything that can run the program can be
 * the tool.
 */
export async function findCaller(
  call: Call,
  req: IncomingMessage,
  { processLookup, tokenUses }: ProxyDeps,
): Promise<Identified> {
  const { snapshot } = call;
  const byToken = call.head.callerByToken(tokenUses);
  if (byToken.ok) {
    const { process, name } = byToken.tool;
    if (process === null) return byToken;
    const owner = await processLookup.of(req.socket);
    call.owner = owner;
    if (await isProgram(owner, process)) return { ...byToken, program: process };
    const message =
      `the token of tool ${name} came from ${owner?.program ?? "an unknown program"}, ` +
      `and tools.${name}.process allows only ${process}`;
    return { ok: false, refusal: refuse("token-unknown", message), anonymous: false };
  }
  const tools = snapshot.processTools.filter((tool) => tool.tokens.length === 0);
  if (!byToken.anonymous || tools.length === 0) return byToken;
  const owner = await processLookup.of(req.socket);
  call.owner = owner;
  for (const tool of tools) {
    if (tool.process !== null && (await isProgram(owner, tool.process)))
      return { ok: true, tool, program: tool.process, token: null };
  }
  return byToken;
}

async function isProgram(owner: ConnectionOwner | null, path: string): Promise<boolean> {
  if (owner === null) return false;
  return owner.program === (await realpath(path).catch(() => path));
}

export function acceptCaller(
  call: Call,
  { tool, program, token }: Extract<Identified, { ok: true }>,
  origin: string | undefined,
  { keyHealth, tokenUses }: ProxyDeps,
): Refusal | null {
  const { snapshot } = call;
  if (token !== null) {
    tokenUses.note(token.hash, call.startedAt);
    call.tokenName = token.name;
  }
  call.tool = tool;
  call.program = program;
  call.gateway = snapshot.gatewayOf(tool);
  // The guard checked only whether some tool allows this origin.
  if (origin !== undefined && !tool.allowOrigins.includes(origin)) {
    return refuse("browser-request", `tool ${tool.name} does not allow the origin of this request`);
  }
  const admitted = admit(tool, call.gateway, snapshot.keyOf(tool), call.startedAt);
  if (!admitted.ok) return admitted.refusal;
  const paused = keyHealth.admit(tool.name, admitted.key, call.id);
  // The record names the key, whether the request is sent or not.
  call.key = admitted.key;
  return paused;
}
