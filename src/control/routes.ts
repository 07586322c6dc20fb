import type { IncomingMessage, ServerResponse } from "node:http";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Prober } from "../doctor/tool-probes.ts";
import type { Kind } from "../limits/counters.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import type { Actions } from "./actions.ts";
import { MIRROR_ROUTES } from "./mirror-routes.ts";
import { PROBE_ROUTES } from "./probe-routes.ts";
import { hasOnly, NOT_FOUND, type Route, TAKEN } from "./route.ts";
import { indexStatus, type Status } from "./status.ts";
import type { Tail } from "./tail.ts";
import type { LimitStatus } from "./tool-status.ts";

/** What the daemon lets its own command line ask. */
export interface Controls {
  status(): Promise<Status>;
  /** What is held for a tool or gateway, to be shown before the person says yes. */
  held(name: string): readonly HeldTool[] | null;
  trust(name: string, seen: readonly HeldTool[], peer: string): Promise<TrustAnswer>;
  /** Gives one extra allowance. null: there is no such tool. */
  lift(name: string, lift: AskedLift, peer: string): LiftAnswer | null;
  /** Ends a tool's requests under way. null: neither a tool nor a request under way has this name. */
  cut(name: string, peer: string): CutAnswer | null;
  /** Opens the dashboard's port, and lets whoever comes with this code in. Throws where it cannot. */
  open(peer: string): Promise<OpenAnswer>;
  readonly usage: Pick<UsageLog, "catchUp" | "rebuild">;
  readonly actions: Actions;
  readonly tail: Tail;
  readonly mirror: Pick<Mirror, keyof Mirror>;
  readonly prober: Pick<Prober, keyof Prober>;
}

/** The process that asks, as it says of itself. */
export const PEER_HEADER = "x-keybearer-peer";

export interface HeldTool {
  readonly tool: string;
  readonly what: string;
  readonly from: string;
  readonly to: string;
}

export interface TrustAnswer {
  readonly granted: readonly string[];
  readonly problems: readonly string[];
}

export interface AskedLift {
  readonly kind: Kind;
  /** Requests, tokens or micro-dollars: a whole number above zero. */
  readonly amount: number;
  /** It counts up to this moment; null: in the windows of now. */
  readonly until: number | null;
}

export interface LiftAnswer {
  readonly tool: string;
  /** All limits of the tool as they are now. */
  readonly levels: readonly LimitStatus[];
  /** Why nothing was given; null when it was. */
  readonly problem: string | null;
}

export interface OpenAnswer {
  /** http://localhost:5398/ */
  readonly url: string;
  /** Good once; belongs behind the address: #code=… */
  readonly code: string;
  /** Whole seconds. */
  readonly expires_in: number;
}

export interface CutAnswer {
  readonly cut: number;
}

const ROUTES: Readonly<Record<string, Route>> = {
  ...MIRROR_ROUTES,
  ...PROBE_ROUTES,
  "GET /status": (controls) => controls.status(),
  "GET /held/:name": (controls, { name }) => controls.held(name) ?? NOT_FOUND,
  "POST /trust/:name": async (controls, { name, body, peer }) => {
    if (!isSeen(body)) throw new HttpError(400, "say what was seen: a list of tool, what, from and to");
    const answer = await controls.trust(name, body, peer);
    for (const granted of answer.granted) controls.actions.note(`trusted ${granted}`);
    return answer;
  },
  "POST /lift/:name": (controls, { name, body, peer }) => {
    if (!isLift(body)) throw new HttpError(400, LIFT_BODY);
    const answer = controls.lift(name, body, peer);
    if (answer === null) return NOT_FOUND;
    if (answer.problem === null) {
      const amount = body.kind === "spend" ? `$${body.amount / 1e6}` : `${body.amount} ${body.kind}`;
      controls.actions.note(`gave tool ${name} an extra allowance of ${amount}`);
    }
    return answer;
  },
  "POST /cut/:name": (controls, { name, body, peer }) => {
    if (!hasOnly(body, [])) throw new HttpError(400, "cut takes no settings: send {}");
    // A tool that was removed a moment ago is none any more: that nothing of it runs is what was wanted.
    return controls.cut(name, peer) ?? { cut: 0 };
  },
  "POST /open": (controls, { body, peer }) => {
    if (!hasOnly(body, [])) throw new HttpError(400, "open takes no settings: send {}");
    return controls.open(peer);
  },
  "POST /index": async (controls, { body }) => {
    if (!hasOnly(body, [])) throw new HttpError(400, "index takes no settings: send {}");
    return indexStatus(await controls.usage.catchUp());
  },
  "POST /rebuild": async (controls, { body }) => {
    if (!hasOnly(body, [])) throw new HttpError(400, "rebuild takes no settings: send {}");
    return indexStatus(await controls.usage.rebuild());
  },
  "GET /tail": (controls, { res }) => {
    controls.tail.follow(res);
    return TAKEN;
  },
};

const MOST_BODY = 64 * 1024;

function isSeen(body: unknown): body is HeldTool[] {
  const fields = ["tool", "what", "from", "to"];
  const isText = (value: unknown) => typeof value === "string";
  return (
    Array.isArray(body) &&
    body.every((item) => item instanceof Object && fields.every((field) => isText(item[field])))
  );
}

const LIFT_BODY =
  "say what to lift: kind (requests, tokens or spend), amount (a whole number above zero) and until (milliseconds, or null)";

function isLift(body: unknown): body is AskedLift {
  if (!hasOnly(body, ["kind", "amount", "until"])) return false;
  const { kind, amount, until } = body;
  return (
    (kind === "requests" || kind === "tokens" || kind === "spend") &&
    isAmount(amount) &&
    (until === null || isAmount(until))
  );
}

function isAmount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

/** The socket is 0600 in a 0700 folder, and no browser can open it; a request that looks like one is refused anyway. */
export async function answerControl(
  req: IncomingMessage,
  res: ServerResponse,
  controls: Controls,
  log: Logger,
): Promise<void> {
  try {
    const answer = await answerOf(req, res, controls);
    if (answer !== TAKEN) send(res, 200, answer);
  } catch (error) {
    if (error instanceof HttpError) return send(res, error.status, { error: error.message });
    log.error({ err: error, method: req.method, path: req.url }, "a control request failed inside keybearer");
    send(res, 500, { error: "this failed inside keybearer; its log says why" });
  }
}

async function answerOf(req: IncomingMessage, res: ServerResponse, controls: Controls): Promise<unknown> {
  if (req.headers.origin !== undefined || req.headers.referer !== undefined)
    throw new HttpError(403, "not for browsers");
  const [, first = "", encoded = ""] = /^\/([a-z]+)(?:\/([^/?]+))?$/.exec(req.url ?? "") ?? [];
  const route = ROUTES[`${req.method} /${first}${encoded === "" ? "" : "/:name"}`];
  if (route === undefined) throw new HttpError(404, "no such control");
  const name = decodeName(encoded);
  const body = req.method === "POST" ? parseJson(await readBody(req)) : null;
  const said = req.headers[PEER_HEADER];
  const peer = typeof said === "string" && /^\d{1,10}$/.test(said) ? `pid ${said}, as it says` : "unknown";
  const answer = await route(controls, { name, body, peer, res });
  if (answer === NOT_FOUND) throw new HttpError(404, `there is no ${named(first)} ${name}`);
  return answer;
}

function send(res: ServerResponse, status: number, value: unknown): void {
  if (res.headersSent) {
    // It failed in the middle of an answer.
    res.destroy();
    return;
  }
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(value));
}

function decodeName(encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    throw new HttpError(400, "the name in the address is not encoded as UTF-8");
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new HttpError(400, "the body is not JSON");
  }
}

/** Trust is of a gateway too, an allowance only of a tool, a login of a console. */
function named(route: string): string {
  if (route === "lift" || route === "models") return "tool";
  return route === "login" || route === "sync" ? "gateway with a console called" : "tool or gateway";
}

async function readBody(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of req as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MOST_BODY) break;
      chunks.push(chunk);
    }
  } catch {
    throw new HttpError(400, "the request was cut off");
  }
  if (size > MOST_BODY) throw new HttpError(413, "the request is too large");
  return Buffer.concat(chunks).toString("utf8");
}
