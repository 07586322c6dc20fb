import { gzipSync } from "node:zlib";
import t from "tap";
import { type Asking, heldWall, startLimited } from "../doubles/limited-journey.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

t.test(
  "disabling, enabling, expiry and removal take effect on save, while a call in flight finishes",
  async (t) => {
    const clock = heldWall();
    const { call, change, codex, gateway, save, text } = await startLimited(t, "", { clock });
    const inFlight = call({ play: "hang" });
    await until("it is there", () => gateway.arrivals.length === 1);
    const states: [string, number, string, RegExp][] = [
      ["enabled: false", 400, "tool-disabled", /tool codex is disabled/],
      ["expires: 2026-11-14", 400, "tool-expired", /tool codex expired/],
      ["expires: 2026-11-15T11:59:59Z", 400, "tool-expired", /tool codex expired/],
    ];
    for (const [settings, status, code, words] of states) {
      await change(settings);
      const answer = await call();
      t.strictSame([answer.status, answer.refusal], [status, code], settings);
      t.match(answer.text, words);
      t.equal(answer.headers.get("x-should-retry"), "false");
      await change("");
      t.equal((await call()).status, 200, "and back");
    }
    await change("expires: 2026-11-15T12:30:00Z");
    t.equal((await call()).status, 200);
    clock.pass(30 * 60_000);
    t.equal((await call()).refusal, "tool-expired", "no save and no timer is needed for that");
    t.equal((await codex()).state, "expired");

    await save(
      text("")
        .replace("codex:", "another:")
        .replace(/sha256:[0-9a-f]+/, `sha256:${"0".repeat(64)}`),
    );
    await until("it is in force", async () => (await call()).status === 401);
    t.equal((await call()).refusal, "token-unknown");
    gateway.release();
    t.equal((await inFlight).status, 200, "the call in flight finished through all of that");
    t.equal(gateway.arrivals.length, 5, "no refused call reached the gateway");
  },
);

const GROUPS =
  'groups: { coding: { models: ["penny", "gpt-5*", "*-mini"] }, all: {}, shut: { enabled: false } }';

t.test("a group that is disabled refuses its tools on save", async (t) => {
  const { call, change, gateway } = await startLimited(t, "group: all", { gatewayLines: GROUPS });
  t.equal((await call()).status, 200);
  await change("group: shut");
  const refused = await call();
  t.strictSame([refused.status, refused.refusal], [400, "group-disabled"]);
  t.equal(gateway.arrivals.length, 1);
});

const multipart = (models: readonly string[], before = "") =>
  `${before}${models
    .map((model) => `--b0\r\ncontent-disposition: form-data; name="model"\r\n\r\n${model}\r\n`)
    .join("")}--b0\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--b0--\r\n`;
const FORM = { "content-type": "multipart/form-data; boundary=b0" };
const GEMINI = '{"contents":[]}';

t.test("a model that is not in the group is refused, however its name is written", async (t) => {
  const { call, gateway } = await startLimited(t, "group: coding", { gatewayLines: GROUPS });
  const refused: [string, Asking][] = [
    ["alone", { body: '{"model":"claude-opus"}' }],
    ["at the end", { body: `{"messages":[{"model":"penny"}],"x":{"model":"penny"},"model":"claude-opus"}` }],
    ["its key escaped", { body: '{"\\u006dode\\u006c":"claude-opus"}' }],
    ["its name escaped", { body: '{"model":"cl\\u0061ude-opus"}' }],
    ["in other letters", { body: '{"model":"PENNY"}' }],
    ["with a space", { body: '{"model":"penny "}' }],
    ["on the wrong side of the star", { body: '{"model":"not-gpt-5"}' }],
    ["behind a long text", { body: `{"messages":"${"x".repeat(300_000)}","model":"claude-opus"}` }],
    ["behind a byte order mark", { body: '\ufeff{"model":"claude-opus"}' }],
    ["in a Gemini path", { path: "/v1beta/models/claude-opus:generateContent", body: GEMINI }],
    [
      "in one with a query",
      { path: "/v1beta/models/claude-opus:streamGenerateContent?alt=sse", body: GEMINI },
    ],
    ["in a Gemini path, escaped", { path: "/v1beta/models/cl%61ude-opus:generateContent", body: GEMINI }],
    ["in a form", { path: "/v1/images/edits", headers: FORM, body: multipart(["claude-opus"]) }],
    [
      "in a form with a preamble",
      { path: "/v1/images/edits", headers: FORM, body: multipart(["claude-opus"], "hi\r\n") },
    ],
    ["as a message", { path: "/v1/messages", body: '{"model":"claude-opus"}' }],
    [
      "with the content encoding identity",
      { headers: { "content-encoding": "identity" }, body: '{"model":"claude-opus"}' },
    ],
  ];
  for (const [what, asking] of refused) {
    const answer = await call(asking);
    t.strictSame([answer.status, answer.refusal ?? answer.text], [400, "model-not-in-group"], what);
    if (what === "alone")
      t.match(
        answer.text,
        /model claude-opus is not in group coding of tool codex, which has penny, gpt-5\*, \*-mini/,
      );
  }
  t.equal(gateway.arrivals.length, 0, "none reached the gateway");

  const passed: [string, Asking][] = [
    ["exactly", { body: '{"model":"penny"}' }],
    ["by its beginning", { body: '{"model":"gpt-5"}' }],
    ["by its beginning and more", { body: '{"model":"gpt-5.1-codex"}' }],
    ["by its end", { body: '{"model":"o4-mini"}' }],
    ["escaped", { body: '{"mod\\u0065l":"p\\u0065nny"}' }],
    ["in a Gemini path", { path: "/v1beta/models/gpt-5-pro:generateContent", body: GEMINI }],
    ["in a form", { path: "/v1/images/edits", headers: FORM, body: multipart(["penny"]) }],
    ["no model at all", { path: "/v1/models", body: null }],
  ];
  for (const [what, asking] of passed) {
    const answer = await call(asking);
    t.strictSame([answer.status, answer.refusal], [200, null], what);
  }
});

t.test("a body that names two models is refused: gateways differ in which one they take", async (t) => {
  const { call, gateway } = await startLimited(t, "group: coding", { gatewayLines: GROUPS });
  const disputed: [string, Asking][] = [
    ["the same twice", { body: '{"model":"penny","model":"penny"}' }],
    ["the second is not in the group", { body: '{"model":"penny","model":"claude-opus"}' }],
    ["the first is not", { body: '{"model":"claude-opus","model":"penny"}' }],
    ["one in another case, as Go reads it", { body: '{"model":"penny","Model":"claude-opus"}' }],
    ["one escaped", { body: '{"model":"penny","\\u006dodel":"claude-opus"}' }],
    ["the second is null, which Go passes over", { body: '{"model":"claude-opus","model":null}' }],
    ["the second is no name", { body: '{"model":"claude-opus","model":7}' }],
    ["the second is empty", { body: '{"model":"claude-opus","model":""}' }],
    ["the second is too long to be one", { body: `{"model":"claude-opus","model":"${"x".repeat(5000)}"}` }],
    ["two in a form", { path: "/v1/images/edits", headers: FORM, body: multipart(["penny", "claude-opus"]) }],
    [
      "two in a form, the second empty",
      { path: "/v1/images/edits", headers: FORM, body: multipart(["claude-opus", ""]) },
    ],
  ];
  for (const [what, asking] of disputed) {
    const answer = await call(asking);
    t.strictSame([answer.status, answer.refusal], [400, "bad-request"], what);
  }
  t.equal(gateway.arrivals.length, 0, "none reached the gateway");
});

t.test(
  "a body that cannot be read here is refused where its model decides, and passes elsewhere",
  async (t) => {
    const { change, gateway, token, url } = await startLimited(t, "group: coding", { gatewayLines: GROUPS });
    const send = async () => {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          "content-encoding": "gzip",
        },
        body: gzipSync('{"model":"claude-opus"}'),
      });
      return { status: answer.status, text: await answer.text() };
    };
    const refused = await send();
    t.equal(refused.status, 400);
    t.match(refused.text, /tool codex has limits that depend on it\. send uncompressed JSON/);
    t.equal(gateway.arrivals.length, 0);
    await change("group: all");
    t.equal((await send()).status, 200);
  },
);

t.test("another spelling of an endpoint does not avoid the group or the limits", async (t) => {
  const { call, gateway } = await startLimited(t, "group: coding, limits: { tokens: 5/month }", {
    gatewayLines: GROUPS,
  });
  const spelled = [
    "/v1beta/models/claude-opus%3AgenerateContent",
    "/v1beta/%6dodels/claude-opus:generateContent",
    "/v1beta/models/claude-opus:%67enerateContent",
  ];
  for (const path of spelled) t.not((await call({ path, body: GEMINI })).status, 200, path);
  t.equal((await call()).status, 200, "the first one has the empty window to itself");
  for (const path of [
    "/v1/chat/completion%73",
    "/v1/%63hat/completions",
    "/v1/chat%2Fcompletions",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/Chat/completions",
  ])
    t.not((await call({ path })).status, 200, path);
  t.equal(gateway.arrivals.length, 1);
});

t.test("a group's changed models apply to the next request", async (t) => {
  const { call, gateway, save, text } = await startLimited(t, "group: coding", { gatewayLines: GROUPS });
  const inFlight = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
  await save(text("group: coding").replace('"penny", ', ""));
  await until("it is in force", async () => (await call()).refusal === "model-not-in-group");
  await save(text("group: coding").replace('"penny", "gpt-5*", "*-mini"', '"*"'));
  await until("anything goes", async () => (await call({ body: '{"model":"whatever"}' })).status === 200);
  gateway.release();
  t.equal((await inFlight).status, 200);
});

t.test(
  "cut ends the calls of one tool at once; their records say interrupted and count what was held",
  async (t) => {
    const settings = "limits: { tokens: 100k/month, concurrent: 2, wait: 30s }";
    const { call, codex, control, gateway, level, paths, quiet, logText, key, token } = await startLimited(
      t,
      settings,
    );
    const cut = async () => {
      const calls = [call({ play: "hang" }), call({ play: "stall" }), call()].map((ending) =>
        ending.then(
          () => "finished",
          () => "cut",
        ),
      );
      await until("two are there", () => gateway.running() === 2);
      await until("one waits", async () => (await codex()).waiting === 1);
      t.strictSame(await control("POST", "/cut/codex", {}), { cut: 3 });
      t.strictSame(await Promise.all(calls), ["cut", "cut", "cut"]);
      await quiet();
    };
    await cut();
    await until("the calls are closed", () => gateway.running() === 0);
    t.strictSame(
      recordsIn(paths.usage).map(({ end }) => end),
      ["interrupted", "interrupted", "interrupted"],
    );
    t.equal(gateway.arrivals.length, 2, "the one that waited never went");
    const sent = recordsIn(paths.usage).filter(({ held_tokens }) => held_tokens !== null);
    t.equal(sent.length, 2);
    const heldFor = sent.reduce((sum, { held_tokens }) => sum + Number(held_tokens), 0);
    t.strictSame(await level("tokens", "month"), [heldFor, 0, 100_000]);
    t.strictSame(await control("POST", "/cut/codex", {}), { cut: 0 });
    t.strictSame(await control("POST", "/cut/nobody", {}), { cut: 0 });
    await cut();
    t.equal((await call()).status, 200, "the tool itself goes on");
    t.notOk(logText().includes(key) || logText().includes(token));
  },
);

t.test("a websocket is refused if its limits cannot be applied to it", async (t) => {
  const lines = `websockets: true, ${GROUPS}`;
  const { change, daemon, gateway, token } = await startLimited(t, "limits: { tokens: 5/month }", {
    gatewayLines: lines,
  });
  const ask = async () => {
    const raw = await openRaw(t, daemon.port);
    raw.send(
      `GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:${daemon.port}\r\nauthorization: Bearer ${token}\r\n` +
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    );
    await raw.until("\r\n\r\n");
    return raw.status();
  };
  for (const settings of [
    "limits: { tokens: 5/month }",
    "limits: { spend: $1/day }",
    "quota: $5",
    "group: coding",
  ]) {
    if (settings !== "limits: { tokens: 5/month }") await change(settings);
    t.equal(await ask(), 426, settings);
  }
  t.equal(gateway.arrivals.length, 0);
  await change("limits: { requests: 1/month }");
  await ask();
  t.equal(gateway.arrivals.length, 1, "one that only counts requests passes, and counts");
  t.not(await ask(), 101);
  t.equal(gateway.arrivals.length, 1);
});
