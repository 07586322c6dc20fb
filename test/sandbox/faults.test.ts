import { request } from "node:http";
import { createConnection } from "node:net";
import t from "tap";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { until } from "../doubles/until.ts";
import { get, hello, newKey, post, startSandbox } from "./sandbox-under-test.ts";

/** So long that a test which waits for it never ends. */
const HOUR_MS = 3_600_000;

/** A chat stream read as far as it goes: its text, and whether it came to its proper end. */
async function readStream(sandbox: Sandbox, key: string): Promise<{ text: string; whole: boolean }> {
  const response = await fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}` },
    body: JSON.stringify({ ...hello(), stream: true }),
  });
  const decoder = new TextDecoder();
  let text = "";
  try {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
    }
    return { text, whole: true };
  } catch {
    return { text, whole: false };
  }
}

function chunksIn(text: string): number {
  return text.split("\n\n").length - 1;
}

t.test("a slow answer waits before its headers", async (t) => {
  const sandbox = await startSandbox(t);
  const [slow, other] = [newKey(sandbox), newKey(sandbox)];
  const chat = `${sandbox.baseUrl}/chat/completions`;
  sandbox.order(slow.id, { kind: "slow", beforeHeaders: 20 }, 2);
  t.equal((await post(chat, slow.text, hello())).status, 200);
  t.equal((await get(`${sandbox.baseUrl}/models`, slow.text)).status, 200);
  sandbox.order(slow.id, { kind: "slow", beforeHeaders: HOUR_MS });
  const unanswered = [post(chat, slow.text, hello()), get(`${sandbox.baseUrl}/models`, slow.text)];
  const cut = unanswered.map((asked) => t.rejects(asked));
  await until("both were taken", () => sandbox.requests().length === 4);
  t.equal((await post(chat, other.text, hello())).status, 200, "others are answered");
  t.match(sandbox.requests().slice(2, 4), [{ status: null }, { status: null }], "the model list waits too");
  await sandbox.stop();
  await Promise.all(cut);
});

t.test("a slow stream waits between its chunks, a slow whole answer between its pieces", async (t) => {
  const sandbox = await startSandbox(t, { answer: () => "one two three four" });
  const [slow, other] = [newKey(sandbox), newKey(sandbox)];
  sandbox.order(slow.id, { kind: "slow", betweenChunks: 5 }, 2);
  t.ok((await readStream(sandbox, slow.text)).whole);
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, slow.text, hello());
  t.match(answer.json, { choices: [{ message: { content: "one two three four" } }] });

  sandbox.order(slow.id, { kind: "slow", betweenChunks: HOUR_MS });
  const [stream, whole] = [
    readStream(sandbox, slow.text),
    post(`${sandbox.baseUrl}/chat/completions`, slow.text, hello()),
  ];
  const cut = t.rejects(whole);
  await until("both are under way", () =>
    sandbox.keys().some(({ id, running }) => id === slow.id && running === 2),
  );
  t.ok((await readStream(sandbox, other.text)).whole, "others are answered");
  await sandbox.stop();
  t.equal((await stream).whole, false);
  t.ok(chunksIn((await stream).text) <= 1, "and it came no further than its first chunk");
  await cut;
});

t.test("silence takes the request and never answers, and is over when the client goes", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "silence" });
  const patience = new AbortController();
  const asked = fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${text}` },
    body: JSON.stringify(hello()),
    signal: patience.signal,
  });
  const refused = t.rejects(asked);
  await until("the request was taken", () => sandbox.requests()[0]?.bodySha256 != null);
  t.match(sandbox.requests()[0], { status: null, finishedAt: null, abortedAt: null });
  patience.abort();
  await refused;
  await until("the sandbox saw it go", () => sandbox.requests()[0]?.abortedAt != null);
  t.same(sandbox.usage(), []);
});

t.test("a cut before the headers leaves the client with nothing", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "cut" }, 1);
  await t.rejects(post(`${sandbox.baseUrl}/chat/completions`, text, hello()));
  t.same(sandbox.usage(), []);
  t.equal((await post(`${sandbox.baseUrl}/chat/completions`, text, hello())).status, 200, "once only");
});

t.test("a cut after some chunks sends exactly those, and bills their words", async (t) => {
  const sandbox = await startSandbox(t, { answer: () => "aaaa bbbb cccc dddd eeee" });
  const { id, text } = newKey(sandbox);
  // The first chunk carries the role, the next two a word each.
  sandbox.order(id, { kind: "cut", afterChunks: 3 });
  const { text: heard, whole } = await readStream(sandbox, text);
  t.notOk(whole);
  t.equal(chunksIn(heard), 3);
  t.match(heard, /bbbb/);
  t.notMatch(heard, /cccc/);
  t.equal(sandbox.usage()[0]?.tokens.output, Math.ceil("aaaa bbbb ".length / 4));
  await until("the book says so", () => sandbox.requests()[0]?.abortedAt != null);
});

t.test("a whole answer can be cut in its middle", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "cut", afterChunks: 2 });
  const response = await fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${text}` },
    body: JSON.stringify(hello()),
  });
  t.equal(response.status, 200);
  await t.rejects(response.text());
  await t.rejects(get(`${sandbox.baseUrl}/models`, text), "a list too");
});

t.test("a refusal of choice comes with its status, body and headers", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  const overloaded = { type: "error", error: { type: "overloaded_error", message: "Overloaded" } };
  sandbox.order(id, { kind: "refuse", status: 529, body: overloaded }, 1);
  sandbox.order(id, { kind: "refuse", status: 429, body: "slow down", headers: { "Retry-After": "7" } }, 1);
  sandbox.order(id, { kind: "refuse", status: 302, headers: { Location: "http://127.0.0.1:1/" } }, 1);
  const url = `${sandbox.messagesUrl}/v1/messages`;
  const first = await post(url, text, hello());
  t.equal(first.status, 529);
  t.same(first.json, overloaded);
  const second = await post(url, text, hello());
  t.match(second, { status: 429, text: "slow down" });
  t.equal(second.headers.get("retry-after"), "7");
  const headers = { authorization: `Bearer ${text}` };
  const third = await fetch(url, { method: "POST", headers, body: "{}", redirect: "manual" });
  t.equal(third.status, 302);
  t.equal(third.headers.get("location"), "http://127.0.0.1:1/");
  t.equal((await post(url, text, hello())).status, 200, "then all is well again");
  t.equal(sandbox.usage().length, 1);
});

t.test("an early refusal comes while the upload still runs", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "refuse", status: 401, body: { early: true }, early: true });
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const upload = request(`${sandbox.baseUrl}/files`, {
      method: "POST",
      headers: { authorization: `Bearer ${text}` },
    });
    upload.on("error", reject);
    upload.on("response", (response) => {
      response.resume();
      resolve(response.statusCode);
      upload.destroy();
    });
    upload.write("the beginning of something that never ends");
  });
  t.equal(status, 401);
});

t.test("garbage is no HTTP, or no JSON, or a page", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "garbage", what: "bytes" }, 1);
  sandbox.order(id, { kind: "garbage", what: "html" }, 1);
  sandbox.order(id, { kind: "garbage", what: "text" }, 1);
  const bytes = await new Promise<string>((resolve, reject) => {
    const socket = createConnection(Number(new URL(sandbox.origin).port), "127.0.0.1");
    let heard = "";
    socket.on("data", (chunk) => {
      heard += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(heard));
    socket.write(`GET /v1/models HTTP/1.1\r\nhost: x\r\nx-api-key: ${text}\r\n\r\n`);
  });
  t.ok(bytes.length > 0 && !bytes.includes("HTTP/1.1"));
  const page = await get(`${sandbox.baseUrl}/models`, text);
  t.equal(page.status, 200);
  t.match(page.headers.get("content-type"), /text\/html/);
  const broken = await get(`${sandbox.baseUrl}/models`, text);
  t.match(broken.headers.get("content-type"), /application\/json/);
  t.equal(broken.json, null);
});

t.test("an echo repeats the request's headers, the key with them", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "echo", status: 422 });
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, hello(), { "x-mine": "yes" });
  t.equal(answer.status, 422);
  t.ok(answer.text.includes(text));
  t.match(answer.json, { error: { headers: { "x-mine": "yes" } } });
});

t.test("faults are the key's own, last until cleared, and need a known key", async (t) => {
  const sandbox = await startSandbox(t);
  const [one, two] = [newKey(sandbox), newKey(sandbox)];
  sandbox.order(one.id, { kind: "refuse", status: 503 });
  const status = async (key: string) => (await get(`${sandbox.baseUrl}/models`, key)).status;
  t.same([await status(one.text), await status(two.text), await status(one.text)], [503, 200, 503]);
  sandbox.clearFaults(one.id);
  t.equal(await status(one.text), 200);
  t.throws(() => sandbox.order(99, { kind: "silence" }), { message: /no key 99/ });
  t.throws(() => sandbox.order(one.id, { kind: "silence" }, 0), { message: /one request at least/ });
});
