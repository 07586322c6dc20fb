import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { advice } from "../core/advice.ts";
import { type Refusal, shuttingDown } from "../core/refusal.ts";
import { readBody } from "./body.ts";
import { Call, type Stop } from "./call.ts";
import { takeCapacity } from "./capacity.ts";
import type { ProxyDeps } from "./deps.ts";
import { forward } from "./exchange.ts";
import { logUnavailable } from "./failure.ts";
import { identify } from "./identify.ts";
import { NOTHING_SENT, type Outcome } from "./outcome.ts";
import { buildOpening } from "./records.ts";
import { settle } from "./settle.ts";
import { parserRefusal, writeRefusal, writeSocketRefusal } from "./write-refusal.ts";

/** Serves one request, from top to bottom. Whatever happens, the call is settled once. */
export async function serve(req: IncomingMessage, res: ServerResponse, deps: ProxyDeps): Promise<void> {
  const call = new Call(deps.heads.find(req, deps.snapshot()), deps.clock);
  // The outcome if a bug below throws; null: nothing is recorded.
  let outcome: Outcome | null = { ...NOTHING_SENT, end: "gateway-failed" };
  try {
    const stop =
      checkRequest(call, deps) ??
      findRoute(call, res) ??
      (await identify(call, req, deps)) ??
      (await readBody(call, req, res, deps.bodies)) ??
      (await takeCapacity(call, req.socket, deps)) ??
      (await openRecord(call, deps)) ??
      checkClient(req);
    if (stop === "answered") outcome = null;
    else if (stop !== null) outcome = stoppedBy(stop);
    else outcome = await forward(call, req, res, deps);
    if (outcome !== null && outcome.refusal !== null)
      outcome = { ...outcome, status: writeRefusal(req, res, outcome.refusal, call.protocol, call.id) };
  } finally {
    if (outcome !== null) settle(call, outcome, deps);
  }
}

export function checkRequest({ head }: Call, deps: ProxyDeps): Refusal | null {
  return head.refusal ?? (deps.isStopping() ? shuttingDown() : null);
}

function findRoute(call: Call, res: ServerResponse): Refusal | "answered" | null {
  const found = call.head.route;
  switch (found.kind) {
    case "gateway":
      call.setPath(found.path);
      return null;
    case "health":
      return answer(call, res, 200, TEXT, "ok\n");
    case "probe":
      return answer(call, res, 404, TEXT, "not found\n");
    case "page":
      return answer(call, res, 200, PAGE_HEADERS, PAGE);
    case "refused":
      return found.refusal;
  }
}

const TEXT = { "content-type": "text/plain" };

const PAGE_HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
};
const PAGE = `<!doctype html>
<html lang="en">
<title>keybearer</title>
<h1>keybearer</h1>
<p>This address is for programs: a tool sends its requests here, and keybearer passes them on to your model gateway.</p>
<p>To see your usage in the browser, type in a terminal: <code>${advice.open()}</code></p>
<p>To see the settings for a tool, type: <code>${advice.use("&lt;tool&gt;")}</code></p>
</html>
`;

function answer(
  call: Call,
  res: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  body: string,
): "answered" {
  res.writeHead(status, { ...headers, "x-keybearer-request-id": call.id });
  res.end(body);
  return "answered";
}

/** Writes the first half of the record. What cannot be recorded is not sent. */
export async function openRecord(call: Call, deps: ProxyDeps): Promise<Refusal | null> {
  const { journal, limiter } = deps;
  call.bringsId = call.gateway !== null && deps.takesCallIds(call.gateway);
  const opening = buildOpening(call);
  if (!(await journal.open(opening))) return logUnavailable(journal.state());
  call.opening = opening;
  limiter.recorded(call.lease, call.id);
  return null;
}

function checkClient({ socket }: IncomingMessage): "client-left" | null {
  return socket.destroyed ? "client-left" : null;
}

export function stoppedBy(stop: Stop): Outcome {
  return stop === "client-left" ? { ...NOTHING_SENT, end: stop } : { ...NOTHING_SENT, refusal: stop };
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
  const call = new Call(deps.heads.make({ headers: {}, rawHeaders: [] }, deps.snapshot()), deps.clock);
  const status = writeSocketRefusal(socket, refusal, call.protocol, call.id);
  // A connection that closes inside a head is not a request. Nothing is recorded.
  if (error.code !== "HPE_INVALID_EOF_STATE") settle(call, { ...NOTHING_SENT, status, refusal }, deps);
}
