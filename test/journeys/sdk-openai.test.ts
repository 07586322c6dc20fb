import OpenAI, { APIError } from "openai";
import t, { type Test } from "tap";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { startSandbox } from "../doubles/sandbox.ts";

async function start(t: Test) {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "sdk", group: "default" });
  const { token, hash } = freshToken();
  const off = freshToken();
  const under = await startUnderTest(
    t,
    `gateway: ${sandbox.baseUrl}
tools:
  sdk: { key: ${key.reveal()}, token: "${hash}" }
  idle: { key: ${key.reveal()}, token: "${off.hash}", enabled: false }
`,
  );
  let sent = 0;
  const client = (apiKey: string) =>
    new OpenAI({
      apiKey,
      baseURL: `http://localhost:${under.daemon.port}/v1`,
      fetch: (url, init) => {
        sent += 1;
        return fetch(url, init);
      },
    });
  return { ...under, sandbox, key, token, off: off.token, client, sent: () => sent };
}

const messages = [{ role: "user" as const, content: "hello there" }];

t.test("the openai package lists models, chats, streams, responds and embeds", async (t) => {
  const { client, token, key, sandbox, logText } = await start(t);
  const openai = client(token);

  const models = (await openai.models.list()).data.map(({ id }) => id);
  t.ok(models.includes("sandbox-small"), models.join(", "));

  const chat = await openai.chat.completions.create({ model: "sandbox-small", messages });
  t.match(chat.choices[0]?.message.content, /hello there/);
  t.ok((chat.usage?.completion_tokens ?? 0) > 0);

  let text = "";
  let chunks = 0;
  for await (const chunk of await openai.chat.completions.create({
    model: "sandbox-small",
    messages,
    stream: true,
  })) {
    chunks += 1;
    text += chunk.choices[0]?.delta.content ?? "";
  }
  t.match(text, /hello there/);
  t.ok(chunks > 3, `${chunks} chunks`);

  const response = await openai.responses.create({ model: "sandbox-small", input: "hello there" });
  t.match(response.output_text, /hello there/);

  const events: string[] = [];
  let said = "";
  for await (const event of await openai.responses.create({
    model: "sandbox-small",
    input: "hello there",
    stream: true,
  })) {
    events.push(event.type);
    if (event.type === "response.output_text.delta") said += event.delta;
  }
  t.equal(events[0], "response.created");
  t.equal(events.at(-1), "response.completed");
  t.match(said, /hello there/);

  const model = models.find((id) => id.includes("embed")) ?? "sandbox-embedding";
  const embedded = await openai.embeddings.create({ model, input: "hello there" });
  t.ok((embedded.data[0]?.embedding.length ?? 0) > 0);

  const sent = sandbox.requests().flatMap(({ rawHeaders }) => rawHeaders);
  t.ok(sent.includes(`Bearer ${key.reveal()}`), "the gateway saw the key");
  t.notOk(
    sent.some((header) => header.includes(token)),
    "and never the token",
  );
  t.notOk(logText().includes(token) || logText().includes(key.reveal()), "the log has neither");
});

t.test("a refusal is the package's own error with keybearer's message, and is not tried again", async (t) => {
  const { client, off, sent, sandbox } = await start(t);
  const refusals: [string, number, string, RegExp][] = [
    [freshToken().token, 401, "token-unknown", /keybearer: no tool has the token.*keybearer tools token/],
    ["kb_cut-off", 401, "token-incomplete", /keybearer: the token in authorization is incomplete/],
    ["sk-proj-0123456789abcdef", 400, "foreign-key", /keybearer: the request carries a real key/],
    [off, 400, "tool-disabled", /keybearer: .*idle/],
  ];
  for (const [apiKey, status, code, words] of refusals) {
    const before = sent();
    const refused = client(apiKey).chat.completions.create({ model: "sandbox-small", messages });
    const error = await refused.then(
      () => null,
      (thrown: unknown) => thrown,
    );
    if (!(error instanceof APIError)) {
      t.fail(`${code}: ${String(error)}`);
      continue;
    }
    t.same([error.status, error.code, error.type], [status, code, "keybearer_refusal"]);
    t.match(error.message, words);
    t.notOk(error.message.includes(apiKey), "what was shown is not repeated");
    t.equal(sent() - before, 1, `${code} is not tried again`);
  }
  t.equal(sandbox.requests().length, 0, "none reached the gateway");
});

t.test("a key that the gateway refuses is an error with the cause, and is not tried again", async (t) => {
  const { client, token, sent, sandbox } = await start(t);
  for (const { id } of sandbox.account.keys) sandbox.deleteKey(id);
  const error = await client(token)
    .chat.completions.create({ model: "sandbox-small", messages })
    .then(
      () => null,
      (thrown: unknown) => thrown,
    );
  if (!(error instanceof APIError)) return t.fail(String(error));
  t.equal(error.status, 401);
  t.equal(error.headers?.get("x-keybearer-cause"), "incomplete-key");
  t.equal(error.headers?.get("x-keybearer-refusal"), null, "keybearer did not refuse");
  t.equal(sent(), 1);
});
