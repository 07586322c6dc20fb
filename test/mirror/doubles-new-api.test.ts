import t from "tap";
import type { Use } from "../doubles/consoles/console-double.ts";
import { ask, type Json, KEY, newApi, USE } from "../doubles/consoles/visitor.ts";

const MESSAGES: Use = { ...USE, endpoint: "/v1/messages" };

t.test("new-api numbers rows by their place in the answer", async (t) => {
  const { double, get } = await newApi(t);
  for (let n = 0; n < 12; n += 1) double.bill(USE);
  const ids = async (query: string) => (await get(`/log/self?type=2&${query}`)).items.map(({ id }) => id);
  t.same(await ids("p=1&page_size=3"), [1, 2, 3]);
  t.same(await ids("p=2&page_size=3"), [4, 5, 6]);
  const newest = (await get("/log/self?type=2&p=1&page_size=1")).items[0]?.request_id;
  double.bill(USE);
  const after = (await get("/log/self?type=2&p=2&page_size=1")).items[0];
  t.same(
    [after?.id, after?.request_id],
    [2, newest],
    "the same row has another number, and may be on another page",
  );
  t.equal((await get("/log/self?type=2")).items.length, 10, "ten unless told");
});

t.test("new-api gives a hundred rows at most, and counts to ten thousand", async (t) => {
  const { double, get } = await newApi(t);
  for (let n = 0; n < 10_050; n += 1) double.bill(USE);
  const { items, json } = await get("/log/self?type=2&page_size=500");
  t.same([items.length, json.data?.page_size, json.data?.total], [100, 100, 10_000]);
  t.equal((await get("/log/self?type=2&p=101&page_size=100")).items.length, 50, "though there are more");
  const mine = await ask(double.url, "/api/log/token", { authorization: `Bearer ${KEY}` });
  t.equal(mine.items.length, 1000);
});

t.test("new-api's window of time has whole seconds and holds both its ends", async (t) => {
  const { double, get } = await newApi(t);
  for (const at of [999, 1000, 1999, 2000, 2999, 3000]) double.bill({ ...USE, at: 1_780_000_000_000 + at });
  const { items } = await get("/log/self?type=2&start_timestamp=1780000001&end_timestamp=1780000002");
  t.same(
    items.map(({ created_at }) => created_at),
    [1780000002, 1780000002, 1780000001, 1780000001],
  );
});

t.test("new-api means two things by prompt_tokens, and tells which in a string", async (t) => {
  const { double, get } = await newApi(t);
  double.bill(USE);
  double.bill(MESSAGES);
  const [messages, chat] = (await get("/log/self?type=2")).items;
  t.equal(typeof chat?.other, "string");
  t.same([chat?.prompt_tokens, messages?.prompt_tokens], [16, 10]);
  const other = (row: Json | undefined) => JSON.parse(String(row?.other));
  t.match(other(chat), { cache_tokens: 4, cache_creation_tokens: 2, group_ratio: 1.5, user_group_ratio: -1 });
  t.equal(other(chat).usage_semantic, undefined);
  t.match(other(messages), { usage_semantic: "anthropic", claude: true, cache_tokens: 4 });
  t.equal(chat?.quota, 1500);
});

t.test("new-api lists failed attempts under one id, and things that are no usage", async (t) => {
  const { double, get } = await newApi(t);
  const { requestId } = double.bill({ ...USE, errors: 2 });
  double.bill({ ...USE, refund: true });
  const rows = (await get("/log/self?page_size=100")).items;
  const types = rows.filter(({ request_id }) => String(request_id) === requestId).map(({ type }) => type);
  t.same(types, [2, 5, 5]);
  t.same(
    rows.map(({ type }) => type),
    [6, 1, 2, 5, 5],
  );
});

t.test("new-api of old wants the user's number, and refuses with 200", async (t) => {
  const { double } = await newApi(t, { version: "v0.13.2" });
  const authorization = `Bearer ${double.login.accessToken}`;
  const self = (headers: Record<string, string>) => ask(double.url, "/api/user/self", headers);
  t.equal((await self({ authorization })).status, 401);
  t.equal((await self({ authorization, "new-api-user": "8" })).status, 401);
  t.equal((await self({ authorization, "new-api-user": "7" })).json.data?.id, 7);
  const wrong = await self({ authorization: "Bearer wrong", "new-api-user": "7" });
  t.same([wrong.status, wrong.json.success], [200, false]);
  const { double: recent } = await newApi(t);
  t.equal((await ask(recent.url, "/api/user/self", { authorization })).status, 200);
  const now = await ask(recent.url, "/api/user/self", { authorization: "Bearer wrong" });
  t.same([now.status, now.json.code], [401, "AUTH_UNAUTHORIZED"]);
});

t.test("new-api answers a key twenty times in twenty minutes, whatever it asks", async (t) => {
  for (const version of ["v0.13.2", "v1.0.0-rc.25"] as const) {
    let now = 1_780_000_000_000;
    const { double } = await newApi(t, { version, now: () => now });
    const headers = { authorization: `Bearer ${KEY}` };
    for (let n = 0; n < 20; n += 1) {
      const path = n % 2 === 0 ? "/api/log/token" : "/api/usage/token/";
      t.equal((await ask(double.url, path, headers)).status, 200);
    }
    const refused = await ask(double.url, "/api/log/token", headers);
    t.same([refused.status, refused.text], [429, ""]);
    t.equal(refused.headers.get("retry-after"), version === "v0.13.2" ? null : "1200");
    now += 1_200_000;
    t.equal((await ask(double.url, "/api/log/token", headers)).status, 200);
  }
});

t.test("new-api masks keys, never says that one is expired, and sends on who forgot a slash", async (t) => {
  const { double, get } = await newApi(t);
  double.addKey({ name: "old", key: "sk-9876543210fedcba", expiresAt: 1000, quota: 1 });
  const [old, codex] = (await get("/token/")).items;
  t.equal(codex?.key, "0123**********6789");
  t.same([old?.status, old?.expired_time, old?.unlimited_quota, old?.remain_quota], [1, 1, false, 500_000]);
  t.equal((await get("/token")).status, 301);
  t.equal((await get("/usage/token")).status, 301);
  t.equal((await get("/user/self/groups")).json.data?.auto?.ratio, "自动");
  t.throws(() => double.addKey({ name: "x", key: "sk-with-hyphens" }), /cuts keys at a hyphen/);
});

t.test("new-api hands out another gateway's id where it relays one, if it is old", async (t) => {
  const handed = async (version: "v0.13.2" | "v1.0.0-rc.25", stream: boolean) => {
    const { double, get } = await newApi(t, { version, relayed: true });
    const answer = await ask(
      double.url,
      "/v1/chat/completions",
      { authorization: `Bearer ${KEY}` },
      { model: "m", stream },
    );
    const row = (await get("/log/self?type=2")).items[0];
    const id = answer.headers.get("x-oneapi-request-id");
    t.equal(answer.headers.get("x-new-api-version"), version);
    return { own: id === String(row?.request_id), upstream: row?.upstream_request_id };
  };
  t.same(await handed("v0.13.2", false), { own: false, upstream: undefined });
  t.same(await handed("v0.13.2", true), { own: true, upstream: undefined });
  t.match(await handed("v1.0.0-rc.25", false), { own: true, upstream: /^\d{23}/ });
});

t.test("new-api lets a disabled key read its rows only where it is old", async (t) => {
  const status = async (version: "v0.13.2" | "v1.0.0-rc.25") => {
    const { double } = await newApi(t, { version });
    double.addKey({ name: "off", key: "sk-off0off0off0", disabled: true });
    return (await ask(double.url, "/api/log/token", { authorization: "Bearer sk-off0off0off0" })).status;
  };
  t.same([await status("v0.13.2"), await status("v1.0.0-rc.25")], [200, 401]);
});
