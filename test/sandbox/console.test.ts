import t from "tap";
import { ask, atConsole, get, heldClock, hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";

const HOUR = 60 * 60 * 1000;

t.test("a login gives a session that expires, and a wrong password gives none", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { session, call } = await atConsole(sandbox);
  t.match(session, { token_type: "Bearer", expires_in: 3600, user: { email: "sandbox@keybearer.test" } });
  t.match(await call("GET", "/auth/me"), {
    status: 200,
    code: 0,
    message: "success",
    data: { balance: 100 },
  });

  const wrong = { email: sandbox.account.email, password: "guess" };
  const refused = await post(`${sandbox.origin}/api/v1/auth/login`, "", wrong);
  t.equal(refused.status, 401);
  t.same(refused.json, { code: 401, message: "invalid email or password", reason: "INVALID_CREDENTIALS" });

  clock.pass(HOUR);
  t.match(await call("GET", "/auth/me"), { status: 401, code: "TOKEN_EXPIRED" });
});

t.test("without a good session the console answers with a flat code", async (t) => {
  const sandbox = await startSandbox(t);
  const at = async (headers: Record<string, string>) =>
    (await ask(`${sandbox.origin}/api/v1/usage`, { headers })).json;
  t.match(await at({}), { code: "UNAUTHORIZED" });
  t.match(await at({ authorization: "Token abc" }), { code: "INVALID_AUTH_HEADER" });
  t.match(await at({ authorization: "Bearer abc" }), { code: "INVALID_TOKEN" });
  t.match(
    await at({ authorization: `Bearer ${newKey(sandbox).text}` }),
    { code: "INVALID_TOKEN" },
    "a key is none",
  );
});

t.test("a refresh token works once, and its successor once", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { session } = await atConsole(sandbox);
  const refresh = (token: string) =>
    post(`${sandbox.origin}/api/v1/auth/refresh`, "", { refresh_token: token });
  const second = JSON.parse((await refresh(session.refresh_token)).text).data;
  t.not(second.refresh_token, session.refresh_token);
  const reused = await refresh(session.refresh_token);
  t.equal(reused.status, 401);
  t.match(reused.json, { code: 401, reason: "REFRESH_TOKEN_INVALID" });
  const third = JSON.parse((await refresh(second.refresh_token)).text).data;
  t.equal((await get(`${sandbox.origin}/api/v1/usage`, third.access_token)).status, 200);
  clock.pass(30 * 24 * HOUR);
  t.equal((await get(`${sandbox.origin}/api/v1/usage`, third.access_token)).status, 401);
  t.equal((await refresh(third.refresh_token)).status, 401, "and none after thirty days");
});

t.test("a usage row has the fields of the real one", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox, "coding");
  const body = { ...hello("sandbox-code"), stream: true };
  const before = Date.now();
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, body);
  const { call } = await atConsole(sandbox);
  const [row] = (await call("GET", "/usage")).data.items;
  t.match(row, {
    id: 1,
    api_key_id: id,
    request_id: `client:${answer.headers.get("x-client-request-id")}`,
    model: "sandbox-code",
    inbound_endpoint: "/v1/chat/completions",
    stream: true,
    request_type: "stream",
    rate_multiplier: 1.5,
    billing_type: 0,
    group_id: 2,
    api_key: { name: "test" },
    group: { name: "coding" },
  });
  t.match(row.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const createdAt = Date.parse(row.created_at);
  t.ok(before <= createdAt && createdAt <= Date.now(), "the time of the call");
  t.ok(row.duration_ms >= 0 && Number.isInteger(row.duration_ms));
  t.equal(row.total_cost, (row.input_tokens * 1.25 + row.output_tokens * 10) / 1e6);
  t.equal(row.actual_cost.toFixed(10), (row.total_cost * 1.5).toFixed(10));
});

t.test("the usage log is paged, newest first, and a page too large is ignored", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  for (let i = 0; i < 25; i++) await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  const { call } = await atConsole(sandbox);
  const ids = async (query: string) =>
    (await call("GET", `/usage${query}`)).data.items.map((row: { id: number }) => row.id);
  t.match((await call("GET", "/usage")).data, { total: 25, page: 1, page_size: 20, pages: 2 });
  t.same((await ids("")).slice(0, 2), [25, 24]);
  t.same(await ids("?page=2"), [5, 4, 3, 2, 1]);
  t.same(await ids("?page=3"), []);
  t.same(await ids("?page=1&page_size=3&sort_order=asc"), [1, 2, 3]);
  t.same(await ids("?page_size=2&sort_by=id&sort_order=desc"), [25, 24]);
  t.equal((await ids("?page_size=1000")).length, 25);
  t.equal((await ids("?page_size=1001")).length, 20);
});

t.test("a key is made, listed, changed and deleted", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  const { id } = (await call("POST", "/keys", { name: "laptop", group_id: 1 })).data;
  await call("POST", "/keys", { name: "phone", group_id: 2 });
  const list = async () => (await call("GET", "/keys")).data.items;
  const names = async () => (await list()).map((key: { name: string }) => key.name);
  t.same(await names(), ["phone", "laptop"]);

  const changed = await call("PUT", `/keys/${id}`, {
    name: "desk",
    group_id: 2,
    quota: 3,
    status: "inactive",
  });
  t.match(changed.data, { name: "desk", group_id: 2, quota: 3, status: "disabled" });
  const bad = [{ status: "expired" }, { group_id: 99 }, { name: " " }, { quota: -1 }, { expires_at: "soon" }];
  for (const body of [...bad, { rate_limit_5h: -5 }, { rpm_limit: 1.5 }]) {
    t.equal((await call("PUT", `/keys/${id}`, body)).status, 400, JSON.stringify(body));
  }
  const wrong = [undefined, "a text", ["a list"]];
  for (const body of wrong) t.equal((await call("PUT", `/keys/${id}`, body)).status, 400, `${body}`);
  t.match((await list())[1], { name: "desk", quota: 3, status: "disabled" }, "nothing of that was taken");

  t.equal((await call("DELETE", `/keys/${id}`)).status, 200);
  t.match(await call("DELETE", `/keys/${id}`), { status: 404, reason: "API_KEY_NOT_FOUND" });
  t.same(await names(), ["phone"]);
});

t.test("one key is shown", async (t) => {
  const { call } = await atConsole(await startSandbox(t));
  const { id } = (await call("POST", "/keys", { name: "laptop", group_id: 1, rate_limit_1d: 5 })).data;
  t.match((await call("GET", `/keys/${id}`)).data, { id, name: "laptop", rate_limit_1d: 5, usage_1d: 0 });
  t.match(await call("GET", "/keys/99"), { status: 404, reason: "API_KEY_NOT_FOUND" });
});

t.test("a creation with an Idempotency-Key happens once in a day", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { session } = await atConsole(sandbox);
  const create = (name: string, id: string) =>
    post(
      `${sandbox.origin}/api/v1/keys`,
      session.access_token,
      { name, group_id: 1 },
      { "idempotency-key": id },
    );
  const first = await create("laptop", "plan-1");
  const again = await create("laptop", "plan-1");
  t.equal(again.text, first.text);
  t.same(
    [first.headers.get("x-idempotency-replayed"), again.headers.get("x-idempotency-replayed")],
    [null, "true"],
  );
  t.match(await create("phone", "plan-1"), { status: 409, json: { reason: "IDEMPOTENCY_KEY_CONFLICT" } });
  t.equal((await create(" ", "plan-2")).status, 400);
  t.equal((await create("phone", "plan-2")).status, 200, "a failed one may be repeated with another body");
  t.equal(sandbox.account.keys.length, 2);
  clock.pass(25 * 3600_000);
  const { call } = await atConsole(sandbox);
  t.equal((await call("GET", "/keys")).data.total, 2);
});

t.test("spending is limited per 5 hours, day and week", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { id, key } = sandbox.createKey({ name: "small", group: "default" });
  const status = async () =>
    (await post(`${sandbox.baseUrl}/chat/completions`, key.reveal(), hello())).status;
  const { call } = await atConsole(sandbox);
  const shown = async () => (await (await atConsole(sandbox)).call("GET", `/keys/${id}`)).data;
  await call("PUT", `/keys/${id}`, { rate_limit_5h: 0.000001 });
  t.same([await status(), await status()], [200, 429]);
  t.equal((await shown()).reset_5h_at, new Date(clock.now() + 5 * 3600_000).toISOString());
  clock.pass(5 * 3600_000);
  t.same([await status(), await status()], [200, 429], "the next window has begun");
  const { usage_5h, usage_1d, reset_1d_at } = await shown();
  t.equal(usage_1d, usage_5h * 2);
  t.equal(reset_1d_at, "2026-11-16T00:00:00.000Z", "days begin at midnight");
  await (await atConsole(sandbox)).call("PUT", `/keys/${id}`, { reset_rate_limit_usage: true });
  t.equal(await status(), 200);
});

t.test("more quota, or a new start of it, serves a key again", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, key } = sandbox.createKey({ name: "small", group: "default", quota: 0.000001 });
  const status = async () =>
    (await post(`${sandbox.baseUrl}/chat/completions`, key.reveal(), hello())).status;
  t.same([await status(), await status()], [200, 429]);
  const { call } = await atConsole(sandbox);
  t.match((await call("GET", "/keys")).data.items, [{ id, status: "quota_exhausted" }]);
  await call("PUT", `/keys/${id}`, { reset_quota: true });
  t.same([await status(), await status()], [200, 429]);
  await call("PUT", `/keys/${id}`, { quota: 0 });
  t.same([await status(), await status()], [200, 200]);
});

t.test("the console lists the groups that are enabled, and says publicly what it is", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  const groups = (await call("GET", "/groups/available")).data;
  t.match(groups, [
    { name: "default", rate_multiplier: 1, status: "active" },
    { name: "coding", rate_multiplier: 1.5 },
  ]);
  t.equal(groups.length, 2);
  const settings = await ask(`${sandbox.origin}/api/v1/settings/public`);
  t.match(settings.json, { code: 0, data: { site_name: "keybearer sandbox", api_base_url: sandbox.origin } });
});

t.test("a key sees what is left for it", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox, "coding");
  const seen = await get(`${sandbox.baseUrl}/usage`, text);
  t.match(seen.json, { mode: "unrestricted", isValid: true, balance: 100 });
  const { key } = sandbox.createKey({ name: "small", group: "default", quota: 2 });
  const limited = await get(`${sandbox.baseUrl}/usage`, key.reveal());
  t.match(limited.json, { mode: "quota_limited", isValid: true, remaining: 2, quota: { limit: 2, used: 0 } });
});

t.test("an expired key still sees what is left, a disabled one does not", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { id, key } = sandbox.createKey({ name: "x", group: "default", expiresAt: clock.now(), quota: 1 });
  const usage = () => get(`${sandbox.baseUrl}/usage`, key.reveal());
  t.match(await usage(), { status: 200, json: { isValid: false, status: "expired", remaining: 1 } });
  sandbox.disableKey(id);
  t.equal((await usage()).status, 401);
});

t.test(
  "what the console does not know is a plain 404, and a body that is no object is refused",
  async (t) => {
    const sandbox = await startSandbox(t);
    const { session } = await atConsole(sandbox);
    for (const path of ["nothing", "__proto__"]) {
      const missing = await get(`${sandbox.origin}/api/v1/${path}`, session.access_token);
      t.match(missing, { status: 404, text: "404 page not found" });
    }
    t.equal((await post(`${sandbox.origin}/api/v1/keys`, session.access_token, "[1]")).status, 400);
    t.equal((await post(`${sandbox.origin}/api/v1/auth/login`, "", {})).status, 400);
  },
);
