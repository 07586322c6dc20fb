import t from "tap";
import { type Sub2apiOptions, startSub2api } from "../doubles/consoles/sub2api.ts";
import { ask, KEY, sub2api, USE } from "../doubles/consoles/visitor.ts";

t.test("sub2api counts days, not times, and in its own zone unless told another", async (t) => {
  const { double, get } = await sub2api(t);
  double.bill({ ...USE, at: Date.parse("2026-08-20T15:59:59Z"), model: "still the 20th in Shanghai" });
  double.bill({ ...USE, at: Date.parse("2026-08-20T16:00:01Z"), model: "the 21st there" });
  const models = async (query: string) => (await get(`/usage?${query}`)).items.map(({ model }) => model);
  t.same(await models("start_date=2026-08-21"), ["the 21st there"]);
  t.same(await models("start_date=2026-08-21&timezone=UTC"), []);
  t.equal((await models("start_date=2026-08-20&end_date=2026-08-20&timezone=UTC")).length, 2);
  const wrong = await get("/usage?start_date=2026-08-20T10:00:00Z");
  t.same([wrong.status, wrong.json.code], [400, 400]);
});

t.test("sub2api takes a page beyond its most for no size at all", async (t) => {
  for (const [version, most] of [
    ["0.1.179", 1000],
    ["0.1.27", 100],
  ] as const) {
    const { double, get } = await sub2api(t, { version });
    for (let n = 0; n < 30; n += 1) double.bill(USE);
    t.equal((await get(`/usage?page_size=${most}`)).items.length, 30, version);
    const { items, json } = await get(`/usage?page_size=${most + 1}`);
    t.same([items.length, json.data?.total, json.data?.pages], [20, 30, 2], version);
  }
});

t.test(
  "sub2api's rows have growing ids, money in dollars, input without cache and a whole key inside",
  async (t) => {
    const { double, get } = await sub2api(t);
    const { requestId } = double.bill(USE);
    double.bill({ ...USE, at: Date.now() - 60_000 });
    const [first, second] = (await get("/usage")).items;
    t.equal(first?.request_id, `client:${requestId}`);
    t.ok(Number(second?.id) > Number(first?.id), "a row that was written later, of an earlier request");
    t.same(
      [first?.input_tokens, first?.cache_read_tokens, first?.cache_creation_tokens, first?.output_tokens],
      [10, 4, 2, 3],
    );
    t.same([first?.actual_cost, first?.rate_multiplier], [0.003, 1.5]);
    t.ok(Math.abs(Number(first?.total_cost) - 0.002) < 1e-9);
    t.match(first?.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+08:00$/);
    t.equal(first?.api_key?.key, KEY);
    t.equal((await get("/keys")).items[0]?.key, KEY);
    const shown = await get(`/usage/${first?.id}`);
    t.equal(shown.json.data?.request_id, first?.request_id);
    const up = await get("/usage?sort_by=id&sort_order=asc");
    t.same(
      up.items.map(({ id }) => id),
      [first?.id, second?.id],
    );
  },
);

t.test("sub2api lists nobody's rows but the account's", async (t) => {
  const { get } = await sub2api(t);
  const other = await get("/usage?api_key_id=999");
  t.same([other.status, other.json.code], [403, 403]);
  t.equal((await get("/usage/errors")).status, 403);
});

t.test("sub2api's refresh tokens are good for once", async (t) => {
  const { double, session, get } = await sub2api(t);
  const refresh = (token: unknown) => ask(double.url, "/api/v1/auth/refresh", {}, { refresh_token: token });
  const renewed = await refresh(session.refresh_token);
  t.not(renewed.json.data?.refresh_token, session.refresh_token);
  const again = await refresh(session.refresh_token);
  t.same([again.status, again.json.code], [401, 401], "a handler's code is a number");
  t.equal((await refresh(renewed.json.data?.refresh_token)).status, 200);
  double.endSessions("access");
  const late = await get("/auth/me");
  t.same([late.status, late.json.code], [401, "TOKEN_EXPIRED"], "what stands before has a word");
});

t.test("sub2api ends the session of whoever changes the user agent", async (t) => {
  const { get } = await sub2api(t);
  t.equal((await get("/auth/me")).status, 200);
  const moved = await get("/auth/me", { "user-agent": "another" });
  t.same([moved.status, moved.json.code], [401, "SESSION_BINDING_MISMATCH"]);
  t.equal((await get("/auth/me")).json.code, "TOKEN_REVOKED", "for good");
});

t.test("sub2api asks for a second factor, or keeps programs out", async (t) => {
  const { double, session } = await sub2api(t, { secondFactor: true });
  t.same([session.requires_2fa, session.access_token], [true, undefined]);
  const second = (totp_code: string) =>
    ask(double.url, "/api/v1/auth/login/2fa", {}, { temp_token: session.temp_token, totp_code });
  t.equal((await second("000000")).status, 400);
  t.ok((await second(double.login.code)).json.data?.refresh_token);
  const closed = await startSub2api(t, { captcha: true });
  const { email, password } = closed.login;
  const answer = await ask(closed.url, "/api/v1/auth/login", {}, { email, password });
  t.same([answer.status, answer.json.reason], [400, "TURNSTILE_VERIFICATION_FAILED"]);
  t.notMatch(closed.config.join(), "password");
  const copied = { refresh_token: closed.refreshToken() };
  t.equal((await ask(closed.url, "/api/v1/auth/refresh", {}, copied)).status, 200);
});

t.test("sub2api lets the log be read 60 times a minute, and says when to come back", async (t) => {
  const { get } = await sub2api(t, { now: () => 1_780_000_010_000 });
  for (let n = 0; n < 60; n += 1) t.equal((await get("/usage?page_size=1")).status, 200);
  const refused = await get("/usage");
  t.same([refused.status, refused.json.code], [429, "RATE_LIMITED"]);
  t.match(refused.headers.get("retry-after"), /^\d+$/);
  t.equal((await get("/keys")).status, 200, "the rest has more room");
});

t.test("sub2api answers wrong paths with its web page, but for those of its interfaces", async (t) => {
  const { double } = await sub2api(t);
  const page = await ask(double.url, "/messages", {}, {});
  t.same([page.status, page.headers.get("content-type")], [200, "text/html; charset=utf-8"]);
  const none = await ask(double.url, "/api/v1/log/self");
  t.same([none.status, none.text], [404, "404 page not found"]);
});

t.test("sub2api tells the client's own id back, which is in no row", async (t) => {
  const handed = async (options: Sub2apiOptions) => {
    const { double, get } = await sub2api(t, options);
    const headers = { authorization: `Bearer ${KEY}`, "x-request-id": "mine", "x-client-request-id": "mine" };
    const answer = await ask(double.url, "/v1/chat/completions", headers, { model: "m" });
    const row = (await get("/usage")).items[0]?.request_id;
    return { of: (name: string) => answer.headers.get(name), row };
  };
  const now = await handed({});
  t.equal(now.row, `client:${now.of("x-client-request-id")}`);
  t.equal(now.of("x-request-id"), "mine");
  const silent = await handed({ version: "0.1.106" });
  t.equal(silent.of("x-client-request-id"), null);
  t.match(silent.row, /^client:/);
  const old = await handed({ version: "0.1.27" });
  t.equal(old.row, old.of("x-request-id"));
});
