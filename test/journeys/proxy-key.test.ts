import t from "tap";
import {
  canaryKey,
  freshToken,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";

const SLOTS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"] as const;

function slotted(slot: string, value: string): Record<string, string> {
  return { [slot]: slot === "authorization" ? `Bearer ${value}` : value };
}

t.test("the gateway gets the key and never the local token, whatever header the token came in", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { tool: ["token_in_url: true"] });
  const ways: [string, Record<string, string>][] = [
    ...SLOTS.map((slot): [string, Record<string, string>] => ["", slotted(slot, one.token)]),
    ["", { authorization: one.token }],
    ["", { authorization: `bearer   ${one.token}` }],
    ["", Object.assign({}, ...SLOTS.map((slot) => slotted(slot, one.token)))],
    [`/t/${one.token}`, {}],
    [`/t/${one.token}`, slotted("x-api-key", one.token)],
  ];
  for (const [prefix, headers] of ways) {
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1beta/models/g:generateContent"]) {
      const answer = await fetch(`${one.url}${prefix}${path}`, { method: "POST", headers, body: "{}" });
      t.equal(answer.status, 200, `${path} with ${Object.keys(headers).join(" and ") || "the address"}`);
      await answer.text();
      const call = gateway.calls.at(-1);
      t.equal(call?.target, path);
      t.equal(call?.text().split(one.key).length, 2, "the key is there once");
    }
  }
  t.notOk(gateway.received().includes("kb_"), "no token reached the gateway");
  t.equal(gateway.calls.length, ways.length * 3);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("each tool's requests go to its own gateway with its own key", async (t) => {
  const left = await startRawGateway(t, (call) => call.ok('"left"'));
  const right = await startRawGateway(t, (call) => call.ok('"right"'));
  const [a, b] = [freshToken(), freshToken()];
  const [keyA, keyB] = [canaryKey(), canaryKey()];
  const under = await startUnderTest(
    t,
    `gateways: { left: { base_url: "${left.origin}/v1" }, right: { base_url: "${right.origin}/v1" } }
tools:
  a: { gateway: left, key: ${keyA}, token: ${a.hash} }
  b: { gateway: right, key: ${keyB}, token: ${b.hash} }
`,
  );
  const ask = async (token: string) =>
    (await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } })).text();
  const order = Array.from({ length: 40 }, (_, i) => (i % 3 === 0 ? a : b));
  const answers = await Promise.all(order.map(({ token }) => ask(token)));
  t.strictSame(
    answers,
    order.map((one) => (one === a ? '"left"' : '"right"')),
  );
  for (const call of left.calls) t.strictSame(call.header("authorization"), [`Bearer ${keyA}`]);
  for (const call of right.calls) t.strictSame(call.header("authorization"), [`Bearer ${keyB}`]);
  t.notOk(left.received().includes(keyB), "the left gateway never saw the right one's key");
  t.notOk(right.received().includes(keyA));
  await stillHealthy(t, under, [keyA, keyB, a.token, b.token]);
});

t.test("another key is refused, named by its header, and never forwarded", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const foreign = canaryKey();
  for (const slot of SLOTS) {
    const answer = await fetch(`${one.url}/v1/models`, { headers: slotted(slot, foreign) });
    t.equal(answer.status, 400);
    t.equal(answer.headers.get("x-keybearer-refusal"), "foreign-key");
    t.equal(answer.headers.get("x-should-retry"), "false");
    const text = await answer.text();
    t.match(text, slot, "the header is named");
    t.notOk(text.includes(foreign), "its value is not said back");
  }
  t.equal(gateway.connections(), 0, "nothing reached the gateway");
  await stillHealthy(t, one, [one.key, foreign]);
});

t.test("a token beside a different credential is refused, and the refusal names its header", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const foreign = canaryKey();
  for (const [tokenSlot, otherSlot] of [
    ["authorization", "x-api-key"],
    ["x-api-key", "authorization"],
    ["x-goog-api-key", "api-key"],
  ] as const) {
    const headers = { ...slotted(tokenSlot, one.token), ...slotted(otherSlot, foreign) };
    const answer = await fetch(`${one.url}/v1/messages`, { method: "POST", headers, body: "{}" });
    t.equal(answer.status, 400);
    t.equal(answer.headers.get("x-keybearer-refusal"), "foreign-key");
    const { type, error } = (await answer.json()) as { type: string; error: { message: string } };
    t.equal(type, "error", "in the shape of the messages protocol");
    t.match(error.message, `the one in ${otherSlot} is not the token`);
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token, foreign]);
});

t.test("a missing, an incomplete and an unknown token each have their own refusal", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const stranger = freshToken().token;
  const cases: [string, Record<string, string>, string][] = [
    ["none", {}, "token-missing"],
    ["an empty one", { authorization: "Bearer " }, "token-missing"],
    ["half of one", { authorization: `Bearer ${one.token.slice(0, 30)}` }, "token-incomplete"],
    ["one too long", { authorization: `Bearer ${one.token}x` }, "token-incomplete"],
    ["a stranger's", { authorization: `Bearer ${stranger}` }, "token-unknown"],
    ["an attempt at SQL", { authorization: "Bearer ' OR 1=1--" }, "token-unknown"],
    ["an underscore spelling", { x_api_key: one.token }, "token-missing"],
    ["a longer underscore spelling", { authorization_: one.token }, "token-missing"],
    ["one in the address, which this tool does not take", {}, "token-unknown"],
  ];
  for (const [name, headers, code] of cases) {
    const prefix = name.startsWith("one in the address") ? `/t/${one.token}` : "";
    const answer = await fetch(`${one.url}${prefix}/v1/models`, { headers });
    t.equal(answer.status, 401, name);
    t.equal(answer.headers.get("x-keybearer-refusal"), code, name);
    t.match(await answer.json(), { error: { type: "keybearer_refusal", param: null, code } });
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token, stranger]);
});

t.test("a token at a wrong place in the URL is refused, and neither logged nor forwarded", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { tool: ["token_in_url: true"] });
  for (const path of [
    `/v1/models?key=${one.token}`,
    `/v1/models?a=b&api_key=${one.token}`,
    `/v1/t/${one.token}/models`,
    `/t/${one.token}/t/${one.token}/v1/models`,
    `/${one.token}/v1/models`,
    `/T/${one.token}/v1/models`,
    `/t/${one.token}/v1/models?key=${one.token}`,
  ]) {
    const answer = await fetch(`${one.url}${path}`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(answer.status, 400, path.replaceAll(one.token, "<token>"));
    t.notOk((await answer.text()).includes(one.token), "the answer does not say it back");
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("no header of a client can replace or accompany the key", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  client.send(
    head("GET /v1/models", {
      Host: one.host,
      Authorization: `Bearer ${one.token}`,
      Connection: "keep-alive, Authorization, X-Api-Key, X-Nominated",
      "X-Nominated": "gone",
      X_Api_Key: "sk-underscore-000000",
      Authorization_: "sk-underscore-000001",
      "Proxy-Authorization": "Basic c2VjcmV0",
      Cookie: "a=b",
      "X-Forwarded-For": "1.2.3.4",
      Forwarded: "for=1.2.3.4",
      Via: "1.1 me",
      "X-Real-IP": "1.2.3.4",
      TE: "trailers",
      "Keep-Alive": "timeout=9",
      constructor: "an ordinary header",
      __proto__x: "kept",
      "Anthropic-Beta": "one",
      "anthropic-beta": "two",
    }),
  );
  await client.until("\r\n\r\n{}");
  const [call] = gateway.calls;
  t.strictSame(call?.header("authorization"), [`Bearer ${one.key}`]);
  t.strictSame(call?.header("anthropic-beta"), ["one", "two"], "doubles that are no credentials all pass");
  t.strictSame(call?.header("constructor"), ["an ordinary header"]);
  for (const name of [
    "x-nominated",
    "x_api_key",
    "authorization_",
    "proxy-authorization",
    "cookie",
    "x-forwarded-for",
    "forwarded",
    "via",
    "x-real-ip",
    "te",
    "x-api-key",
  ]) {
    t.strictSame(call?.header(name), [], `${name} stays here`);
  }
  t.strictSame(call?.header("host"), [`127.0.0.1:${gateway.port}`]);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("the key is redacted from a long error, wherever it is in it and however it is cut", async (t) => {
  const filler = (bytes: number) => "keybearer ".repeat(Math.ceil(bytes / 10)).slice(0, bytes);
  const texts = (key: string) => [
    `${key} ${filler(70_000)}`,
    // Where the part that is read first ends.
    `${filler(65_536 - 20)}${key}${filler(5000)}`,
    `${filler(200_000)}${key}`,
    // Many times in its beginning.
    `${key.repeat(40)}${filler(66_000 - key.length * 40)}`,
  ];
  for (let which = 0; which < texts("").length; which += 1) {
    let key = "";
    const gateway = await startRawGateway(t, async (call) => {
      await call.whole;
      const body = Buffer.from(texts(key)[which] ?? "");
      call.send(`HTTP/1.1 400 Bad\r\ncontent-type: text/plain\r\ncontent-length: ${body.length}\r\n\r\n`);
      // In pieces of their own, so that each may end in the middle of the key.
      for (let at = 0; at < body.length; at += 4099) call.send(body.subarray(at, at + 4099));
    });
    const one = await startWithOneTool(t, gateway.origin);
    key = one.key;
    const answer = await fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}` },
      body: "{}",
    });
    const text = await answer.text();
    t.equal(answer.status, 400);
    t.equal(text, (texts(key)[which] ?? "").replaceAll(key, "*".repeat(key.length)));
    await stillHealthy(t, one, [one.key, one.token]);
  }
});
