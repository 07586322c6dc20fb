import Anthropic, { APIError, type ClientOptions } from "@anthropic-ai/sdk";
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
  const client = (credentials: Pick<ClientOptions, "apiKey" | "authToken" | "defaultHeaders">) =>
    new Anthropic({
      apiKey: null,
      authToken: null,
      ...credentials,
      baseURL: `http://localhost:${under.daemon.port}`,
      fetch: (url, init) => {
        sent += 1;
        return fetch(url, init);
      },
    });
  return { ...under, sandbox, key, token, off: off.token, client, sent: () => sent };
}

const ask = {
  model: "sandbox-small",
  max_tokens: 500,
  messages: [{ role: "user" as const, content: "hello there" }],
};

t.test("the anthropic package sends messages, streams, counts tokens and lists models", async (t) => {
  const { client, token, key, sandbox } = await start(t);
  const ways = [
    { name: "apiKey", credentials: { apiKey: token } },
    { name: "authToken", credentials: { authToken: token } },
    // As Claude Code's apiKeyHelper does.
    { name: "two headers", credentials: { authToken: token, defaultHeaders: { "x-api-key": token } } },
  ];
  for (const { name, credentials } of ways) {
    const anthropic = client(credentials);
    const message = await anthropic.messages.create(ask);
    const [block] = message.content;
    t.match(block?.type === "text" ? block.text : "", /hello there/, `the token in ${name}`);
    t.ok(message.usage.output_tokens > 0);

    const stream = anthropic.messages.stream(ask);
    let deltas = 0;
    stream.on("text", () => {
      deltas += 1;
    });
    const final = await stream.finalMessage();
    t.ok(deltas > 3, `${deltas} deltas`);
    t.equal(final.stop_reason, "end_turn");

    const counted = await anthropic.messages.countTokens({ model: ask.model, messages: ask.messages });
    t.ok(counted.input_tokens > 0);

    const models = [];
    for await (const model of anthropic.models.list()) models.push(model.id);
    t.ok(models.includes("sandbox-small"), models.join(", "));
  }
  const sent = sandbox.requests().map(({ rawHeaders }) => rawHeaders);
  t.ok(sent.length >= 12);
  for (const headers of sent) {
    t.equal(headers.filter((header) => header.includes(key.reveal())).length, 1, "exactly one key");
    t.notOk(
      headers.some((header) => header.includes(token)),
      "and never the token",
    );
  }
});

t.test("a refusal is the package's own error with keybearer's message, and is not tried again", async (t) => {
  const { client, off, sent, sandbox } = await start(t);
  const refusals: [string, number, string, RegExp][] = [
    [freshToken().token, 401, "token-unknown", /keybearer: no tool has the token in [a-z-]+\. make/],
    ["kb_cut-off", 401, "token-incomplete", /keybearer: the token in [a-z-]+ is incomplete/],
    ["sk-ant-api03-0123456789abcdef", 400, "foreign-key", /keybearer: the request carries a real key/],
    [off, 400, "tool-disabled", /keybearer: .*idle/],
  ];
  for (const [apiKey, status, code, words] of refusals) {
    const before = sent();
    const error = await client({ apiKey })
      .messages.create(ask)
      .then(
        () => null,
        (thrown: unknown) => thrown,
      );
    if (!(error instanceof APIError)) {
      t.fail(`${code}: ${String(error)}`);
      continue;
    }
    t.equal(error.status, status);
    t.equal(error.headers?.get("x-keybearer-refusal"), code);
    t.match(error.message, words);
    t.match(error.error, { type: "error", error: { message: words } });
    t.notOk(error.message.includes(apiKey), "what was shown is not repeated");
    t.equal(sent() - before, 1, `${code} is not tried again`);
  }
  t.equal(sandbox.requests().length, 0, "none reached the gateway");
});

t.test("a base URL that ends in /v1 is named as the problem", async (t) => {
  const { daemon, token, sandbox } = await start(t);
  const anthropic = new Anthropic({ apiKey: token, baseURL: `http://localhost:${daemon.port}/v1` });
  await t.rejects(anthropic.messages.create(ask), {
    status: 400,
    message: new RegExp(`keybearer: .*http://localhost:${daemon.port}`),
  });
  t.equal(sandbox.requests().length, 0);
});
