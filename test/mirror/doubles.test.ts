import t from "tap";
import type { Fault } from "../doubles/consoles/console-double.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { EVERY_CONSOLE, startConsole } from "../doubles/consoles/start-console.ts";
import { startSub2api } from "../doubles/consoles/sub2api.ts";
import { ask, KEY, keyed, oneApi, USE } from "../doubles/consoles/visitor.ts";
import { until } from "../doubles/until.ts";

t.test("one-api counts pages from 0, ten rows each, in a bare list without ids", async (t) => {
  const { double, get } = await oneApi(t);
  for (let n = 0; n < 12; n += 1) double.bill({ ...USE, model: `m${n}` });
  const models = async (p: number) =>
    (await get(`/log/self?type=2&page_size=100&p=${p}`)).items.map(({ model_name }) => model_name);
  t.same((await models(0))[0], "m11");
  t.same(await models(1), ["m1", "m0"]);
  const { json, items } = await get("/log/self?type=2");
  t.ok(Array.isArray(json.data));
  t.match(items[0], { id: 0, token_name: "codex", prompt_tokens: 16, quota: 1500 });
  t.notOk(items.some((row) => "token_id" in row || "group" in row || "other" in row));
  const all = [...(await get("/log/self")).items, ...(await get("/log/self?p=1")).items];
  const types = new Set<unknown>(all.map(({ type }) => type));
  t.same(types, new Set([2, 3, 5, 1]), "what is no usage is among them, and 5 is no error");
});

t.test("one-api refuses with 200, limits with nothing, and has no messages", async (t) => {
  const { double, get } = await oneApi(t);
  const wrong = await get("/log/self", { authorization: "wrong" });
  t.same([wrong.status, wrong.json.success], [200, false]);
  const messages = await ask(double.url, "/v1/messages", { "x-api-key": KEY }, { model: "m" });
  t.same([messages.status, messages.json.error?.message], [404, "Invalid URL (POST /v1/messages)"]);
  t.equal(messages.headers.get("x-new-api-version"), null);
  t.equal((await get("/token/")).items[0]?.key, KEY.slice(3), "the whole key, without its beginning");
  let last = wrong;
  for (let n = 0; n < 480 && last.status === 200; n += 1) last = await get("/status");
  t.same([last.status, last.text, last.headers.get("retry-after")], [429, "", null]);
});

for (const name of EVERY_CONSOLE) {
  t.test(`${name} holds rows back, is ahead of time, and logs nothing where it is told so`, async (t) => {
    const now = Date.UTC(2026, 10, 15, 12);
    const double = keyed(await startConsole(t, name, { now: () => now }));
    double.bill(USE);
    const before = double.rows();
    double.hold();
    double.skew = 120_000;
    double.bill(USE);
    t.equal(double.rows(), before);
    double.release();
    t.ok(double.rows() > before);
    double.logging = false;
    double.bill(USE);
    t.equal(double.rows(), before + 1);
    const { headers } = await ask(double.url, "/api/status");
    t.equal(Date.parse(headers.get("date") ?? "") - now, 120_000);
  });

  t.test(`${name} fails in every way while its gateway part goes on`, async (t) => {
    const double = keyed(await startConsole(t, name));
    const path = double.kind === "sub2api" ? "/api/v1/usage" : "/api/log/self";
    const shown = { authorization: "Bearer a-secret" };
    const failed = async (fault: Fault) => {
      double.fault = fault;
      return ask(double.url, path, shown);
    };
    t.match((await failed("html")).text, "<html");
    t.equal((await failed("empty")).text, "");
    t.same((await failed("shape")).json.data, undefined);
    t.same((await failed("data")).json.data, "nothing");
    t.equal((await failed("500")).status, 500);
    t.equal((await failed("429")).status, 429);
    t.equal((await failed("401")).status, name.startsWith("one-api") || name.endsWith("v0.13.2") ? 200 : 401);
    const moved = await failed("redirect");
    t.same([moved.status, new URL(moved.headers.get("location") ?? "").origin], [302, double.thief.url]);
    t.same(double.thief.seen, [], "nobody went there yet");
    await fetch(moved.headers.get("location") ?? "", { headers: shown });
    t.ok(double.thief.seen.some((line) => /^authorization: Bearer a-secret$/i.test(line)));
    await t.rejects(failed("cut"));
    const chat = await ask(
      double.url,
      "/v1/chat/completions",
      { authorization: `Bearer ${KEY}` },
      { model: "m" },
    );
    t.equal(chat.status, 200);
    const slow = failed("slow");
    await until("it was asked", () => double.asked.length === 10);
    double.fault = null;
    t.not((await slow).status, 0, "it answers after all");
    t.equal(
      double.asked.every(({ credential }) => credential),
      true,
    );
    t.notMatch(JSON.stringify(double.asked), "a-secret");
  });
}

t.test("a request whose client leaves before its head, or in its body, is billed all the same", async (t) => {
  const double = keyed(await startNewApi(t));
  const send = (how: string) => {
    const leave = new AbortController();
    const headers = { authorization: `Bearer ${KEY}`, [`x-test-${how}`]: "1" };
    const body = JSON.stringify({ model: "m", stream: true });
    const answer = fetch(`${double.url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body,
      signal: leave.signal,
    });
    return { answer, leave };
  };
  const midway = send("hang-in-body");
  t.match((await midway.answer).headers.get("x-oneapi-request-id"), /^\d{23}/);
  t.equal(double.rows(), 0);
  midway.leave.abort();
  await until("the row", () => double.rows() === 2);
  const early = send("hang-before-headers");
  await until("it came there", () => double.reached() === 2);
  early.leave.abort();
  await t.rejects(early.answer);
  await until("the row of it", () => double.rows() === 3);
});

t.test("what no console lists is not billed: models, counting, refusals, failures", async (t) => {
  const double = keyed(await startSub2api(t));
  const shown = { authorization: `Bearer ${KEY}` };
  t.equal((await ask(double.url, "/v1/models", shown)).status, 200);
  t.equal((await ask(double.url, "/v1/messages/count_tokens", shown, { model: "m" })).json.input_tokens, 12);
  const stranger = await ask(double.url, "/v1/messages", { "x-api-key": "sk-nobody" }, { model: "m" });
  t.same([stranger.status, stranger.json.code], [401, "INVALID_API_KEY"]);
  const broken = await ask(double.url, "/v1/messages", { ...shown, "x-test-status": "502" }, { model: "m" });
  t.same([broken.status, broken.json.type], [502, "error"]);
  await ask(double.url, "/v1/messages", { ...shown, "x-test-no-row": "1" }, { model: "m" });
  t.equal(double.rows(), 0);
});
