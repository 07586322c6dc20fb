import t from "tap";
import type { ConsoleDouble, Use } from "../doubles/consoles/console-double.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { startOneApi } from "../doubles/consoles/one-api.ts";
import { EVERY_CONSOLE, startConsole } from "../doubles/consoles/start-console.ts";
import { startSub2api } from "../doubles/consoles/sub2api.ts";

/*
 * What journeys rely on in the consoles' doubles and would not notice if it were gone: without it they would pass more
 * easily. The rest of the doubles is tested by the journeys themselves.
 */

const KEY = "sk-0123456789abcdefABCDEF0123456789";
const USE: Use = { key: KEY, model: "m", stream: false, input: 10, output: 3, dollars: 0.003 };

interface Json {
  readonly [name: string]: Json;
}

async function ask(double: ConsoleDouble, path: string, headers: Record<string, string> = {}, body?: object) {
  const response = await fetch(`${double.url}${path}`, {
    redirect: "manual",
    headers: { "content-type": "application/json", ...headers },
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const json: Json = text.startsWith("{") ? JSON.parse(text) : {};
  return { status: response.status, headers: response.headers, json };
}

/** The list in the data of a response. */
async function list(double: ConsoleDouble, path: string, headers: Record<string, string>): Promise<Json[]> {
  const { json } = await ask(double, path, headers);
  const data: unknown = Array.isArray(json.data) ? json.data : json.data?.items;
  return data as Json[];
}

function withKey<D extends ConsoleDouble>(double: D): D {
  double.addKey({ name: "codex", key: KEY });
  return double;
}

async function logIn(double: ConsoleDouble): Promise<{ authorization: string; refreshToken: Json }> {
  const { email, password } = double.login;
  const { json } = await ask(double, "/api/v1/auth/login", {}, { email, password });
  const { access_token = {}, refresh_token = {} } = json.data ?? {};
  return { authorization: `Bearer ${access_token}`, refreshToken: refresh_token };
}

for (const name of EVERY_CONSOLE) {
  t.test(`${name}: the double records who follows a redirect, and who sends a credential`, async (t) => {
    const double = await startConsole(t, name);
    double.fault = "redirect";
    const headers = { authorization: "Bearer a-secret" };
    const moved = await ask(double, "/api/status", headers);
    await ask(double, "/api/status");
    t.same(
      double.asked.map(({ credential }) => credential),
      [true, false],
    );
    t.same(double.thief.seen, []);
    await fetch(moved.headers.get("location") ?? "", { headers });
    t.match(double.thief.seen.join(), "Bearer a-secret");
  });
}

t.test("sub2api: a refresh token works once", async (t) => {
  const double = await startSub2api(t);
  const { refreshToken } = await logIn(double);
  const refresh = (token: unknown) => ask(double, "/api/v1/auth/refresh", {}, { refresh_token: token });
  const renewed = await refresh(refreshToken);
  t.equal((await refresh(refreshToken)).status, 401);
  t.equal((await refresh(renewed.json.data?.refresh_token)).status, 200);
});

t.test("sub2api: another User-Agent ends the session", async (t) => {
  const double = await startSub2api(t);
  const { authorization } = await logIn(double);
  const me = (headers = {}) => ask(double, "/api/v1/auth/me", { authorization, ...headers });
  t.equal((await me()).status, 200);
  t.equal((await me({ "user-agent": "another" })).json.code, "SESSION_BINDING_MISMATCH");
  t.equal((await me()).json.code, "TOKEN_REVOKED");
});

t.test("sub2api: a row has the whole key, and a late row has a higher id", async (t) => {
  const double = withKey(await startSub2api(t));
  double.bill(USE);
  double.bill({ ...USE, at: Date.now() - 60_000 });
  const { authorization } = await logIn(double);
  const [newest, late] = await list(double, "/api/v1/usage", { authorization });
  t.ok(Number(late?.id) > Number(newest?.id));
  t.equal(newest?.api_key?.key, KEY);
});

t.test("sub2api: the client's own id comes back, and is in no row", async (t) => {
  for (const handsOutIds of [true, false]) {
    const double = withKey(await startSub2api(t, { handsOutIds }));
    const headers = { authorization: `Bearer ${KEY}`, "x-request-id": "mine", "x-client-request-id": "mine" };
    const answer = await ask(double, "/v1/chat/completions", headers, { model: "m" });
    t.match(answer.headers.get("x-request-id"), /^mine, req_\w+$/);
    const id = answer.headers.get("x-client-request-id");
    t.equal(id, handsOutIds ? double.rows[0]?.requestId.replace("client:", "") : null);
    t.not(double.rows[0]?.requestId, "client:mine");
  }
});

t.test("new-api: a row's id is its place in the response", async (t) => {
  const double = withKey(await startNewApi(t));
  const headers = { authorization: `Bearer ${double.login.accessToken}` };
  for (let n = 0; n < 6; n += 1) double.bill(USE);
  const page = (number: number) => list(double, `/api/log/self?type=2&page_size=3&p=${number}`, headers);
  t.match(await page(2), [{ id: 4 }, { id: 5 }, { id: 6 }]);
  const [newest] = await page(1);
  double.bill(USE);
  const [, second] = await page(1);
  t.same([second?.id, second?.request_id], [2, newest?.request_id]);
});

t.test("new-api: keys are masked, and a group may have a word for its ratio", async (t) => {
  const double = withKey(await startNewApi(t));
  const headers = { authorization: `Bearer ${double.login.accessToken}` };
  t.match(await list(double, "/api/token/", headers), [{ key: "0123**********6789" }]);
  t.equal((await ask(double, "/api/user/self/groups", headers)).json.data?.auto?.ratio, "自动");
  t.throws(() => double.addKey({ name: "x", key: "sk-with-hyphens" }), /cuts keys at a hyphen/);
});

t.test("new-api v0.13.2 needs the user's number, and refuses with status 200", async (t) => {
  const double = await startNewApi(t, { version: "v0.13.2" });
  const authorization = `Bearer ${double.login.accessToken}`;
  const self = (headers: Record<string, string>) => ask(double, "/api/user/self", headers);
  t.equal((await self({ authorization })).status, 401);
  t.equal((await self({ authorization, "new-api-user": "8" })).status, 401);
  t.equal((await self({ authorization, "new-api-user": "7" })).json.data?.id, 7);
  t.match(await self({ authorization: "Bearer wrong" }), { status: 200, json: { success: false } });
});

t.test("new-api: keys may ask about themselves 20 times in 20 minutes", async (t) => {
  let now = 1_780_000_000_000;
  const double = withKey(await startNewApi(t, { now: () => now, limits: true }));
  const headers = { authorization: `Bearer ${KEY}` };
  for (let n = 0; n < 20; n += 1) {
    const path = n % 2 === 0 ? "/api/log/token" : "/api/usage/token/";
    t.equal((await ask(double, path, headers)).status, 200);
  }
  t.equal((await ask(double, "/api/log/token", headers)).status, 429);
  now += 1_200_000;
  t.equal((await ask(double, "/api/log/token", headers)).status, 200);
});

t.test(
  "one-api: pages count from 0 and have ten rows, without ids, and some rows are not usage",
  async (t) => {
    const double = withKey(await startOneApi(t));
    const headers = { authorization: double.login.accessToken };
    for (let n = 0; n < 12; n += 1) double.bill(USE);
    const first = await list(double, "/api/log/self?page_size=100", headers);
    const second = await list(double, "/api/log/self?p=1", headers);
    t.same([first.length, second.length], [10, 5]);
    t.same(new Set<unknown>([...first, ...second].map(({ id }) => id)), new Set([0]));
    t.same(new Set<unknown>([...first, ...second].map(({ type }) => type)), new Set([2, 3, 5, 1]));
    t.notOk(first.some((row) => "token_id" in row || "group" in row || "other" in row));
  },
);
