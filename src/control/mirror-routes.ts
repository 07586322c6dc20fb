import { HttpError } from "../core/errors.ts";
import type { LoginRequest } from "../mirror/login.ts";
import type { ShownAlarm } from "../mirror/mirror.ts";
import { hasOnly, NOT_FOUND, type Route } from "./route.ts";

/** What the mirror can be asked. */
export const MIRROR_ROUTES: Readonly<Record<string, Route>> = {
  "GET /mirror": ({ mirror }) => mirror.report(),
  "GET /keys": ({ mirror }) => mirror.keys(),
  "GET /mirrordiff": ({ mirror }) => mirror.diff(),
  "POST /compared": ({ mirror }, { body }) => {
    if (!hasOnly(body, ["what"]) || typeof body.what !== "string" || body.what === "")
      throw new HttpError(400, "say which: what (a row, a request id or a record's id)");
    return mirror.compared(body.what);
  },
  "POST /sync/:name": ({ mirror }, { name, body }) => {
    if (!hasOnly(body, [])) throw new HttpError(400, "sync takes no settings: send {}");
    return mirror.sync(name) ?? NOT_FOUND;
  },
  "POST /login/:name": async ({ mirror }, { name, body }) => {
    const { account = null, ...credentials } = (body ?? {}) as { readonly account?: unknown };
    const asked = loginIn(credentials);
    // What was sent is not repeated: it is a secret.
    if (asked === null || !isTextOrNull(account)) throw new HttpError(400, LOGIN_BODY);
    return (await mirror.login(name, account, asked)) ?? NOT_FOUND;
  },
  "POST /ack": ({ mirror, actions }, { body, peer }) => {
    const alarm = alarmIn(body);
    if (alarm === null) throw new HttpError(400, ACK_BODY);
    const acknowledged = mirror.acknowledge(alarm, peer);
    if (acknowledged !== null && acknowledged > 0)
      actions.note(`acknowledged ${acknowledged} foreign ${acknowledged === 1 ? "row" : "rows"}`);
    return { acknowledged };
  },
};

const LOGIN_BODY =
  "say how to log in: email and password, or code, or refresh_token, or access_token and user (a text, or null); account where there are several";

const ACK_BODY =
  "say what is acknowledged: gateway and key (each a text, or null for all), certain (true, false, or null for both), last_at (milliseconds) and count (each a number, or null)";

function alarmIn(body: unknown): ShownAlarm | null {
  if (!hasOnly(body, ["gateway", "key", "certain", "last_at", "count"])) return null;
  const { gateway, key, certain, last_at, count } = body;
  if (!isTextOrNull(gateway) || !isTextOrNull(key)) return null;
  if (certain !== null && typeof certain !== "boolean") return null;
  if (!isNumberOrNull(last_at) || !isNumberOrNull(count)) return null;
  return { gateway, key, certain, last_at, count };
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || (typeof value === "number" && Number.isFinite(value));
}

function loginIn(body: unknown): LoginRequest | null {
  if (hasOnly(body, ["email", "password"]) && isText(body.email) && isText(body.password))
    return { email: body.email, password: body.password };
  if (hasOnly(body, ["code"]) && isText(body.code)) return { code: body.code };
  if (hasOnly(body, ["refresh_token"]) && isText(body.refresh_token))
    return { refresh_token: body.refresh_token };
  if (hasOnly(body, ["access_token", "user"]) && isText(body.access_token) && isTextOrNull(body.user))
    return { access_token: body.access_token, user: body.user };
  return null;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || isText(value);
}
