import type { IncomingMessage, ServerResponse } from "node:http";
import { problemInLine } from "../config/problems.ts";
import { hasOnly, isText, isTextOrNull, parseRoute, readJson } from "../control/body.ts";
import { REACH } from "../control/reach.ts";
import { HANDLED, newestEvents } from "../control/routes.ts";
import { errorMessage, HttpError } from "../core/errors.ts";
import { throttledLog } from "../core/throttled-log.ts";
import type { PlanDeps } from "./actions/action.ts";
import { planAction } from "./actions/actions.ts";
import type { WaitingActions } from "./actions/waiting.ts";
import type { PlanAnswer, Proof, RunAnswer } from "./api.ts";
import { readBill, readMirror } from "./bill.ts";
import type { Bookmarks } from "./bookmarks/bookmarks.ts";
import type { DashboardDeps } from "./deps.ts";
import { failure } from "./failure.ts";
import { LiveEvents } from "./live.ts";
import { NowView } from "./now.ts";
import type { Sessions } from "./sessions.ts";
import { readTool } from "./tools.ts";
import { UsageQuestions } from "./usage-api.ts";

const MAX_EVENTS = 300;

interface Asked {
  readonly api: Api;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** The value of :name. */
  readonly name: string;
  readonly query: URLSearchParams;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
}

/** Answers the JSON value of the response, or HANDLED if it has written that itself. Throws an HttpError. */
type Route = (asked: Asked) => unknown;

/** Who asks these has no session yet. */
const WITHOUT_SESSION: Readonly<Record<string, Route>> = {
  "POST /api/session": startSession,
  "POST /api/challenge": async ({ api, req }) => {
    const body = await readPost(req);
    if (!hasOnly(body, ["public_key"]) || !isText(body.public_key))
      throw new HttpError(400, "send public_key (a text)");
    return { challenge: api.bookmarks.challenge(body.public_key, originOf(req)) };
  },
};

/** What the page can ask. Whatever it changes is planned first: see actions/. */
const ROUTES: Readonly<Record<string, Route>> = {
  "GET /api/now": ({ api }) => api.view.read(),
  "GET /api/events": ({ api, res }) => {
    api.live.follow(res);
    return HANDLED;
  },
  "GET /api/usage": ({ api, query, signal }) => api.usage.chart(query, api.deps.clock.now(), signal),
  "GET /api/records": ({ api, query, signal }) => api.usage.page(query, signal),
  "GET /api/records/:name": readRecord,
  "GET /api/csv": async ({ api, query, res, signal }) => {
    await api.usage.download(query, res, signal);
    return HANDLED;
  },
  "GET /api/tools/:name": ({ api, name, signal }) => readTool(api.deps, name, api.usage.ask, signal),
  "GET /api/models/:name": readModels,
  "GET /api/history": ({ api }) => newestEvents(api.deps.controls(), MAX_EVENTS),
  "GET /api/browsers": ({ api }) => api.bookmarks.list(),
  "GET /api/mirror": ({ api }) => readMirror(api.deps.controls().mirror),
  "GET /api/bill": ({ api, query, signal }) =>
    readBill(query.get("month") ?? "", api.deps, api.usage, signal),
  "POST /api/plan": async ({ api, req }): Promise<PlanAnswer> => {
    const plan = await planAction(planDeps(api, originOf(req)), await readPost(req));
    const { what, change, diff, undo } = plan;
    const id = api.waiting.add(plan, bearerToken(req) ?? "");
    return { id, what, diff, undo, needs_digits: change === "widens" };
  },
  "POST /api/run": runPlan,
};

export class Api {
  readonly deps: DashboardDeps;
  readonly sessions: Sessions;
  readonly waiting: WaitingActions;
  readonly bookmarks: Bookmarks;
  readonly usage: UsageQuestions;
  readonly view: NowView;
  readonly live: LiveEvents;
  readonly logAttempt: (message: string) => void;

  constructor(deps: DashboardDeps, sessions: Sessions, waiting: WaitingActions, bookmarks: Bookmarks) {
    this.deps = deps;
    this.sessions = sessions;
    this.waiting = waiting;
    this.bookmarks = bookmarks;
    this.usage = new UsageQuestions(deps.usage.ask);
    this.view = new NowView(deps, this.usage.ask);
    this.live = new LiveEvents(this.view, deps.clock, deps.log);
    this.logAttempt = throttledLog(deps.log);
  }

  /** Answers as a Route does. */
  async answer(req: IncomingMessage, res: ServerResponse): Promise<unknown> {
    const [path = "", search = ""] = (req.url ?? "").split("?", 2);
    const { route, name } = parseRoute(req.method, path);
    const gone = new AbortController();
    res.once("close", () => gone.abort());
    const asked = { api: this, req, res, name, query: new URLSearchParams(search), signal: gone.signal };
    // Checked before the code, so that another user who has read it cannot even use it up. Requests with a token are
    // checked, too: while the daemon restarts, its port is free, and a page may send its token to another program there.
    if ((await this.deps.peers.of(req.socket)) !== "ours") {
      this.logAttempt("the dashboard refused another user of this machine");
      throw failure(403, "other-user");
    }
    const open = Object.hasOwn(WITHOUT_SESSION, route) ? WITHOUT_SESSION[route] : undefined;
    if (open !== undefined) return open(asked);
    // What it reads must not come after its session. An action still gets the answer to its own revocation.
    const cut = () => (req.method === "GET" || res.headersSent ? res.destroy() : undefined);
    const end = this.sessions.begin(bearerToken(req) ?? "", cut);
    if (end === null) throw failure(401, "no-session");
    // The client may be gone by now.
    if (gone.signal.aborted) end();
    else res.once("close", end);
    // A route that the table of what routes can do does not have is not served.
    const serve = Object.hasOwn(ROUTES, route) && Object.hasOwn(REACH, route) ? ROUTES[route] : undefined;
    if (serve === undefined) throw new HttpError(404, "there is nothing here");
    return serve(asked);
  }
}

/** Exchanges the code, or a remembered browser's signature, for a session. */
async function startSession({ api, req }: Asked): Promise<{ token: string }> {
  const { sessions, bookmarks, logAttempt } = api;
  const body = await readPost(req);
  if (isProof(body)) {
    const token = bookmarks.exchange(body, originOf(req));
    if (token !== null) return { token };
    logAttempt("a browser's signature for the dashboard did not hold");
    throw failure(401, "wrong-signature");
  }
  if (!hasOnly(body, ["code"]) || !isText(body.code)) throw new HttpError(400, "send the code");
  const token = sessions.exchange(body.code);
  if (token !== null) return { token };
  logAttempt("a browser sent the dashboard a wrong or expired code");
  throw failure(401, "code-over");
}

export type RecordAnswer = Awaited<ReturnType<typeof readRecord>>;

/** A record with its console row; null: there is no console, or no row yet. */
async function readRecord({ api, name, signal }: Asked) {
  const found = await api.usage.record(name, signal);
  const rows = api.deps.controls().mirror.compared(name);
  return { ...found, compared: rows.find((row) => row.record?.id === name) ?? null };
}

export type ModelsAnswer = Awaited<ReturnType<typeof readModels>>;

/** Asks the gateway, which may take seconds. null: the tool is disabled. */
async function readModels({ api, name }: Asked) {
  const models = await api.deps.controls().prober.models(name);
  if (models === null) throw new HttpError(404, `there is no tool ${name}`);
  return { models: models[0] ?? null };
}

function isProof(body: unknown): body is Proof & Record<string, unknown> {
  return hasOnly(body, ["public_key", "challenge", "signature"]) && Object.values(body).every(isText);
}

/** Does what was planned. What widens needs the digits that `keybearer confirm` printed for it. */
async function runPlan({ api, req }: Asked): Promise<RunAnswer> {
  const body = await readPost(req);
  if (!hasOnly(body, ["id", "digits"]) || !isText(body.id) || !isTextOrNull(body.digits))
    throw new HttpError(400, "send id, and digits (a text, or null)");
  const { plan, end } = api.waiting.take(body.id, bearerToken(req) ?? "", body.digits);
  const { what, change, undo } = plan;
  const { log } = api.deps;
  try {
    const { note = null, token = null } = await plan.run();
    log.warn({ change }, `dashboard: ${what}`);
    end({ state: "done", what, next: undo, token });
    return { undo, note };
  } catch (error) {
    const problem = errorMessage(error);
    log.warn({ change }, `dashboard: could not ${what}: ${problem}`);
    end({ state: "failed", what: problem, next: null, token: null });
    throw error;
  }
}

function planDeps({ deps, bookmarks }: Api, origin: string): PlanDeps {
  const refresh = async () => {
    await deps.reload.refresh(false);
    const problem = deps.reload.problems.find(({ severity }) => severity === "error");
    return problem === undefined ? null : problemInLine(problem);
  };
  return { ...deps, controls: deps.controls(), bookmarks, origin, refresh };
}

/**
 * The body of a POST. It must be application/json: a page of another origin cannot send that without a preflight request,
 * which is never answered. Throws an HttpError.
 */
async function readPost(req: IncomingMessage): Promise<unknown> {
  if (!/^application\/json\s*(?:;|$)/i.test(req.headers["content-type"] ?? ""))
    throw new HttpError(415, "send application/json");
  return readJson(req);
}

/** The guard has checked the host, and that an Origin header names the same. */
function originOf({ headers }: IncomingMessage): string {
  return `http://${(headers.host ?? "").toLowerCase()}`;
}

function bearerToken({ headers }: IncomingMessage): string | null {
  return /^Bearer ([\w-]{1,200})$/.exec(headers.authorization ?? "")?.[1] ?? null;
}
