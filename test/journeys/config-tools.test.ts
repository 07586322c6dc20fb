import t from "tap";
import { ask, holdsNone, messages, toolState } from "../doubles/config-journey.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { heldClock, newKey, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

t.test(
  "a tool that is removed, disabled, expired or of a disabled group is refused at once, and comes back",
  async (t) => {
    const gateway = await startSandbox(t);
    const key = newKey(gateway);
    const { token, hash } = freshToken();
    const text = (settings: string, group = "enabled: true", name = "codex") =>
      `gateways: { main: { base_url: "${gateway.baseUrl}", groups: { coding: { ${group} } } } }\ntools:\n  ${name}: { group: coding, key: ${key.text}, ${settings} }\n`;
    const good = text(`token: ${hash}`);
    const under = await startUnderTest(t, good);
    const stages: [string, string, number, RegExp][] = [
      [
        text(`token: ${hash}, enabled: false`),
        "tool-disabled",
        400,
        /tool codex is disabled\. the owner can type: keybearer tools enable codex/,
      ],
      [
        text(`token: ${hash}, expires: 2020-01-01`),
        "tool-expired",
        400,
        /tool codex expired at the end of 2020-01-01\./,
      ],
      [
        text(`token: ${hash}`, "enabled: false"),
        "group-disabled",
        400,
        /group coding of tool codex is disabled on gateway main/,
      ],
      [text("model: x"), "token-unknown", 401, /was revoked, /],
      [text("model: x", "enabled: true", "other"), "token-unknown", 401, /was revoked, /],
    ];
    for (const [edit, refusal, status, words] of stages) {
      await under.save(edit);
      await under.daemon.reload();
      const before = gateway.requests().length;
      const answer = await ask(under, token);
      t.match(answer, { refusal, status });
      t.match(answer.text, words);
      t.equal(gateway.requests().length, before, `nothing reached the gateway: ${refusal}`);
      await under.save(good);
      await under.daemon.reload();
      t.equal((await ask(under, token)).status, 200, `mended, it serves again: ${refusal}`);
    }
    holdsNone(t, under, [key.text, token]);
  },
);

t.test("a tool expires while keybearer runs, without an edit", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const clock = heldClock();
  const expires = new Date(clock.now() + 60_000).toISOString();
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}\ntools: { codex: { key: ${key.text}, token: ${hash}, expires: ${expires} } }\n`,
    { clock },
  );
  t.equal((await ask(under, token)).status, 200);
  clock.pass(59_999);
  t.equal((await ask(under, token)).status, 200);
  clock.pass(1);
  t.match(await ask(under, token), { status: 400, refusal: "tool-expired" });
  t.match(await toolState(under, "codex"), { state: "expired", next: "change tools.codex.expires" });
});

t.test("the log level changes with the file, and a setting that needs a restart is reported", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const text = (more: string) =>
    `gateway: ${gateway.baseUrl}\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n${more}`;
  const under = await startUnderTest(t, text(""));
  t.equal(under.daemon.log.level, "info");
  const requests = () => messages(under).filter((message) => message === "request").length;
  t.equal((await ask(under, token)).status, 200);
  t.equal(requests(), 0, "a request that goes well is only in the usage log");
  await under.save(text("log: { level: debug }\n"));
  await until("the level is taken up", () => under.daemon.log.level === "debug");
  t.ok(messages(under).includes("log level info → debug"));
  t.equal((await ask(under, token)).status, 200);
  await until("the request is logged, too", () => requests() === 1);

  await under.save(text(""));
  await until("the level is back", () => under.daemon.log.level === "info");
  await under.save(text("listen: 127.0.0.1:1\n"));
  await until("listen is told", () => messages(under).some((line) => line.includes("needs a restart")));
  t.ok(messages(under).includes("listen localhost:0 → 127.0.0.1:1 needs a restart"));
  t.equal((await ask(under, token)).status, 200, "the old address goes on");
});

t.test("each change is logged with its revision, and a save that changes nothing is not", async (t) => {
  const gateway = await startSandbox(t);
  const [old, fresh] = [newKey(gateway), newKey(gateway)];
  const [a, b] = [freshToken(), freshToken()];
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}\ntools:\n  codex: { key: ${old.text}, token: ${a.hash} }\n  gone: {}\n`,
  );
  await under.save(
    `gateway: ${gateway.baseUrl}\ntools:\n  codex: { key: ${fresh.text}, token: [${a.hash}, ${b.hash}], limits: { requests: 60/minute } }\n  new: {}\n`,
  );
  await until("it is in force", () => under.daemon.snapshot().revision > 1);
  const revision = under.daemon.snapshot().revision;
  const said = under.log().filter((line) => line.revision === revision);
  t.same(
    said.map((line) => line.msg),
    [
      "tool codex: tokens changed, now 2",
      "tool codex: requests none → 60/minute",
      `tool codex: key ${old.fingerprint} → ${fresh.fingerprint}`,
      "tool gone: removed",
      "tool new: added",
      "configuration loaded",
    ],
  );
  t.equal((await ask(under, b.token)).status, 200, "the added token lets in");
  holdsNone(t, under, [old.text, fresh.text, a.token, b.token]);
});
