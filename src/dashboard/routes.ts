import type { IncomingMessage, ServerResponse } from "node:http";
import { problemInLine } from "../config/problems.ts";
import { decodeName, hasOnly, isText, isTextOrNull } from "../control/body.ts";
import { REACH } from "../control/reach.ts";
import { newestEvents } from "../control/routes.ts";
import { advice } from "../core/advice.ts";
import { errorMessage, HttpError } from "../core/errors.ts";
import { throttledLog } from "../core/throttled-log.ts";
import { exportedRecord } from "../usage/reports/records.ts";
import { readAction } from "./actions/action.ts";
import type { PlanDeps } from "./actions/plan.ts";
import { planAction } from "./actions/plan-action.ts";
import type { WaitingActions } from "./actions/waiting.ts";
import type { ChallengeAnswer, PlanAnswer, Proof, RecordAnswer, RunAnswer, SessionAnswer } from "./api.ts";
import { readBill, readMirror } from "./bill.ts";
import type { Bookmarks } from "./bookmarks/bookmarks.ts";
import type { DashboardDeps } from "./deps.ts";
import { codedError, readPost } from "./http.ts";
import { LiveEvents } from "./live.ts";
import { NowView } from "./now.ts";
import type { Sessions } from "./sessions.ts";
import { listTools, readModels, readTool } from "./tools.ts";
import { UsageQuestions } from "./usage-api.ts";

/** The route has written the response itself. */
export const HANDLED: unique symbol = Symbol("handled");

const MAX_EVENTS = 300;

interface ApiRequest {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** Such as GET /api/records/:name */
  readonly route: string;
  /** The value of :name. */
  readonly name: string;
  readonly query: URLSearchParams;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
}

/** What the page can ask. Whatever it changes is planned first: see actions/. */
export class Api {
  readonly #deps: DashboardDeps;
  readonly #sessions: Sessions;
  readonly #usage: UsageQuestions;
  readonly #view: NowView;
  readonly #live: LiveEvents;
  readonly #waiting: WaitingActions;
  readonly #bookmarks: Bookmarks;
  readonly #logAttempt: (message: string) => void;
  #unsubscribe: (() => void) | null = null;

  constructor(deps: DashboardDeps, sessions: Sessions, waiting: WaitingActions, bookmarks: Bookmarks) {
    const { clock, log } = deps;
    this.#deps = deps;
    this.#sessions = sessions;
    this.#waiting = waiting;
    this.#bookmarks = bookmarks;
    this.#usage = new UsageQuestions(deps.usage.ask);
    this.#view = new NowView(deps, this.#usage.ask);
    this.#live = new LiveEvents(this.#view, clock, log);
    this.#logAttempt = throttledLog(log);
  }

  /** How many pages follow the events. */
  get followers(): number {
    return this.#live.followers;
  }

  /** Begins to pass finished records on to the pages. */
  start(): void {
    this.#unsubscribe = this.#deps.tail.subscribe((record) => {
      // Without the fields that the log keeps for itself.
      const shown = exportedRecord(record);
      this.#view.recordFinished(shown);
      this.#live.recordFinished(shown);
    });
  }

  stop(): void {
    this.#unsubscribe?.();
  }

  /** Returns the JSON value of the response, or HANDLED. Throws an HttpError. */
  async answer(req: IncomingMessage, res: ServerResponse): Promise<unknown> {
    const request = parseRequest(req, res);
    // Checked before the code, so that another user who has read it cannot even use it up. Requests with a token are
    // checked, too: while the daemon restarts, its port is free, and a page may send its token to another program there.
    if ((await this.#deps.peers.of(req.socket)) !== "ours") {
      this.#logAttempt("the dashboard refused another user of this machine");
      throw codedError(
        403,
        "other-user",
        "this connection belongs to another user of this machine. only the user that runs keybearer may use the dashboard",
      );
    }
    if (request.route === "POST /api/session") return this.#startSession(req);
    if (request.route === "POST /api/challenge") return this.#challenge(req);
    // What it reads must not come after its session. An action still gets the answer to its own revocation.
    const cut = () => (req.method === "GET" || res.headersSent ? res.destroy() : undefined);
    const end = this.#sessions.begin(bearerToken(req) ?? "", cut);
    if (end === null)
      throw codedError(
        401,
        "no-session",
        `this page has no session, or its session has ended → ${advice.open()}`,
      );
    // The client may be gone by now.
    if (request.signal.aborted) end();
    else res.once("close", end);
    return this.#answerRoute(request);
  }

  async #answerRoute({ route, req, res, name, query, signal }: ApiRequest): Promise<unknown> {
    // A route that the table does not have is not served.
    switch (Object.hasOwn(REACH, route) ? route : "") {
      case "GET /api/now":
        return this.#view.read();
      case "GET /api/events":
        await this.#live.follow(res);
        return HANDLED;
      case "GET /api/usage":
        return this.#usage.chart(query, this.#deps.clock.now(), signal);
      case "GET /api/records":
        return this.#usage.page(query, signal);
      case "GET /api/records/:name":
        return this.#record(name, signal);
      case "GET /api/csv":
        await this.#usage.download(query, res, signal);
        return HANDLED;
      case "GET /api/tools":
        return listTools(this.#deps);
      case "GET /api/tools/:name":
        return readTool(name, this.#deps, this.#usage.ask, signal);
      case "POST /api/plan":
        return this.#plan(req);
      case "POST /api/run":
        return this.#run(req);
      case "GET /api/models":
        return readModels(query.get("tool") ?? "", this.#deps);
      case "GET /api/history":
        return newestEvents(this.#deps.controls(), MAX_EVENTS);
      case "GET /api/browsers":
        return this.#bookmarks.list();
      case "GET /api/mirror":
        return readMirror(this.#deps);
      case "GET /api/bill":
        return readBill(query.get("month") ?? "", this.#deps, this.#usage, signal);
      default:
        throw new HttpError(404, "there is nothing here");
    }
  }

  /** Exchanges the code, or a remembered browser's signature, for a session. */
  async #startSession(req: IncomingMessage): Promise<SessionAnswer> {
    const body = await readPost(req);
    if (isProof(body)) {
      const token = this.#bookmarks.exchange(body, originOf(req));
      if (token !== null) return { token };
      this.#logAttempt("a browser's signature for the dashboard did not hold");
      throw codedError(
        401,
        "wrong-signature",
        `the signature of this browser does not hold → ${advice.open()}`,
      );
    }
    if (!hasOnly(body, ["code"]) || !isText(body.code)) throw new HttpError(400, "send the code");
    const token = this.#sessions.exchange(body.code);
    if (token !== null) return { token };
    this.#logAttempt("a browser sent the dashboard a wrong or expired code");
    throw this.#sessions.hasTooManyWrongCodes
      ? codedError(429, "too-many-codes", `too many wrong codes. wait a minute → ${advice.open()}`)
      : codedError(
          401,
          "code-over",
          `this code was used before, or is older than a minute → ${advice.open()}`,
        );
  }

  async #challenge(req: IncomingMessage): Promise<ChallengeAnswer> {
    const body = await readPost(req);
    if (!hasOnly(body, ["public_key"]) || !isText(body.public_key))
      throw new HttpError(400, "send public_key (a text)");
    return { challenge: this.#bookmarks.challenge(body.public_key, originOf(req)) };
  }

  async #record(id: string, signal: AbortSignal): Promise<RecordAnswer> {
    const found = await this.#usage.record(id, signal);
    const compared = this.#deps.mirror.compared(id).find((row) => row.record?.id === id) ?? null;
    return { ...found, compared };
  }

  /** Says what an action would do. Nothing is changed yet. */
  async #plan(req: IncomingMessage): Promise<PlanAnswer> {
    const action = readAction(await readPost(req));
    const plan = await planAction(this.#planDeps(originOf(req)), action);
    const { what, change, diff, undo } = plan;
    const id = this.#waiting.add(plan, bearerToken(req) ?? "");
    return { id, what, diff, undo, needs_digits: change === "widens" };
  }

  /** Does what was planned. What widens needs the digits that `keybearer confirm` printed for it. */
  async #run(req: IncomingMessage): Promise<RunAnswer> {
    const body = await readPost(req);
    if (!hasOnly(body, ["id", "digits"]) || !isText(body.id) || !isTextOrNull(body.digits))
      throw new HttpError(400, "send id, and digits (a text, or null)");
    const { plan, end } = this.#waiting.take(body.id, bearerToken(req) ?? "", body.digits);
    const { log } = this.#deps;
    try {
      const { note, token } = await plan.run();
      log.warn({ change: plan.change }, `dashboard: ${plan.what}`);
      end({ state: "done", what: plan.what, next: plan.undo, token });
      return { what: plan.what, undo: plan.undo, note };
    } catch (error) {
      const what = errorMessage(error);
      log.warn({ change: plan.change }, `dashboard: could not ${plan.what}: ${what}`);
      end({ state: "failed", what, next: null, token: null });
      throw error;
    }
  }

  #planDeps(origin: string): PlanDeps {
    const { paths, env, clock, controls, isSandbox, reload } = this.#deps;
    const refresh = async () => {
      await reload.refresh(false);
      const problem = reload.problems.find(({ severity }) => severity === "error");
      return problem === undefined ? null : problemInLine(problem);
    };
    const bookmarks = this.#bookmarks;
    return { paths, env, clock, controls: controls(), isSandbox, bookmarks, origin, refresh };
  }
}

function isProof(body: unknown): body is Proof & Record<string, unknown> {
  return hasOnly(body, ["public_key", "challenge", "signature"]) && Object.values(body).every(isText);
}

/** The guard has checked the host, and that an Origin header names the same. */
function originOf({ headers }: IncomingMessage): string {
  return `http://${(headers.host ?? "").toLowerCase()}`;
}

function parseRequest(req: IncomingMessage, res: ServerResponse): ApiRequest {
  const [path = "", search = ""] = (req.url ?? "").split("?", 2);
  const [, resource = "", encoded = ""] = /^\/api\/([a-z]+)(?:\/([^/]+))?$/.exec(path) ?? [];
  const gone = new AbortController();
  res.once("close", () => gone.abort());
  return {
    req,
    res,
    route: `${req.method} /api/${resource}${encoded === "" ? "" : "/:name"}`,
    name: decodeName(encoded),
    query: new URLSearchParams(search),
    signal: gone.signal,
  };
}

function bearerToken({ headers }: IncomingMessage): string | null {
  return /^Bearer ([\w-]{1,200})$/.exec(headers.authorization ?? "")?.[1] ?? null;
}
