import { createHash } from "node:crypto";
import { request } from "node:http";
import t from "tap";
import { createSandbox } from "../../src/sandbox/sandbox.ts";
import { until } from "../doubles/until.ts";
import { get, hello, newKey, post, startSandbox } from "./sandbox-under-test.ts";

/** So long that a test which waits for it never ends. */
const HOUR_MS = 3_600_000;

/** Opens a chat stream and reads its first chunk. */
async function openStream(baseUrl: string, key: string) {
  const leaving = new AbortController();
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}` },
    body: JSON.stringify({ ...hello(), stream: true }),
    signal: leaving.signal,
  });
  const reader = response.body?.getReader();
  await reader?.read();
  return { reader, leave: () => leaving.abort() };
}

/** On a connection of its own, which fetch would not promise. */
function leaveInMidStream(baseUrl: string, key: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${key}` };
    const asked = request(`${baseUrl}/chat/completions`, { method: "POST", headers, agent: false });
    asked.on("error", reject);
    asked.on("response", (response) => {
      response.once("close", resolve);
      response.once("data", () => response.destroy());
    });
    asked.end(JSON.stringify({ ...hello(), stream: true }));
  });
}

t.test("a stream that the client leaves stops, and is billed for what was sent", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: 20 });
  const { text } = newKey(sandbox);
  const { reader, leave } = await openStream(sandbox.baseUrl, text);
  await reader?.read();
  leave();
  await until("the row was written", () => sandbox.usage().length === 1);
  const whole = await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  const { usage } = JSON.parse(whole.text);
  const left = sandbox.usage()[0];
  t.equal(left?.tokens.input, usage.prompt_tokens);
  t.ok((left?.tokens.output ?? 0) > 0, "something was sent");
  t.ok((left?.tokens.output ?? 0) < usage.completion_tokens, "and something was not");
  t.match(sandbox.requests()[0], { abortedAt: Number, finishedAt: null });
  t.equal(sandbox.keys()[0]?.running, 0);
});

t.test("a client that leaves before the headers is billed for what was read", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  sandbox.order(id, { kind: "slow", beforeHeaders: HOUR_MS });
  const leaving = new AbortController();
  const asked = fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${text}` },
    body: JSON.stringify(hello()),
    signal: leaving.signal,
  });
  const refused = t.rejects(asked);
  await until("it is under way", () => sandbox.keys()[0]?.running === 1);
  leaving.abort();
  await refused;
  await until("the row was written", () => sandbox.usage().length === 1);
  t.match(sandbox.usage()[0]?.tokens, { input: 2, output: 0 });
});

t.test("words come one at a time", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: 5, answer: () => "one two three four five" });
  const { text } = newKey(sandbox);
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, { ...hello(), stream: true });
  const words = [...answer.text.matchAll(/"content":"([^"]+)"/g)].map(([, word]) => word?.trim());
  t.same(words, ["one", "two", "three", "four", "five"]);
});

t.test("stopping ends streams and silent requests at once", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: HOUR_MS });
  const [talking, silent] = [newKey(sandbox), newKey(sandbox)];
  sandbox.order(silent.id, { kind: "silence" });
  const { reader } = await openStream(sandbox.baseUrl, talking.text);
  const unanswered = t.rejects(get(`${sandbox.baseUrl}/models`, silent.text));
  await until("both are there", () => sandbox.requests().length === 2);
  await sandbox.stop();
  await unanswered;
  await t.rejects(
    (async () => {
      while (!(await reader?.read())?.done);
    })(),
  );
  t.equal(sandbox.openSockets, 0);
  t.equal(sandbox.running, false);
  t.equal(sandbox.usage().length, 1, "what the stream had sent is billed by then");
  await sandbox.stop();
});

t.test("started again, it is the same gateway: keys, usage and port", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  // Not kept alive: the client would not know yet that its connection is gone.
  await post(`${sandbox.baseUrl}/chat/completions`, text, hello(), { connection: "close" });
  const port = Number(new URL(sandbox.origin).port);
  await sandbox.stop();
  t.throws(() => sandbox.baseUrl, { message: /not running/ });
  await sandbox.start({ port });
  t.equal(Number(new URL(sandbox.origin).port), port);
  t.equal((await get(`${sandbox.baseUrl}/models`, text)).status, 200);
  t.equal(sandbox.usage().length, 1);
  await t.rejects(sandbox.start(), { message: /already running/ });
});

t.test("a port that is taken is said, and another may be tried", async (t) => {
  const first = await startSandbox(t);
  const second = createSandbox();
  t.teardown(() => second.stop());
  const port = Number(new URL(first.origin).port);
  await t.rejects(second.start({ port }), { code: "EADDRINUSE" });
  await second.start();
  t.not(second.origin, first.origin);
});

t.test("it listens on loopback only", async (t) => {
  const sandbox = await startSandbox(t);
  t.match(sandbox.origin, /^http:\/\/127\.0\.0\.1:\d+$/);
});

t.test("the book shows what reached the gateway, byte for byte", async (t) => {
  const sandbox = await startSandbox(t, { book: { bodyBytes: 10 } });
  const { id, text } = newKey(sandbox);
  const body = JSON.stringify(hello());
  await post(`${sandbox.baseUrl}/chat/completions?a=1`, text, body, { "X-Mixed-Case": "kept" });
  const entry = sandbox.requests()[0];
  t.match(entry, { number: 1, method: "POST", path: "/v1/chat/completions?a=1", keyId: id, status: 200 });
  t.equal(entry?.bodyBytes, Buffer.byteLength(body));
  t.equal(entry?.bodyText, body.slice(0, 10));
  t.equal(entry?.bodySha256, createHash("sha256").update(body).digest("hex"));
  t.ok(entry?.rawHeaders.includes(`Bearer ${text}`));
  await until("the answer was handed over", () => entry?.finishedAt != null);
  t.equal(`client:${entry?.requestId}`, sandbox.usage()[0]?.requestId);
  t.equal(sandbox.openSockets, 1);
});

t.test("the book keeps the last requests only", async (t) => {
  const sandbox = await startSandbox(t, { book: { requests: 3 } });
  const { text } = newKey(sandbox);
  for (let i = 1; i <= 8; i++) await get(`${sandbox.baseUrl}/models?i=${i}`, text);
  t.same(
    sandbox.requests().map((entry) => entry.path.at(-1)),
    ["6", "7", "8"],
  );
  t.same(
    sandbox.requests().map((entry) => entry.number),
    [6, 7, 8],
  );
  sandbox.clearRequests();
  t.same(sandbox.requests(), []);
});

t.test("two sandboxes share nothing", async (t) => {
  const [one, two] = [await startSandbox(t), await startSandbox(t)];
  const { text } = newKey(one);
  t.equal((await get(`${two.baseUrl}/models`, text)).status, 401);
  t.notOk(one.login.password.equals(two.login.password));
});

t.test("a failure inside answers with 500 and is told to whoever listens", async (t) => {
  const told: unknown[] = [];
  const broken = new Error("broken on purpose");
  const sandbox = await startSandbox(t, {
    onError: (error) => told.push(error),
    answer: () => {
      throw broken;
    },
  });
  const { text } = newKey(sandbox);
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, hello());
  t.equal(answer.status, 500);
  t.notMatch(answer.text, /on purpose/);
  t.same(told, [broken]);
  t.equal(sandbox.keys()[0]?.running, 0, "its seat is free again");
});

t.test("keys, passwords and sessions do not show when a sandbox is printed", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "x", group: "default" });
  const printed = JSON.stringify([sandbox.keys(), sandbox.login, { key }, sandbox.usage()]);
  t.notOk(key.isIn(printed));
  t.notOk(sandbox.login.password.isIn(printed));
});

t.test("many clients that vanish leave no connection, no seat and no warning behind", async (t) => {
  const warnings: string[] = [];
  const warn = (warning: Error) => warnings.push(warning.message);
  process.on("warning", warn);
  t.teardown(() => process.off("warning", warn));
  const sandbox = await startSandbox(t, { wordDelay: 5 });
  const { text } = newKey(sandbox);
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: 10 }, () => leaveInMidStream(sandbox.baseUrl, text)));
  }
  await until("all are gone", () => sandbox.openSockets === 0 && sandbox.keys()[0]?.running === 0);
  t.equal(sandbox.usage().length, 50);
  t.same(warnings, []);
});
