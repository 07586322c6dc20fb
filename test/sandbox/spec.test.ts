import { createConnection } from "node:net";
import t from "tap";
import { ask, atConsole, get, heldClock, hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

const HOUR = 60 * 60 * 1000;
const NO_KEY_MESSAGE =
  "API key is required in Authorization header (Bearer scheme), x-api-key header, or x-goog-api-key header";
const NOT_IN_GROUP = 'Model "sandbox-small" is not supported by any configured account in this group';

t.test("2 a key needs a name and a group", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  t.equal((await call("POST", "/keys", { group_id: 1 })).status, 400);
  t.equal((await call("POST", "/keys", { name: "laptop" })).status, 404);
  t.equal((await call("POST", "/keys", { name: "laptop", group_id: 99 })).status, 404);
  t.same(sandbox.account.keys, [], "nothing was made");
  t.throws(() => sandbox.createKey({ name: "laptop", group: "nowhere" }), { message: /no group nowhere/ });
});

t.test("2 quota, rate limit and expiry are off unless set", async (t) => {
  const { call } = await atConsole(await startSandbox(t, { clock: heldClock() }));
  const bare = await call("POST", "/keys", { name: "laptop", group_id: 1 });
  t.match(bare.data, { quota: 0, rpm_limit: 0, concurrency: 0, expires_at: null, status: "active" });
  const full = await call("POST", "/keys", {
    name: "phone",
    group_id: 2,
    quota: 2.5,
    rpm_limit: 30,
    concurrency: 2,
    expires_in_days: 7,
  });
  t.match(full.data, {
    quota: 2.5,
    rpm_limit: 30,
    concurrency: 2,
    group: { name: "coding", rate_multiplier: 1.5 },
  });
  t.equal(Date.parse(full.data.expires_at) - Date.parse(full.data.created_at), 7 * 24 * HOUR);
});

t.test("2 a key string is generated unless one is fixed by hand", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  t.match(newKey(sandbox).text, /^sk-[0-9a-f]{64}$/);
  const custom = "my-own_key-0123456789";
  const made = await call("POST", "/keys", { name: "mine", group_id: 1, custom_key: custom });
  t.equal(made.data.key, custom);
  t.equal((await get(`${sandbox.baseUrl}/models`, custom)).status, 200);

  const again = (key: string) => call("POST", "/keys", { name: "mine", group_id: 1, custom_key: key });
  t.match(await again(custom), { status: 409, code: 409, reason: "API_KEY_EXISTS" });
  t.match(await again("short"), { status: 400, reason: "API_KEY_TOO_SHORT" });
  t.match(await again("with a space and more"), { status: 400, reason: "API_KEY_INVALID_CHARS" });
});

t.test("2.1 anyone with the key spends the account's balance", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  const rows = sandbox.usage();
  t.equal(rows.length, 2);
  const spent = rows.reduce((sum, row) => sum + row.cost.actual, 0);
  t.ok(spent > 0);
  t.equal(sandbox.account.balance.toFixed(9), (100 - spent).toFixed(9));
});

t.test("2.2 the whole key string is shown once, when it is made", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  const made = await call("POST", "/keys", { name: "laptop", group_id: 1 });
  const text: string = made.data.key;
  t.match(text, /^sk-[0-9a-f]{64}$/);
  const later = await call("GET", "/keys");
  t.notOk(JSON.stringify(later).includes(text));
  t.equal(later.data.items[0].key, `${text.slice(0, 7)}…${text.slice(-4)}`);
  t.notOk(JSON.stringify(sandbox.account.keys).includes(text));
});

t.test("2.3 a model outside the key's group is refused, in the caller's protocol", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox, "coding");
  t.equal((await post(`${sandbox.baseUrl}/chat/completions`, text, hello("sandbox-code"))).status, 200);

  const openAi = { error: { type: "model_not_found", message: NOT_IN_GROUP } };
  for (const path of ["chat/completions", "responses", "completions"]) {
    const refused = await post(`${sandbox.baseUrl}/${path}`, text, hello());
    t.equal(refused.status, 404, path);
    t.same(refused.json, openAi, path);
  }
  const message = await post(`${sandbox.origin}/v1/messages`, text, hello());
  t.equal(message.status, 404);
  t.same(message.json, { type: "error", ...openAi });
  const gemini = await post(`${sandbox.origin}/v1beta/models/sandbox-small:generateContent`, text, {});
  t.same(gemini.json, { error: { code: 404, status: "NOT_FOUND", message: NOT_IN_GROUP } });
  t.equal(sandbox.usage().length, 1, "what was refused is not in the log");
});

t.test("2.3 a key whose group is not enabled is refused, from the next request on", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox, "coding");
  const models = () => get(`${sandbox.baseUrl}/models`, text);
  t.equal((await models()).status, 200);
  sandbox.setGroupEnabled("coding", false);
  t.match(await models(), {
    status: 403,
    json: { code: "GROUP_DISABLED", message: "API Key 所属分组已停用" },
  });
  sandbox.setGroupEnabled("coding", true);
  t.equal((await models()).status, 200);
  const retired = newKey(sandbox, "retired");
  t.equal((await get(`${sandbox.baseUrl}/models`, retired.text)).status, 403);
});

t.test("2 a name from the model list is good as a model setting", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox, "coding");
  const list = JSON.parse((await get(`${sandbox.baseUrl}/models`, text)).text);
  t.same(
    list.data.map((model: { id: string }) => model.id),
    ["sandbox-large", "sandbox-code"],
  );
  for (const { id } of list.data) {
    const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, hello(id));
    t.match(answer, { status: 200, json: { model: id } });
  }
});

t.test("3 a new key is active, a disabled one refused until it is enabled again", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  const models = () => get(`${sandbox.baseUrl}/models`, text);
  t.equal(sandbox.keyStatus(id), "active");
  t.equal((await models()).status, 200);
  sandbox.disableKey(id);
  t.equal(sandbox.keyStatus(id), "disabled");
  const refused = await models();
  t.equal(refused.status, 401);
  t.same(refused.json, { code: "API_KEY_DISABLED", message: "API key is disabled" });
  sandbox.enableKey(id);
  t.equal((await models()).status, 200);
});

t.test("3 a key is expired from its time on, and good again when it gets more", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { id, key } = sandbox.createKey({ name: "week", group: "default", expiresAt: clock.now() + HOUR });
  const models = () => get(`${sandbox.baseUrl}/models`, key.reveal());
  clock.pass(HOUR - 1);
  t.equal((await models()).status, 200);
  clock.pass(1);
  const refused = await models();
  t.equal(refused.status, 403);
  t.same(refused.json, { code: "API_KEY_EXPIRED", message: "API key 已过期" });
  t.equal(sandbox.keyStatus(id), "expired");
  const { call } = await atConsole(sandbox);
  t.equal((await call("PUT", `/keys/${id}`, { expires_at: "" })).data.status, "active");
  t.equal((await models()).status, 200);
});

t.test("3 a deleted key is unknown, cannot come back, and its rows stay", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  sandbox.deleteKey(id);
  const refused = await get(`${sandbox.baseUrl}/models`, text);
  t.equal(refused.status, 401);
  t.same(refused.json, { code: "INVALID_API_KEY", message: "Invalid API key" });
  t.equal(sandbox.keyStatus(id), "deleted");
  const { call } = await atConsole(sandbox);
  t.same((await call("GET", "/keys")).data.items, []);
  t.equal((await call("GET", "/usage")).data.items[0].api_key_id, id);
});

t.test("4 the model list shows that address, key and path all work", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const list = await get(`${sandbox.baseUrl}/models`, text);
  t.equal(list.status, 200);
  t.match(list.json, {
    object: "list",
    has_more: false,
    first_id: "sandbox-large",
    last_id: "sandbox-embed",
  });
  t.match(list.json, { data: [{ id: "sandbox-large", object: "model", owned_by: "keybearer-sandbox" }] });
  t.match(list.headers.get("x-client-request-id"), /^[0-9a-f-]{36}$/);
  t.same(sandbox.usage(), [], "listing is not in the usage log");
});

t.test("4 every gateway answer has its own request id, which the caller cannot choose", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const chosen = "11111111-1111-4111-8111-111111111111";
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, hello(), {
    "x-client-request-id": chosen,
  });
  const id = answer.headers.get("x-client-request-id");
  t.not(id, chosen);
  t.equal(sandbox.usage()[0]?.requestId, `client:${id}`);
  t.ok((await ask(`${sandbox.baseUrl}/models`)).headers.get("x-client-request-id"), "a refusal too");
});

t.test("4 console actions take effect at once: create, disable, delete", async (t) => {
  const sandbox = await startSandbox(t);
  const { call } = await atConsole(sandbox);
  const made = await call("POST", "/keys", { name: "laptop", group_id: 1 });
  const status = async () => (await get(`${sandbox.baseUrl}/models`, made.data.key)).status;
  t.equal(await status(), 200);
  await call("PUT", `/keys/${made.data.id}`, { status: "inactive" });
  t.equal(await status(), 401);
  await call("PUT", `/keys/${made.data.id}`, { status: "active" });
  t.equal(await status(), 200);
  await call("DELETE", `/keys/${made.data.id}`);
  t.equal(await status(), 401);
});

t.test("5.1 without a key no endpoint answers", async (t) => {
  const sandbox = await startSandbox(t);
  const wanted = { status: 401, json: { code: "API_KEY_REQUIRED", message: NO_KEY_MESSAGE } };
  for (const path of ["/v1/models", "/v1/usage", "/v1beta/models"]) {
    t.match(await ask(sandbox.origin + path), wanted, path);
  }
  const posts = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"];
  posts.push("/v1/embeddings", "/v1/completions", "/v1beta/models/sandbox-large:generateContent");
  for (const path of posts) {
    t.match(await ask(sandbox.origin + path, { method: "POST", body: "{}" }), wanted, path);
  }
});

t.test("5.2 and 5.3 the key is taken from Bearer, x-api-key or x-goog-api-key", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const slots = [
    { authorization: `Bearer ${text}` },
    { authorization: `bearer ${text}` },
    { "x-api-key": text },
  ];
  for (const headers of [...slots, { "x-goog-api-key": text }]) {
    const name = Object.keys(headers).join();
    t.equal((await ask(`${sandbox.baseUrl}/models`, { headers })).status, 200, name);
  }
  const basic = { authorization: `Basic ${text}` };
  t.equal((await ask(`${sandbox.baseUrl}/models`, { headers: basic })).status, 401, "not as Basic");
});

t.test("5.3 messages are answered with the same key in either header", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  for (const headers of [{ "x-api-key": text }, { authorization: `Bearer ${text}` }]) {
    const init = { method: "POST", headers, body: JSON.stringify(hello()) };
    t.equal((await ask(`${sandbox.origin}/v1/messages`, init)).status, 200);
  }
});

t.test("5.4 a key with a character missing, too many, or a space inside is unknown", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const wrong = [text.slice(0, -1), text.slice(1), `${text}0`, `${text.slice(0, 30)} ${text.slice(30)}`];
  for (const key of [...wrong, text.toUpperCase(), "sk-"]) {
    const refused = await get(`${sandbox.baseUrl}/models`, key);
    t.equal(refused.status, 401);
    t.same(refused.json, { code: "INVALID_API_KEY", message: "Invalid API key" });
  }
});

t.test(
  "5.5 with one key per client, usage tells the clients apart, and a leak is closed for one only",
  async (t) => {
    const sandbox = await startSandbox(t);
    const [laptop, phone] = [newKey(sandbox), newKey(sandbox)];
    await post(`${sandbox.baseUrl}/chat/completions`, laptop.text, hello());
    await post(`${sandbox.baseUrl}/chat/completions`, phone.text, hello());
    t.same(
      sandbox.usage().map((row) => row.keyId),
      [laptop.id, phone.id],
    );
    sandbox.deleteKey(laptop.id);
    t.equal((await get(`${sandbox.baseUrl}/models`, laptop.text)).status, 401);
    t.equal((await get(`${sandbox.baseUrl}/models`, phone.text)).status, 200);
    t.equal(
      (await get(`${sandbox.baseUrl}/models`, newKey(sandbox).text)).status,
      200,
      "a new key takes its place",
    );
  },
);

t.test("5.6 deleting a key ends it on connections that are already open", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  const socket = createConnection(Number(new URL(sandbox.origin).port), "127.0.0.1");
  t.teardown(() => socket.destroy());
  let heard = "";
  socket.on("data", (chunk) => {
    heard += chunk;
  });
  const request = `GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${text}\r\n\r\n`;
  socket.write(request);
  await until("the list came", () => heard.includes('"last_id"'));
  sandbox.deleteKey(id);
  socket.write(request);
  await until("the second answer came", () => heard.includes("INVALID_API_KEY"));
});

t.test("7 a spent quota is refused, on /responses in the shape that Codex reads", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "small", group: "default", quota: 0.000001 });
  const text = key.reveal();
  t.equal(
    (await post(`${sandbox.baseUrl}/chat/completions`, text, hello())).status,
    200,
    "the last one goes through",
  );
  const refused = await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  t.equal(refused.status, 429);
  t.same(refused.json, { code: "API_KEY_QUOTA_EXHAUSTED", message: "API key 额度已用完" });
  const codex = await post(`${sandbox.baseUrl}/responses`, text, { model: "sandbox-code", input: "hi" });
  t.equal(codex.status, 429);
  const type = "insufficient_quota";
  t.same(codex.json, { error: { message: "API key 额度已用完", type, param: null, code: type } });
  t.match((await get(`${sandbox.baseUrl}/usage`, text)).json, {
    mode: "quota_limited",
    status: "quota_exhausted",
  });
});

t.test("7 an empty balance is refused, and a filled one serves again", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  sandbox.account.balance = 0;
  const refused = await post(`${sandbox.origin}/v1/messages`, text, hello());
  t.equal(refused.status, 403);
  t.same(refused.json, { code: "INSUFFICIENT_BALANCE", message: "Insufficient account balance" });
  sandbox.account.balance = 5;
  t.equal((await post(`${sandbox.origin}/v1/messages`, text, hello())).status, 200);
});

t.test("7 a wrong base URL gets a web page, or the framework's plain 404 below the API", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  for (const path of ["/chat/completions", "/messages", "/models", "/", "/v1"]) {
    const page = await post(sandbox.origin + path, text, hello());
    t.equal(page.status, 200, path);
    t.match(page.headers.get("content-type"), /^text\/html/, path);
  }
  for (const path of ["/v1/v1/messages", "/v1/chat/completions/chat/completions", "/api/hello"]) {
    const missing = await post(sandbox.origin + path, text, hello());
    t.equal(missing.status, 404, path);
    t.equal(missing.text, "404 page not found", path);
  }
  t.equal((await get(`${sandbox.baseUrl}/chat/completions`, text)).status, 404, "a wrong method too");
});

t.test("7 a body that is no JSON, or has no model, is refused in the caller's protocol", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const type = "invalid_request_error";
  for (const path of ["chat/completions", "responses", "embeddings", "completions"]) {
    const url = `${sandbox.baseUrl}/${path}`;
    for (const broken of ['{"model":', "[]", ""]) {
      const refused = await post(url, text, broken);
      t.equal(refused.status, 400, path);
      t.same(refused.json, { error: { type, message: "Failed to parse request body" } }, path);
    }
    t.same((await post(url, text, {})).json, { error: { type, message: "model is required" } }, path);
  }
  const message = await post(`${sandbox.origin}/v1/messages`, text, {});
  t.same(message.json, { type: "error", error: { type, message: "model is required" } });
});

t.test("7 a body over 32 MB is refused while the connection stays usable", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const large = await post(`${sandbox.baseUrl}/chat/completions`, text, "x".repeat(33 * 1024 * 1024));
  t.equal(large.status, 413);
  t.match(large.json, { error: { message: "Request body too large, limit is 32MB" } });
  t.equal((await get(`${sandbox.baseUrl}/models`, text)).status, 200);
});

t.test("8 a rate limit refuses more requests in a minute and says when to retry", async (t) => {
  const clock = heldClock();
  const sandbox = await startSandbox(t, { clock });
  const { key } = sandbox.createKey({ name: "two", group: "default", perMinute: 2 });
  const chat = () => post(`${sandbox.baseUrl}/chat/completions`, key.reveal(), hello());
  t.same([(await chat()).status, (await chat()).status], [200, 200]);
  clock.pass(20_000);
  const refused = await chat();
  t.equal(refused.status, 429);
  t.equal(refused.headers.get("retry-after"), "40");
  const message = "user requests-per-minute limit exceeded";
  t.same(refused.json, { error: { type: "rate_limit_exceeded", message } });
  clock.pass(40_000);
  t.equal((await chat()).status, 200);
  t.equal(sandbox.usage().length, 3);
});

t.test("8 a limit on requests at once refuses the next one until one is over", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: 20 });
  const { key } = sandbox.createKey({ name: "one", group: "default", concurrent: 1 });
  const text = key.reveal();
  const running = new AbortController();
  const headers = { authorization: `Bearer ${text}` };
  const body = JSON.stringify({ ...hello(), stream: true });
  await fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers,
    body,
    signal: running.signal,
  });
  const refused = await post(`${sandbox.origin}/v1/messages`, text, hello());
  t.equal(refused.status, 429);
  t.match(refused.json, {
    type: "error",
    error: { type: "rate_limit_error", message: "Concurrency limit exceeded for user, please retry later" },
  });
  running.abort();
  await until("the stream ended", () => sandbox.account.keys[0]?.inFlight === 0);
  t.equal((await post(`${sandbox.origin}/v1/messages`, text, hello())).status, 200);
});

t.test("8 a group's multiplier makes the same request dearer", async (t) => {
  const sandbox = await startSandbox(t);
  for (const group of ["default", "coding"]) {
    await post(`${sandbox.baseUrl}/chat/completions`, newKey(sandbox, group).text, hello("sandbox-code"));
  }
  const [plain, dear] = sandbox.usage();
  t.equal(plain?.cost.actual, plain?.cost.total);
  t.equal(dear?.cost.total, plain?.cost.total);
  t.equal(dear?.cost.actual.toFixed(9), ((dear?.cost.total ?? 0) * 1.5).toFixed(9));
  t.equal(dear?.multiplier, 1.5);
  t.equal(sandbox.account.keys[1]?.quotaUsed, dear?.cost.actual);
});

t.test("9 the base URL ends in the version segment", async (t) => {
  const sandbox = await startSandbox(t);
  t.equal(sandbox.baseUrl, `${sandbox.origin}/v1`);
  t.equal(sandbox.origin, sandbox.origin);
});
