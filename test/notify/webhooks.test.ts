import { Webhook } from "standardwebhooks";
import t from "tap";
import type { WebhookKind } from "../../src/config/schema.ts";
import { judgeReply, type Outgoing, WEBHOOKS } from "../../src/notify/webhooks.ts";
import { eventOf } from "../doubles/alerts.ts";

const NOW = 1_795_065_109_123;
const SECRET = "SECabcdef0123456789";
const event = eventOf({ at: NOW - 1000 });
const TITLE = "keybearer alert: tool codex";
const TEXT = "its key was used by somebody else\n→ keybearer mirror";

function request(kind: WebhookKind, url: string, more: { secret?: string; to?: string } = {}): Outgoing {
  return WEBHOOKS[kind].request(event, { url, secret: more.secret ?? null, to: more.to ?? null }, NOW);
}

function bodyOf(outgoing: Outgoing): unknown {
  return JSON.parse(outgoing.body);
}

t.test("a generic webhook is signed as Standard Webhooks demands", async (t) => {
  const secret = `whsec_${Buffer.from("0123456789abcdef0123456789abcdef").toString("base64")}`;
  const now = Date.now();
  const target = { url: "https://a.example.com/hook", secret, to: null };
  const { url, headers, body } = WEBHOOKS.generic.request(event, target, now);
  t.equal(url, "https://a.example.com/hook");
  t.equal(headers["webhook-id"], event.id);
  const verified = new Webhook(secret).verify(body, { ...headers });
  t.same(verified, { type: "keybearer.leak", timestamp: new Date(event.at).toISOString(), data: event });
  t.throws(() => new Webhook(secret).verify(`${body} `, { ...headers }));
  const later = WEBHOOKS.generic.request(event, target, now + 1000);
  t.equal(later.headers["webhook-id"], event.id, "a second attempt has the same id");
  t.not(later.headers["webhook-timestamp"], headers["webhook-timestamp"]);
  t.notOk("webhook-signature" in request("generic", "https://a.example.com/hook").headers);
});

t.test("slack gets plain text", async (t) => {
  const hostile = { ...event, message: "<!channel> a & b" };
  const { body } = WEBHOOKS.slack.request(
    hostile,
    { url: "https://a.example.com/x", secret: null, to: null },
    NOW,
  );
  const { text, blocks } = JSON.parse(body);
  t.match(text, "&lt;!channel&gt; a &amp; b");
  t.equal(blocks[0].text.type, "plain_text");
  t.match(blocks[0].text.text, "<!channel> a & b");
});

t.test("feishu signs with the time and the secret as the key", async (t) => {
  const outgoing = request("feishu", "https://open.feishu.cn/open-apis/bot/v2/hook/x", { secret: SECRET });
  t.match(bodyOf(outgoing), {
    // By another program: hmac.new(b"1795065109\nSECabcdef0123456789", b"", sha256)
    timestamp: "1795065109",
    sign: "1lYcExBHuIudDfECWYVpppz8P0WE7wDc7LlRat7BW7I=",
    msg_type: "interactive",
    card: {
      header: { title: { tag: "plain_text", content: TITLE }, template: "red" },
      elements: [{ tag: "div", text: { tag: "plain_text", content: TEXT } }],
    },
  });
  t.notOk("sign" in (bodyOf(request("feishu", "https://open.feishu.cn/x")) as object));
});

t.test("dingtalk signs the time and the secret, in the address", async (t) => {
  const outgoing = request("dingtalk", "https://oapi.dingtalk.com/robot/send?access_token=abc", {
    secret: SECRET,
  });
  const { searchParams } = new URL(outgoing.url);
  t.equal(searchParams.get("access_token"), "abc");
  t.equal(searchParams.get("timestamp"), "1795065109123");
  // By another program: hmac.new(b"SECabcdef0123456789", b"1795065109123\nSECabcdef0123456789", sha256)
  t.equal(searchParams.get("sign"), "CgLyqfUajcmomSxlZEZ0Fn7p2UefYbnqjwCDIdn9Y04=");
  t.notMatch(outgoing.url, /sign=[^&]*[+/]/, "base64 is encoded for the address");
  t.match(bodyOf(outgoing), { msgtype: "markdown", markdown: { title: TITLE }, at: { isAtAll: false } });
  const picture = { ...event, message: "![x](https://evil.example.com/x.png)" };
  const { body } = WEBHOOKS.dingtalk.request(picture, { url: outgoing.url, secret: null, to: null }, NOW);
  t.notMatch(JSON.parse(body).markdown.text, /(?<!\\)!(?<!\\)\[/);
});

t.test("the other kinds", async (t) => {
  t.same(bodyOf(request("wecom", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=x")), {
    msgtype: "text",
    text: { content: `${TITLE}\n${TEXT}` },
  });
  for (const url of ["https://api.telegram.org/bot1:a", "https://api.telegram.org/bot1:a/sendMessage"]) {
    const outgoing = request("telegram", url, { to: "-100123" });
    t.equal(outgoing.url, "https://api.telegram.org/bot1:a/sendMessage");
    t.match(bodyOf(outgoing), { chat_id: "-100123", text: `${TITLE}\n${TEXT}` });
  }
  const ntfy = request("ntfy", "https://ntfy.sh", { to: "alerts", secret: "tk_abc" });
  t.match(bodyOf(ntfy), { topic: "alerts", title: TITLE, message: TEXT, priority: 5 });
  t.equal(ntfy.headers.authorization, "Bearer tk_abc");
  const basic = request("ntfy", "https://ntfy.sh", { to: "alerts", secret: "me:word" });
  t.equal(basic.headers.authorization, `Basic ${Buffer.from("me:word").toString("base64")}`);
  const bark = request("bark", "https://api.day.app", { to: "device" });
  t.equal(bark.url, "https://api.day.app/push");
  t.match(bodyOf(bark), { device_key: "device", title: TITLE, body: TEXT, level: "timeSensitive" });
});

t.test("an event that ended has another title and does not alarm", async (t) => {
  const ended = { ...event, state: "ended" } as const;
  const { body } = WEBHOOKS.ntfy.request(ended, { url: "https://ntfy.sh", secret: null, to: "x" }, NOW);
  t.match(JSON.parse(body), { title: "keybearer, resolved: tool codex", priority: 2 });
});

/** What is answered, and what that means. */
const REPLIES: readonly (readonly [WebhookKind, number, string, object])[] = [
  ["generic", 200, "", { result: "delivered" }],
  ["generic", 204, "", { result: "delivered" }],
  ["generic", 301, "", { result: "retry", problem: /redirect \(301\), which is not followed/ }],
  ["generic", 400, "", { result: "retry", isRefused: true }],
  ["generic", 401, "", { result: "retry", next: /url and secret/ }],
  ["generic", 404, "", { result: "retry", next: /url/ }],
  ["generic", 408, "", { result: "retry" }],
  ["generic", 410, "", { result: "gone" }],
  ["generic", 413, "", { result: "gave-up" }],
  ["generic", 500, "https://secret.example.com", { result: "retry", problem: "it answered 500" }],
  ["slack", 200, "ok", { result: "delivered" }],
  ["slack", 204, "", { result: "delivered" }],
  ["slack", 404, "no_service", { result: "retry", problem: "it answered 404 (no_service)" }],
  ["slack", 403, "a word of its own", { result: "retry", problem: "it answered 403" }],
  ["feishu", 200, '{"code":0,"msg":"success"}', { result: "delivered" }],
  ["feishu", 200, '{"StatusCode":0}', { result: "delivered" }],
  ["feishu", 200, '{"code":19021,"msg":"sign"}', { result: "retry", problem: /19021/, next: /secret/ }],
  ["feishu", 200, '{"code":11232}', { result: "retry", afterMs: 60_000 }],
  ["feishu", 200, "not JSON", { result: "retry", isRefused: true }],
  ["dingtalk", 200, '{"errcode":0}', { result: "delivered" }],
  ["dingtalk", 200, '{"errcode":310000}', { result: "retry", next: /secret.*keywords/ }],
  ["dingtalk", 200, '{"errcode":130101}', { result: "retry", afterMs: 60_000 }],
  ["wecom", 200, '{"errcode":0}', { result: "delivered" }],
  ["wecom", 200, '{"errcode":93000}', { result: "retry", isRefused: true }],
  ["wecom", 200, '{"errcode":45009}', { result: "retry", afterMs: 60_000 }],
  ["telegram", 200, '{"ok":true}', { result: "delivered" }],
  ["telegram", 400, '{"ok":false,"error_code":400}', { result: "retry", next: /check its to/ }],
  [
    "telegram",
    429,
    '{"ok":false,"error_code":429,"parameters":{"retry_after":7}}',
    { result: "retry", afterMs: 7000 },
  ],
  ["telegram", 502, "", { result: "retry", problem: "it answered 502" }],
  ["ntfy", 200, "{}", { result: "delivered" }],
  ["ntfy", 403, "{}", { result: "retry", isRefused: true }],
  ["bark", 200, '{"code":200}', { result: "delivered" }],
  ["bark", 200, '{"code":400}', { result: "retry", next: /device/ }],
];

t.test("what receivers answer", async (t) => {
  for (const [kind, status, body, wanted] of REPLIES)
    t.match(judgeReply(kind, { status, body, retryAfter: null }, NOW), wanted, `${kind} ${status} ${body}`);
});

t.test("a receiver says when to come again, up to an hour", async (t) => {
  const after = (retryAfter: string) => judgeReply("generic", { status: 429, body: "", retryAfter }, NOW);
  t.match(after("30"), { result: "retry", afterMs: 30_000 });
  t.match(after(new Date(NOW + 60_000).toUTCString()), { afterMs: 59_877 });
  t.match(after("999999999"), { afterMs: 3_600_000 });
  for (const text of ["-1", "soon", ""]) t.match(after(text), { afterMs: 0 }, text);
});
