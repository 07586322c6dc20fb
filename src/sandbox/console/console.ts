import type { Book } from "../book.ts";
import { type Body, type Exchange, readBody, sendJson, sendText } from "../exchange.ts";
import { parseObject } from "../json.ts";
import { createRateWindow } from "../rate-window.ts";
import { type Action, type ActionNeeds, createActions } from "./actions.ts";
import { failure, flatFailure, type Outcome } from "./outcome.ts";
import type { Sessions } from "./sessions.ts";

/** The control plane: the API below the web console, in sub2api's shapes. */
export interface Console {
  serve(exchange: Exchange): Promise<void>;
}

export interface ConsoleNeeds extends ActionNeeds {
  readonly book: Book;
  /** Calls under /usage that one minute allows; null: any number. */
  readonly usagePerMinute: number | null;
}

const PREFIX = "/api/v1";
const MOST_BODY_BYTES = 1024 * 1024;
const LAST_NUMBER = /\/(\d{1,15})$/;

export function createConsole(needs: ConsoleNeeds): Console {
  const actions = new Map(Object.entries(createActions(needs)));
  const usageWindow = createRateWindow();

  /** What stands before every action that is not open: the session, then the limit on reading the log. */
  function guard(exchange: Exchange): Outcome | null {
    const stranger = sessionProblem(exchange.request.headers.authorization, needs.sessions);
    if (stranger !== null) return stranger;
    const most = exchange.path.startsWith(`${PREFIX}/usage`) ? needs.usagePerMinute : null;
    const wait = most === null ? 0 : usageWindow.take(most, needs.clock.elapsed());
    if (wait === 0) return null;
    const message = "Too many requests, please slow down and try again later";
    return flatFailure(429, "RATE_LIMITED", message, { "Retry-After": String(wait) });
  }

  return {
    async serve(exchange) {
      const received = await readBody(exchange, needs.book, MOST_BODY_BYTES);
      if (!received.ok && received.reason === "gone") return;
      const path = exchange.path.slice(PREFIX.length).replace(LAST_NUMBER, "/:id");
      const action = actions.get(`${exchange.method} ${path}`);
      if (action === undefined) return sendText(exchange, 404, "text/plain", "404 page not found");
      const refused = action.open === true ? null : guard(exchange);
      const outcome = refused ?? perform(action, exchange, received);
      sendJson(exchange, outcome.status, outcome.body, outcome.headers);
    },
  };
}

function perform(action: Action, exchange: Exchange, received: Body): Outcome {
  const id = Number(LAST_NUMBER.exec(exchange.path)?.[1]);
  if (exchange.method !== "POST" && exchange.method !== "PUT") return action.run(exchange, {}, id);
  const body = received.ok ? parseObject(received.bytes) : null;
  if (body === null) return failure(400, "Invalid request: the body is not a JSON object");
  return action.run(exchange, body, id);
}

function sessionProblem(header: string | undefined, sessions: Sessions): Outcome | null {
  if (header === undefined) return flatFailure(401, "UNAUTHORIZED", "Authorization header is required");
  const [scheme = "", token] = header.split(" ", 2);
  if (scheme.toLowerCase() !== "bearer" || token === undefined) {
    return flatFailure(401, "INVALID_AUTH_HEADER", "Authorization header format must be 'Bearer {token}'");
  }
  if (token.trim() === "") return flatFailure(401, "EMPTY_TOKEN", "Token cannot be empty");
  switch (sessions.check(token)) {
    case "fine":
      return null;
    case "expired":
      return flatFailure(401, "TOKEN_EXPIRED", "Token has expired");
    case "unknown":
      return flatFailure(401, "INVALID_TOKEN", "Invalid token");
  }
}
