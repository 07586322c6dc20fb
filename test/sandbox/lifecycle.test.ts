import { request } from "node:http";
import { inspect } from "node:util";
import t from "tap";
import { get, hello, newKey, post, startSandbox, TestGateway } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

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
  t.equal(sandbox.requests()[0]?.isAborted, true);
  t.equal(sandbox.account.keys[0]?.inFlight, 0);
});

t.test("words come one at a time", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: 1 });
  const { text } = newKey(sandbox);
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, { ...hello(), stream: true });
  const words = [...answer.text.matchAll(/"content":"([^"]+)"/g)].map(([, word]) => word?.trim());
  t.same(words.slice(0, 5), ["Hello", "from", "the", "keybearer", "sandbox!"]);
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
  t.equal(sandbox.isRunning, false);
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
  await sandbox.start(port);
  t.equal(Number(new URL(sandbox.origin).port), port);
  t.equal((await get(`${sandbox.baseUrl}/models`, text)).status, 200);
  t.equal(sandbox.usage().length, 1);
});

t.test("a port that is taken is an error, and another can be tried", async (t) => {
  const first = await startSandbox(t);
  const second = new TestGateway();
  t.teardown(() => second.stop());
  const port = Number(new URL(first.origin).port);
  await t.rejects(second.start(port), { code: "EADDRINUSE" });
  await second.start();
  t.not(second.origin, first.origin);
});

t.test("it listens on loopback only", async (t) => {
  const sandbox = await startSandbox(t);
  t.match(sandbox.origin, /^http:\/\/127\.0\.0\.1:\d+$/);
});

t.test("two sandboxes share nothing", async (t) => {
  const [one, two] = [await startSandbox(t), await startSandbox(t)];
  const { text } = newKey(one);
  t.equal((await get(`${two.baseUrl}/models`, text)).status, 401);
  t.notOk(one.account.password.equals(two.account.password));
});

t.test("a failure inside is logged, and the client is not left waiting", async (t) => {
  const logged: unknown[] = [];
  const sandbox = new TestGateway({}, (line) => logged.push(line));
  await sandbox.start();
  t.teardown(() => sandbox.stop());
  const { text } = newKey(sandbox);
  const broken = new Error("broken on purpose");
  t.capture(sandbox.account, "bill", () => {
    throw broken;
  });
  await t.rejects(post(`${sandbox.baseUrl}/chat/completions`, text, hello()));
  await until("it is logged", () => logged.length > 0);
  t.match(logged, [{ err: broken }]);
  t.equal(sandbox.account.keys[0]?.inFlight, 0, "its place is free again");
});

t.test("a stop with grace lets a stream finish, and a second stop ends it at once", async (t) => {
  const sandbox = await startSandbox(t, { wordDelay: 1 });
  const { text } = newKey(sandbox);
  const chat = () => post(`${sandbox.baseUrl}/chat/completions`, text, { ...hello(), stream: true });
  const finishing = chat();
  await until("it runs", () => sandbox.account.keys[0]?.inFlight === 1);
  await sandbox.stop(HOUR_MS);
  t.match((await finishing).text, /data: \[DONE\]\s*$/);

  await sandbox.start();
  sandbox.gateway.wordDelay = HOUR_MS;
  const cut = t.rejects(chat());
  await until("it runs", () => sandbox.account.keys[0]?.inFlight === 1);
  const first = sandbox.stop(HOUR_MS);
  await sandbox.stop();
  await first;
  await cut;
});

t.test("keys, passwords and sessions do not show when a sandbox is printed", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "x", group: "default" });
  const printed = inspect(sandbox, { depth: 10, showHidden: true }) + JSON.stringify(sandbox.account);
  t.notOk(key.isIn(printed));
  t.notOk(sandbox.account.password.isIn(printed));
});

t.test("many clients that disconnect leave no request in flight and no warning", async (t) => {
  const warnings: string[] = [];
  const warn = (warning: Error) => warnings.push(warning.message);
  process.on("warning", warn);
  t.teardown(() => process.off("warning", warn));
  const sandbox = await startSandbox(t, { wordDelay: 5 });
  const { text } = newKey(sandbox);
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: 10 }, () => leaveInMidStream(sandbox.baseUrl, text)));
  }
  await until("all are gone", () => sandbox.account.keys[0]?.inFlight === 0 && sandbox.usage().length === 50);
  t.same(warnings, []);
});
