import type { Clock } from "../../core/clock.ts";
import type { Account } from "../account.ts";
import type { Exchange } from "../exchange.ts";
import type { Groups } from "../groups.ts";
import { type JsonObject, textAt } from "../json.ts";
import type { Keys } from "../keys.ts";
import type { UsageLog, UsageRow } from "../usage-log.ts";
import type { Zone } from "../zone.ts";
import { createKeyActions } from "./key-actions.ts";
import { groupShape, USER_ID } from "./key-shape.ts";
import { failure, type Outcome, paged, pageOf, success } from "./outcome.ts";
import type { Session, Sessions } from "./sessions.ts";
import { readUsageQuery } from "./usage-query.ts";
import { usageShape } from "./usage-shape.ts";

export interface ActionNeeds {
  readonly clock: Clock;
  readonly zone: Zone;
  readonly account: Account;
  readonly keys: Keys;
  readonly groups: Groups;
  readonly usage: UsageLog;
  readonly sessions: Sessions;
}

export interface Action {
  /** Everybody may, without logging in. */
  readonly open?: boolean;
  run(exchange: Exchange, body: JsonObject, id: number): Outcome;
}

/** Every action of the console by method and path below /api/v1; `:id` stands for a number. */
export function createActions(needs: ActionNeeds): Readonly<Record<string, Action>> {
  const { clock, zone, keys, groups } = needs;
  const keyActions = createKeyActions(keys, groups, clock, zone);
  return {
    "POST /auth/login": { open: true, run: (_exchange, body) => login(body, needs) },
    "POST /auth/refresh": { open: true, run: (_exchange, body) => refresh(body, needs.sessions) },
    "GET /settings/public": { open: true, run: ({ request }) => publicSettings(request.headers.host ?? "") },
    "GET /auth/me": { run: () => success(userShape(needs.account)) },
    "GET /groups/available": {
      run: () =>
        success(
          groups
            .list()
            .filter((group) => group.enabled)
            .map(groupShape),
        ),
    },
    "GET /groups/rates": { run: () => success({}) },
    "GET /usage": { run: ({ query }) => listUsage(query, needs) },
    "GET /usage/:id": { run: (_exchange, _body, id) => showUsage(id, needs) },
    "GET /keys": { run: ({ query }) => keyActions.list(query) },
    "GET /keys/:id": { run: (_exchange, _body, id) => keyActions.show(id) },
    "POST /keys": { run: (_exchange, body) => keyActions.create(body) },
    "PUT /keys/:id": { run: (_exchange, body, id) => keyActions.update(id, body) },
    "DELETE /keys/:id": { run: (_exchange, _body, id) => keyActions.remove(id) },
  };
}

function login(body: JsonObject, { sessions, account }: ActionNeeds): Outcome {
  const email = textAt(body, "email");
  const password = textAt(body, "password");
  if (email === null || password === null) {
    return failure(400, "Invalid request: email and password are required");
  }
  const session = sessions.login(email, password);
  return session === null
    ? failure(401, "invalid email or password", "INVALID_CREDENTIALS")
    : success({ ...sessionShape(session), user: userShape(account) });
}

function refresh(body: JsonObject, sessions: Sessions): Outcome {
  const token = textAt(body, "refresh_token");
  if (token === null) return failure(400, "Invalid request: refresh_token is required");
  const session = sessions.refresh(token);
  return session === null
    ? failure(401, "invalid refresh token", "REFRESH_TOKEN_INVALID")
    : success(sessionShape(session));
}

function listUsage(query: URLSearchParams, needs: ActionNeeds): Outcome {
  const wanted = readUsageQuery(query, needs.zone);
  if (typeof wanted === "string") return failure(400, wanted);
  if (wanted.keyId !== null && needs.keys.withId(wanted.keyId) === null) {
    return failure(403, "Not authorized to access this API key's usage records");
  }
  const rows = needs.usage.list().filter(wanted.matches).sort(wanted.compare);
  return paged(rows, pageOf(query), (row) => rowShape(row, needs));
}

function showUsage(id: number, needs: ActionNeeds): Outcome {
  const row = needs.usage.withId(id);
  return row === null
    ? failure(404, "usage log not found", "USAGE_LOG_NOT_FOUND")
    : success(rowShape(row, needs));
}

function rowShape(row: UsageRow, { keys, groups, zone }: ActionNeeds): object {
  return usageShape(row, keys, groups, zone);
}

function userShape({ email, balance }: Account): object {
  return { id: USER_ID, email, username: "sandbox", role: "user", balance, status: "active" };
}

function sessionShape(session: Session): object {
  return {
    access_token: session.accessToken,
    refresh_token: session.refreshToken,
    expires_in: session.expiresIn,
    token_type: "Bearer",
  };
}

function publicSettings(host: string): Outcome {
  return success({
    site_name: "keybearer sandbox",
    api_base_url: `http://${host}`,
    version: "sandbox",
    registration_enabled: false,
    turnstile_enabled: false,
    hide_ccs_import_button: true,
  });
}
