import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import { advice } from "../../src/core/advice.ts";
import type { ChannelStatus, TestResult } from "../../src/notify/status.ts";
import { startReceiver } from "../doubles/alerts.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import { advised, command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { messages } from "../doubles/config-journey.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { type DaemonUnderTest, serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { showNotifications, startSessionBus } from "../doubles/notification-daemon.ts";
import { atScreen } from "../doubles/screen.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

function configOf(notify: string): string {
  return `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-0123456789abcdef } }\nnotify: ${notify}\n`;
}

async function channelsOf({ daemon }: DaemonUnderTest): Promise<readonly ChannelStatus[]> {
  const { notify } = await daemon.status();
  return notify.channels;
}

async function untilHeld(under: DaemonUnderTest, words: RegExp): Promise<void> {
  await until(`it is held: ${words}`, async () =>
    (await channelsOf(under)).some(({ state, why }) => state === "held" && words.test(why ?? "")),
  );
}

async function testAll({ paths }: DaemonUnderTest): Promise<readonly TestResult[]> {
  const asked = await askDaemon<TestResult[]>(paths, "POST", "/notify/test", { channel: null });
  if (!asked.ok) throw new Error(asked.problem);
  return asked.value;
}

t.test("without notify, the desktop is the only channel", async (t) => {
  const under = await startUnderTest(t, "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  t.match(await channelsOf(under), [{ name: "desktop" }]);
});

t.test("a webhook that leads elsewhere is held until trust notify, over a restart too", async (t) => {
  const home = await newHome(t);
  const [first, second] = [await startReceiver(t), await startReceiver(t)];
  const secret = randomBytes(12).toString("hex");
  const config = (origin: string) =>
    configOf(`{ desktop: false, webhooks: { ops: { url: "${origin}/${secret}" } } }`);
  const under = await startUnderTest(t, config(first.origin), { home });
  t.match(await testAll(under), [{ result: "delivered" }]);

  await under.save(config(second.origin));
  await untilHeld(under, /the address of webhook ops waits for your confirmation/);
  t.match((await channelsOf(under))[0]?.next, "keybearer trust notify");
  t.match(await testAll(under), [{ result: "held", next: "keybearer trust notify" }]);
  t.equal(second.received.length, 0);
  await under.save(configOf(`{ desktop: false, webhooks: { ops: { url: "${first.origin}/rotated" } } }`));
  await until(
    "another path of the same host is fine",
    async () => (await channelsOf(under))[0]?.state === "ok",
  );
  await under.save(config(second.origin));
  await untilHeld(under, /ops/);
  await under.daemon.stop(0);

  await serveIn(t, home);
  const person = atScreen(t, home, ["trust", "notify"]);
  await person.says(/trust this\? \[y\/N\]/);
  t.match(person.stdout(), /^the address of webhook ops$/m);
  t.match(person.stdout(), `was  ${first.origin}`);
  t.match(person.stdout(), `now  ${second.origin}`);
  person.type("yes\r");
  t.equal((await person.ended).code, 0);
  const tested = await command(t, home, ["notify", "test", "ops"]);
  t.match(tested.stdout, /^ops \(generic\): delivered$/m);
  t.equal(tested.code, 0);
  t.equal(second.received.length, 1);
  t.match((await atScreen(t, home, ["trust", "notify"]).ended).stdout, /nothing of notify is held/);
  t.notMatch(`${person.stdout()}${tested.stdout}${tested.stderr}`, secret);
});

t.test(
  "a known key is neither a webhook's address nor its secret, and the secret stays with its webhook",
  async (t) => {
    const receiver = await startReceiver(t);
    const secret = `whsec_${randomBytes(24).toString("base64")}`;
    const url = `${receiver.origin}/x`;
    const phone = `kind: ntfy, url: "${receiver.origin}", to: x`;
    const under = await startUnderTest(
      t,
      configOf(
        `{ desktop: false, webhooks: { ops: { url: "${url}", secret: ${secret} }, phone: { ${phone} } } }`,
      ),
    );
    t.match(await testAll(under), [{ result: "delivered" }, { result: "delivered" }]);
    const { body = "", headers = {} } = receiver.received[0] ?? {};
    t.ok(new Webhook(secret).verify(body, headers as Record<string, string>));
    await under.save(
      configOf(`{ desktop: false, webhooks: { mine: { url: "${url}", secret: ${secret} } } }`),
    );
    await untilHeld(under, /the secret of webhook mine .*webhook ops → webhook mine/);
    await under.save(
      configOf(`{ desktop: false, webhooks: { phone: { ${phone}, secret: sk-0123456789abcdef } } }`),
    );
    await untilHeld(under, /the secret of webhook phone .*http:\/\/127\.0\.0\.1:9 → webhook phone/);
    t.equal(receiver.received.length, 2);
  },
);

t.test("a new webhook and another recipient are held, and a token stays with its host", async (t) => {
  const [first, second] = [await startReceiver(t), await startReceiver(t)];
  const phone = (origin: string, to: string) =>
    `phone: { kind: ntfy, url: "${origin}", to: ${to}, secret: tk_0123456789abcdef }`;
  const config = (...webhooks: string[]) =>
    configOf(`{ desktop: false, webhooks: { ${webhooks.join(", ")} } }`);
  const under = await startUnderTest(t, config(phone(first.origin, "topic-one")));
  t.match(await testAll(under), [{ result: "delivered" }]);
  await under.save(config(phone(first.origin, "topic-two")));
  await untilHeld(under, /the address of webhook phone .*recipient [0-9a-f]{32} → recipient [0-9a-f]{32}$/);
  await under.save(config(phone(first.origin, "topic-one"), `ops: { url: "${first.origin}/canary" }`));
  await untilHeld(under, /the address of webhook ops .*nowhere → http/);
  t.match(await testAll(under), [{ result: "delivered" }, { result: "held" }]);
  await under.save(config(phone(second.origin, "topic-one")));
  await untilHeld(under, /the address of webhook phone/);
  const held = await askDaemon(under.paths, "GET", "/held/notify");
  const to = new RegExp(`${second.origin}$`);
  t.match(held, {
    value: [
      { what: "the address of webhook phone", to },
      { what: "the secret of webhook phone", to },
    ],
  });
  t.equal(first.received.length, 2);
  t.equal(second.received.length, 0);
  t.notMatch(`${JSON.stringify(held)}${under.logText()}`, /canary|topic-/);
});

t.test("a new program, variable or file is held and not used", async (t) => {
  const home = await newHome(t);
  const ran = join(home, "ran");
  const program = join(home, "my-alert");
  writeFileSync(program, `#!/bin/sh\ncat > ${ran}\n`);
  chmodSync(program, 0o755);
  const env = { HOOK: "https://a.example.com/x", PATH: "/usr/bin:/bin" };
  const under = await startUnderTest(t, configOf("{ desktop: false }"), { home, env });
  for (const source of ["env:HOOK", "file:/etc/hostname", `{ command: [${program}] }`]) {
    await under.save(configOf(`{ desktop: false, webhooks: { ops: { url: ${source} } } }`));
    await untilHeld(
      under,
      new RegExp(`that gives the address of webhook ops.*${source.split(/[:[]/)[1]?.slice(0, 4)}`),
    );
  }
  await under.save(configOf(`{ desktop: false, command: [${program}, --loud] }`));
  await untilHeld(under, /the command that gets the events waits .*my-alert --loud, for every event/);
  t.match(await testAll(under), [{ channel: "command", result: "held" }]);
  t.throws(() => readFileSync(ran), "it did not run");

  const person = atScreen(t, home, ["trust", "notify"]);
  await person.says(/trust this\? \[y\/N\]/);
  person.type("yes\r");
  t.match((await person.ended).stdout, /trusted notify command/);
  t.match(await testAll(under), [{ channel: "command", result: "delivered" }]);
  t.match(JSON.parse(readFileSync(ran, "utf8")), { kind: "test" });
  await under.save(configOf(`{ desktop: false, command: [${program}, --quiet] }`));
  await untilHeld(under, /--quiet/);
});

t.test("a program of the first start runs, and needs no confirmation", async (t) => {
  const under = await startUnderTest(t, configOf("{ desktop: false, command: [/bin/true] }"), {
    env: { PATH: "/bin" },
  });
  t.match(await testAll(under), [{ channel: "command", result: "delivered" }]);
});

t.test("kill -9 of the daemon while a receiver has not answered loses no alert", async (t) => {
  const home = await newHome(t);
  const receiver = await startReceiver(t);
  receiver.answer = () => {};
  const config = (gateway: string) =>
    `listen: localhost:0
gateway: ${gateway}
tools: { codex: { key: sk-0123456789abcdef } }
notify: { desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }
`;
  await saveConfig(home, config("http://127.0.0.1:9/v1"));
  const killed = await startServing(t, home);
  await saveConfig(home, config("http://127.0.0.1:10/v1"));
  await until("the alert is on its way", () => receiver.received.length === 1);
  killed.child.kill("SIGKILL");
  t.equal((await killed.ended).signal, "SIGKILL");

  receiver.answer = (res) => void res.end();
  const again = await startServing(t, home);
  await until("it arrived", () => receiver.received.length === 2);
  const [lost, arrived] = receiver.received;
  t.match(JSON.parse(arrived?.body ?? ""), {
    type: "keybearer.needs-trust",
    data: { subject: "tool codex", state: "begun" },
  });
  t.equal(arrived?.headers["webhook-id"], lost?.headers["webhook-id"]);
  const queue = join(home, "state", "notify-queue.jsonl");
  await until("nothing waits any more", () => readFileSync(queue, "utf8") === "");
  again.child.kill("SIGTERM");
  t.equal((await again.ended).code, 0);
  t.equal(receiver.received.length, 2, "it arrived once");
});

t.test("certificates of the company and an outbound proxy, as for a gateway", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const good = await startReceiver(t, "ok", certificates.good);
  const selfSigned = await startReceiver(t, "ok", certificates.selfSigned);
  const proxy = await startConnectProxy(t);
  const refusing = await startConnectProxy(t, "HTTP/1.1 407 No\r\n\r\n");
  const ca = `ca_file: ${certificates.authority}`;
  const webhooks = [
    `good: { url: "${good.origin}/x", ${ca} }`,
    `unknown: { url: "${good.origin}/x" }`,
    `self: { url: "${selfSigned.origin}/x", ${ca} }`,
    `through: { url: "${good.origin}/canary-path", ${ca}, proxy: "${proxy.url}" }`,
    `refused: { url: "${good.origin}/x", ${ca}, proxy: "${refusing.url}" }`,
  ];
  const under = await startUnderTest(t, configOf(`{ desktop: false, webhooks: { ${webhooks.join(", ")} } }`));
  t.match(await testAll(under), [
    { channel: "good", result: "delivered" },
    { channel: "unknown", result: "failed", problem: /certificate is not accepted/, next: /ca_file/ },
    { channel: "self", result: "failed", problem: /certificate is not accepted/ },
    { channel: "through", result: "delivered" },
    { channel: "refused", result: "failed", problem: /outbound proxy .* answered 407/, next: /proxy/ },
  ]);
  t.equal(good.received.length, 2);
  t.equal(proxy.heads.length, 1);
  t.notMatch(proxy.received(), "canary-path");
  await under.save(
    configOf(
      `{ desktop: false, webhooks: { good: { url: "${good.origin}/x", ${ca}, proxy: "${proxy.url}" } } }`,
    ),
  );
  await untilHeld(under, /the address of webhook good .*→ proxy http/);
});

t.test("a change is logged without addresses, secrets and recipients", async (t) => {
  const under = await startUnderTest(t, configOf("{ desktop: false }"));
  const webhook = (path: string, to: string) =>
    `{ desktop: true, quiet: "22:00-07:00", webhooks: { ops: { kind: ntfy, url: "http://127.0.0.1:9/", to: ${to}, secret: ${path} } } }`;
  await under.save(configOf(webhook("tk_canaryone", "canary-topic-one")));
  await until("it is there", async () => (await channelsOf(under)).length === 2);
  await under.save(configOf(webhook("tk_canarytwo", "canary-topic-two")));
  await until("it changed", () => messages(under).some((message) => message.includes("secret changed")));
  const log = messages(under).join("\n");
  t.match(log, /^notify: desktop false → true$/m);
  t.match(log, /^notify: quiet none → 22:00-07:00$/m);
  t.match(log, /^notify: webhook ops: added$/m);
  t.match(log, /^notify: webhook ops: to changed$/m);
  t.notMatch(under.logText(), /canary/);
});

t.test("status and doctor say what fails, and no place has an address, a secret or a key", async (t) => {
  const home = await newHome(t);
  const receiver = await startReceiver(t);
  const word = () => `canary${randomBytes(12).toString("hex")}`;
  const [path, token, key] = [word(), word(), `sk-${word()}`];
  // A hostile receiver repeats what it got.
  receiver.answer = (res) => {
    const { path: asked = "" } = receiver.received.at(-1) ?? {};
    res.writeHead(403, { "retry-after": asked, location: asked }).end(`invalid: ${asked} ${token}`);
  };
  mkdirSync(join(home, "keys"), { mode: 0o700 });
  writeFileSync(join(home, "keys", "hook"), `${receiver.origin}/services/${path}\n`, { mode: 0o600 });
  writeFileSync(join(home, "keys", "sign"), `SEC${token}\n`, { mode: 0o600 });
  writeFileSync(join(home, "keys", "codex"), `${key}\n`, { mode: 0o600 });
  await saveConfig(
    home,
    `listen: localhost:0
gateway: http://127.0.0.1:9/v1
tools: { codex: { key: "file:${home}/keys/codex" } }
notify:
  desktop: false
  webhooks:
    ops: { kind: slack, url: "file:${home}/keys/hook" }
    team: { kind: dingtalk, url: "file:${home}/keys/hook", secret: "file:${home}/keys/sign" }
`,
  );
  const under = await startUnderTest(t, null, { home });
  const said = [
    await command(t, home, ["notify", "test"]),
    await command(t, home, ["notify", "test", "--json"]),
  ];
  t.equal(said[0]?.code, 1);
  t.match(`${said[0]?.stdout}`, /^ops \(slack\): not delivered: it answered 403 → check its url and secret/m);
  const status = await command(t, home, ["status"]);
  t.match(status.stdout, /^alerts: sent to ops, team$/m);
  t.match(status.stdout, /^ {2}ops: failing since .*: it answered 403/m);
  const doctor = await command(t, home, ["doctor"]);
  t.match(doctor.stdout.replace(/\s+/g, " "), /alerts .*ops \(slack\) is failing: it answered 403/);
  const json = await command(t, home, ["status", "--json"]);
  const check = await command(t, home, ["check"]);
  const pasted = word();
  const wrong = await command(t, home, ["notify", "test", pasted]);
  t.match(wrong.stderr, `there is no channel ${pasted}`);
  said.push(status, doctor, json, check, wrong);
  const state = textsOf(filesBelow(join(home, "state")));
  const processes = await argumentsOfAll();
  const printed = said.map(({ stdout, stderr }) => stdout + stderr).join("");
  await under.daemon.stop(0);
  const log = under.logText();
  t.notMatch(log, pasted);
  t.same(scan({ ...state, processes, printed, log }, { path, token, key }), []);
});

t.test("status says how to try a receiver that fails again", async (t) => {
  const home = await newHome(t);
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(503).end();
  const notify = configOf(`{ desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }`);
  await saveConfig(home, `listen: localhost:0\n${notify}`);
  await serveIn(t, home);
  t.equal((await command(t, home, ["notify", "test"])).code, 1);
  const status = await command(t, home, ["status"]);
  const again = advised(t, status.stdout, advice.notifyTest("ops"));
  receiver.answer = (res) => void res.end();
  const tried = await command(t, home, again);
  t.match(tried.stdout, /^ops \(generic\): delivered$/m);
  t.equal(tried.code, 0);
  t.notMatch((await command(t, home, ["status"])).stdout, "failing");
});

t.test("at a terminal a person is asked whether the desktop showed it", async (t) => {
  const home = await newHome(t);
  const runtime = join(home, "user");
  mkdirSync(runtime, { mode: 0o700 });
  if ((await startSessionBus(t, join(runtime, "bus"))) === null) return;
  const shown = await showNotifications(t, join(runtime, "bus"));
  await saveConfig(home, `listen: localhost:0\n${configOf("{ desktop: true }")}`);
  await startUnderTest(t, null, { home, env: { XDG_RUNTIME_DIR: runtime } });
  const piped = await command(t, home, ["notify", "test"]);
  t.equal(piped.stdout, "desktop: sent to the desktop\n", "without a terminal nothing is asked");
  t.equal(piped.code, 0);
  for (const [answer, code, words] of [
    ["y\r", 0, /sent to the desktop/],
    ["n\r", 1, /does not show it\s+→ (?:turn off Do Not Disturb|allow notifications)/],
  ] as const) {
    const person = atScreen(t, home, ["notify", "test", "desktop"]);
    await person.says(/did a notification appear on the desktop\? \[Y\/n\]/);
    person.type(answer);
    const ended = await person.ended;
    t.equal(ended.code, code);
    t.match(ended.stdout, words);
  }
  t.equal(shown.length, 3);
});

t.test("where there is no desktop, that is no error", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, `listen: localhost:0\n${configOf("{ desktop: true }")}`);
  await startUnderTest(t, null, { home, env: { XDG_RUNTIME_DIR: home } });
  const tested = await command(t, home, ["notify", "test"]);
  t.match(tested.stdout, /^desktop: there is no session bus, so nothing is shown$/m);
  t.match(tested.stdout, "add a webhook");
  t.equal(tested.code, 0);
  t.match((await command(t, home, ["status"])).stdout, /^ {2}desktop: there is no session bus$/m);
});

/** What ps shows of every process. */
async function argumentsOfAll(): Promise<string> {
  const names = (await readdir("/proc").catch(() => [])).filter((name) => /^\d+$/.test(name));
  const texts = await Promise.all(
    names.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")),
  );
  return texts.join("\n");
}
