import t from "tap";
import { ask, atConsole, get, heldClock, hello, newKey, post, startSandbox } from "./sandbox-under-test.ts";

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

  const wrong = { email: sandbox.login.email, password: "guess" };
  const refused = await post(`${sandbox.consoleUrl}/api/v1/auth/login`, "", wrong);
  t.equal(refused.status, 401);
  t.same(refused.json, { code: 401, message: "invalid email or password", reason: "INVALID_CREDENTIALS" });

  clock.pass(HOUR);
  t.match(await call("GET", "/auth/me"), { status: 401, code: "TOKEN_EXPIRED" });
});

t.test("without a good session the console answers with a flat code", async (t) => {
  const sandbox = await startSandbox(t);
  const at = async (headers: Record<string, string>) =>
    (await ask(`${sandbox.consoleUrl}/api/v1/usage`, { headers })).json;
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
  const sandbox = await startSandbox(t);
  const { session } = await atConsole(sandbox);
  const refresh = (token: string) =>
    post(`${sandbox.consoleUrl}/api/v1/auth/refresh`, "", { refresh_token: token });
  const second = JSON.parse((await refresh(session.refresh_token)).text).data;
  t.not(second.refresh_token, session.refresh_token);
  const reused = await refresh(session.refresh_token);
  t.equal(reused.status, 401);
  t.match(reused.json, { code: 401, reason: "REFRESH_TOKEN_INVALID" });
  const third = JSON.parse((await refresh(second.refresh_token)).text).data;
  t.equal((await get(`${sandbox.consoleUrl}/api/v1/usage`, third.access_token)).status, 200);
  sandbox.endSessions();
  t.equal((await get(`${sandbox.consoleUrl}/api/v1/usage`, third.access_token)).status, 401);
  t.equal((await refresh(third.refresh_token)).status, 401);
});

t.test("a usage row has the fields of the real one", async (t) => {
  const sandbox = await startSandbox(t, { timezone: "Asia/Shanghai" });
  const { id, text } = newKey(sandbox, "coding");
  const headers = { "user-agent": "codex_exec/0.1", "x-claude-code-session-id": "s-1" };
  const body = { ...hello("sandbox-code"), stream: true };
  const before = Date.now();
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, body, headers);
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
    user_agent: "codex_exec/0.1",
    session_id: "s-1",
    group_id: 2,
    api_key: { name: "test" },
    group: { name: "coding" },
  });
  t.match(row.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+08:00$/);
  const createdAt = Date.parse(row.created_at);
  t.ok(before <= createdAt && createdAt <= Date.now(), "the time of the call, with the right offset");
  t.ok(row.duration_ms >= row.first_token_ms && Number.isInteger(row.duration_ms));
  t.equal(row.input_cost, (row.input_tokens * 1.25) / 1e6);
  t.equal(row.output_cost, (row.output_tokens * 10) / 1e6);
  t.equal(row.actual_cost.toFixed(10), (row.total_cost * 1.5).toFixed(10));
  t.same((await call("GET", `/usage/${row.id}`)).data, row);
  t.equal((await call("GET", "/usage/99")).status, 404);
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
  t.same(await ids("?limit=2&sort_by=id"), [25, 24]);
  t.equal((await ids("?page_size=1000")).length, 25);
  t.equal((await ids("?page_size=1001")).length, 20);
});

t.test("the usage log is filtered by key, model and stream", async (t) => {
  const sandbox = await startSandbox(t);
  const [one, two] = [newKey(sandbox), newKey(sandbox)];
  await post(`${sandbox.baseUrl}/chat/completions`, one.text, hello("sandbox-small"));
  await post(`${sandbox.baseUrl}/chat/completions`, one.text, { ...hello("sandbox-large"), stream: true });
  await post(`${sandbox.baseUrl}/chat/completions`, two.text, hello("sandbox-large"));
  sandbox.deleteKey(two.id);
  const { call } = await atConsole(sandbox);
  const ids = async (query: string) =>
    (await call("GET", `/usage?${query}`)).data.items.map((row: { id: number }) => row.id);
  t.same(await ids(`api_key_id=${one.id}`), [2, 1]);
  t.same(await ids(`api_key_id=${two.id}`), [3], "a deleted key's rows can still be asked for");
  t.same(await ids("model=sandbox-large"), [3, 2]);
  t.same(await ids("stream=true"), [2]);
  t.same(await ids("request_type=sync&model=sandbox-large"), [3]);
  t.same(await ids("request_type=ws_v2"), []);
  t.same(await ids("sort_by=model&sort_order=asc"), [2, 3, 1]);
  t.match(await call("GET", "/usage?api_key_id=99"), { status: 403, code: 403 });
  t.equal((await call("GET", "/usage?api_key_id=x")).status, 400);
  t.equal((await call("GET", "/usage?stream=maybe")).status, 400);
});

t.test("days are the days of the named time zone, the last one included", async (t) => {
  const clock = heldClock(); // 15 November 2026, noon UTC
  const sandbox = await startSandbox(t, { clock });
  const { text } = newKey(sandbox);
  const chat = () => post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  await chat(); // 15 November everywhere near
  clock.pass(5 * HOUR); // 17:00 UTC: already the 16th in Shanghai
  await chat();
  clock.pass(7 * HOUR); // midnight: the 16th in UTC, still the 15th in New York
  await chat();
  const { call } = await atConsole(sandbox);
  const ids = async (from: string, to: string, zone?: string) => {
    const query = new URLSearchParams({
      start_date: from,
      end_date: to,
      ...(zone ? { timezone: zone } : {}),
    });
    return (await call("GET", `/usage?${query}`)).data.items.map((row: { id: number }) => row.id);
  };
  t.same(await ids("2026-11-15", "2026-11-15"), [2, 1]);
  t.same(await ids("2026-11-16", "2026-11-16"), [3]);
  t.same(await ids("2026-11-15", "2026-11-16"), [3, 2, 1]);
  t.same(await ids("2026-11-15", "2026-11-15", "Asia/Shanghai"), [1]);
  t.same(await ids("2026-11-15", "2026-11-15", "America/New_York"), [3, 2, 1]);
  t.same(await ids("2026-11-15", "2026-11-15", "Nowhere/Atlantis"), [2, 1], "the server's own, then");
  t.equal((await call("GET", "/usage?start_date=15.11.2026")).status, 400);
  t.equal((await call("GET", "/usage?end_date=2026-02-30")).status, 400);
});

t.test("a key is made, listed, changed and deleted", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  const { id } = (await call("POST", "/keys", { name: "laptop", group_id: 1 })).data;
  await call("POST", "/keys", { name: "phone", group_id: 2 });
  const names = async (query = "") =>
    (await call("GET", `/keys${query}`)).data.items.map((key: { name: string }) => key.name);
  t.same(await names(), ["phone", "laptop"]);
  t.same(await names("?search=LAP"), ["laptop"]);
  t.same(await names("?group_id=2"), ["phone"]);

  const changed = await call("PUT", `/keys/${id}`, {
    name: "desk",
    group_id: 2,
    quota: 3,
    status: "inactive",
  });
  t.match(changed.data, { name: "desk", group_id: 2, quota: 3, status: "disabled" });
  t.same(await names("?status=disabled"), ["desk"]);
  const bad = [{ status: "expired" }, { group_id: 99 }, { name: " " }, { quota: -1 }, { expires_at: "soon" }];
  for (const body of [...bad, { rate_limit_5h: 5 }]) {
    t.equal((await call("PUT", `/keys/${id}`, body)).status, 400, JSON.stringify(body));
  }
  t.match((await call("GET", `/keys/${id}`)).data, { name: "desk", quota: 3 }, "nothing of that was taken");

  t.equal((await call("DELETE", `/keys/${id}`)).status, 200);
  t.match(await call("GET", `/keys/${id}`), { status: 404, reason: "API_KEY_NOT_FOUND" });
  t.equal((await call("DELETE", `/keys/${id}`)).status, 404);
  t.same(await names(), ["phone"]);
});

t.test("more quota, or a new start of it, serves a key again", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, key } = sandbox.createKey({ name: "small", group: "default", quota: 0.000001 });
  const status = async () =>
    (await post(`${sandbox.baseUrl}/chat/completions`, key.reveal(), hello())).status;
  t.same([await status(), await status()], [200, 429]);
  const { call } = await atConsole(sandbox);
  t.match((await call("GET", `/keys/${id}`)).data, { status: "quota_exhausted" });
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
  const settings = await ask(`${sandbox.consoleUrl}/api/v1/settings/public`);
  t.match(settings.json, { code: 0, data: { site_name: "keybearer sandbox", api_base_url: sandbox.origin } });
});

t.test("a key sees its own sums and its price factor", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox, "coding");
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello("sandbox-code"));
  const row = sandbox.usage()[0];
  const seen = await get(`${sandbox.baseUrl}/usage`, text);
  const total = { requests: 1, input_tokens: row?.tokens.input, actual_cost: row?.cost.actual };
  t.match(seen.json, { mode: "unrestricted", isValid: true, unit: "USD", usage: { total, today: total } });
  t.match(seen.json, { balance: sandbox.balance, model_stats: [{ model: "sandbox-code", requests: 1 }] });
  t.match((await get(`${sandbox.baseUrl}/sub2api/billing`, text)).json, {
    object: "sub2api.key_billing",
    schema_version: 1,
    effective_rate_multiplier: 1.5,
  });
});

t.test("an expired key still sees its sums, a disabled one does not", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { id, key } = sandbox.createKey({ name: "x", group: "default", expiresAt: clock.now(), quota: 1 });
  const usage = () => get(`${sandbox.baseUrl}/usage`, key.reveal());
  t.match(await usage(), { status: 200, json: { isValid: false, status: "expired", remaining: 1 } });
  sandbox.disableKey(id);
  t.equal((await usage()).status, 401);
});

t.test("the console can be told to slow readers of the log down, as the real one does", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock, consoleUsagePerMinute: 2 });
  const { session, call } = await atConsole(sandbox);
  t.same([(await call("GET", "/usage")).status, (await call("GET", "/usage")).status], [200, 200]);
  const refused = await get(`${sandbox.consoleUrl}/api/v1/usage`, session.access_token);
  t.equal(refused.status, 429);
  t.match(refused.json, { code: "RATE_LIMITED" });
  t.equal(refused.headers.get("retry-after"), "60");
  t.equal((await call("GET", "/keys")).status, 200, "the rest is not slowed");
  clock.pass(60_000);
  t.equal((await call("GET", "/usage")).status, 200);
});

t.test(
  "what the console does not know is a plain 404, and a body that is no object is refused",
  async (t) => {
    const sandbox = await startSandbox(t);
    const missing = await ask(`${sandbox.consoleUrl}/api/v1/nothing`);
    t.match(missing, { status: 404, text: "404 page not found" });
    t.equal((await ask(`${sandbox.consoleUrl}/api/v1/__proto__`)).status, 404);
    const { session } = await atConsole(sandbox);
    t.equal((await post(`${sandbox.consoleUrl}/api/v1/keys`, session.access_token, "[1]")).status, 400);
    t.equal((await post(`${sandbox.consoleUrl}/api/v1/auth/login`, "", {})).status, 400);
  },
);

t.test("rows can be held back: billed at once, listed late, with the time of the request", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { text } = newKey(sandbox);
  sandbox.holdUsage();
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  const asked = clock.now();
  const { call } = await atConsole(sandbox);
  t.equal((await call("GET", "/usage")).data.total, 0);
  t.ok(sandbox.balance < 100);
  clock.pass(5000);
  sandbox.releaseUsage();
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  const { items } = (await call("GET", "/usage?sort_order=asc")).data;
  t.same(
    items.map((row: { id: number }) => row.id),
    [1, 2],
  );
  t.equal(Date.parse(items[0].created_at), asked);
});
