import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Snapshot } from "../config/snapshot.ts";
import type { Refusal } from "../refusal.ts";
import type { Secret } from "../secret.ts";
import { askForUsage, UsageFilter } from "./ask-usage.ts";
import { readBody } from "./body.ts";
import { Call } from "./call.ts";
import { takeCapacity } from "./capacity.ts";
import { exchange } from "./exchange.ts";
import { logUnavailable, shuttingDown } from "./failure.ts";
import { guard } from "./guard.ts";
import { type IdentifyDeps, identify } from "./identify.ts";
import { ResponseObserver } from "./observer.ts";
import { NOTHING_SENT, type Outcome } from "./outcome.ts";
import { openingOf, recordHead } from "./records.ts";
import { endpointOf, route } from "./routes.ts";
import { type SettleDeps, settle } from "./settle.ts";
import type { Upstream } from "./upstream.ts";
import { parserRefusal, writeRefusal, writeSocketRefusal } from "./write-refusal.ts";

/** What the request path needs. The daemon makes it. */
export interface ProxyDeps extends SettleDeps, IdentifyDeps {
  /** The configuration in force. */
  readonly snapshot: () => Snapshot;
  readonly upstream: Upstream;
  /** Every `host:port` under which tools may call. */
  readonly hosts: readonly string[];
  readonly isStopping: () => boolean;
  /** The gateway is the embedded sandbox, and responses say so. */
  readonly isSandbox: () => boolean;
}

/** Why a call does not go on. */
export type Stop = Refusal | "client-left";

/** Serves one request, from top to bottom. Whatever happens, the call is settled once. */
export async function serve(req: IncomingMessage, res: ServerResponse, deps: ProxyDeps): Promise<void> {
  const { method = "", url = "", headers } = req;
  const call = new Call({ method, target: url, headers }, deps.snapshot(), deps.clock);
  // What is settled if a bug in here throws.
  let outcome: Outcome = { ...NOTHING_SENT, end: "gateway-failed" };
  try {
    const stop =
      checkRequest(call, req, deps) ??
      findRoute(call, req, res) ??
      (await identify(call, req, deps)) ??
      (await readBody(call, req, res, deps.bodies)) ??
      (await takeCapacity(call, req.socket, deps)) ??
      (await openRecord(call, deps)) ??
      checkClient(req);
    if (stop === "answered") {
      // Neither recorded nor logged.
      call.isSettled = true;
      return;
    }
    outcome = stop === null ? await forward(call, req, res, deps) : stoppedBy(stop);
    const { refusal } = outcome;
    if (refusal !== null)
      outcome = { ...outcome, status: writeRefusal(req, res, refusal, call.protocol, call.id) };
  } finally {
    settle(call, outcome, deps);
  }
}

export function checkRequest(call: Call, req: IncomingMessage, deps: ProxyDeps): Refusal | null {
  const { method = "", url: target = "", rawHeaders } = req;
  const refusal = guard({ method, target, rawHeaders }, deps.hosts, call.snapshot.origins);
  return refusal ?? (deps.isStopping() ? shuttingDown() : null);
}

function findRoute(call: Call, req: IncomingMessage, res: ServerResponse): Refusal | "answered" | null {
  const found = route(call.method, req.url ?? "", req.headers.host ?? "");
  switch (found.kind) {
    case "gateway":
      call.setPath(found.path, endpointOf(found.path), found.token);
      return null;
    case "health":
      return answer(call, res, 200, "ok\n");
    case "probe":
      return answer(call, res, 404, "not found\n");
    case "refused":
      return found.refusal;
  }
}

function answer(call: Call, res: ServerResponse, status: number, text: string): "answered" {
  res.writeHead(status, { "content-type": "text/plain", "x-keybearer-request-id": call.id });
  res.end(text);
  return "answered";
}

/** Writes the first half of the record. What cannot be recorded is not sent. */
export async function openRecord(call: Call, deps: ProxyDeps): Promise<Refusal | null> {
  const opening = openingOf(call);
  if (!(await deps.journal.open(opening))) return logUnavailable(deps.journal.state());
  call.opening = opening;
  deps.limiter.recorded(call.lease, call.id);
  return null;
}

function checkClient({ socket }: IncomingMessage): "client-left" | null {
  return socket.destroyed ? "client-left" : null;
}

export function stoppedBy(stop: Stop): Outcome {
  return stop === "client-left" ? { ...NOTHING_SENT, end: stop } : { ...NOTHING_SENT, refusal: stop };
}

function forward(call: Call, req: IncomingMessage, res: ServerResponse, deps: ProxyDeps): Promise<Outcome> {
  const asking = usageAsked(call);
  const body = asking ?? call.body;
  // The exchange holds the body from here on, and lets go of it once it is sent.
  call.body = null;
  const request = deps.upstream.request(call, req, body, asking !== null);
  return exchange(req, res, request, {
    call,
    clock: deps.clock,
    passthrough: deps.upstream.passthrough,
    body,
    key: request.key,
    usageFilter: asking === null ? null : new UsageFilter(),
    ownHeaders: ownHeaders(call, deps),
    onBodySent: () => deps.bodies.release(call),
    observe: (response) => observe(call, response, request.key, deps),
  });
}

/** The body that also asks for the usage of a stream; null: the client's own is sent. */
function usageAsked({ tool, metering, body }: Call): Buffer | null {
  const isAsked = tool?.askUsage === true && (metering === "chat" || metering === "completions");
  return isAsked && body !== null ? askForUsage(body) : null;
}

/** keybearer's own headers on the response: name, value, name, value. */
export function ownHeaders(call: Call, { isSandbox, limiter }: ProxyDeps): string[] {
  const headers = ["x-keybearer-request-id", call.id];
  if (isSandbox()) headers.push("x-keybearer-sandbox", "1");
  if (call.tool !== null) limiter.rateHeaders(call.tool, headers);
  return headers;
}

export function observe(
  call: Call,
  response: IncomingMessage,
  key: Secret,
  deps: ProxyDeps,
): ResponseObserver {
  const observer = new ResponseObserver(response, {
    key,
    metering: call.metering,
    countText: call.text !== null,
    firstByteElapsed: deps.clock.elapsed(),
  });
  call.observer = observer;
  recordHead(call, response.statusCode ?? 0, observer.headIds(), deps);
  return observer;
}

/** Refuses bytes that are not a request, and records that. */
export function serveUnparsable(error: NodeJS.ErrnoException, socket: Duplex, deps: ProxyDeps): void {
  // It was answered, and still sends: closing the connection now would lose the answer.
  if (socket.writableEnded && !socket.destroyed) return;
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal = parserRefusal(error);
  const call = new Call({ method: "", target: "", headers: {} }, deps.snapshot(), deps.clock);
  const status = writeSocketRefusal(socket, refusal, call.protocol, call.id);
  // A connection that ended in the middle of a head is no request that somebody meant.
  if (error.code !== "HPE_INVALID_EOF_STATE") settle(call, { ...NOTHING_SENT, status, refusal }, deps);
}
