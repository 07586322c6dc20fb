import { randomBytes } from "node:crypto";
import t from "tap";
import { describeChanges, needsRestart } from "../../src/config/changes.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { type KeyState, SHARED_PASSWORD, Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";

/** A random key, with an ending of our choice. */
const canary = (ending: string) => `sk-${randomBytes(12).toString("hex")}${ending}`;
const OLD = canary("0a1b");
const NEW = canary("9c3d");

function snapshot(text: string, keys: Readonly<Record<string, KeyState>> = {}): Snapshot {
  const { config, problems } = parseConfig(text, "/home/me");
  if (config === null) throw new Error(JSON.stringify(problems));
  return new Snapshot(1, config, new Map(Object.entries(keys)), []);
}

const gateway = (settings: string) =>
  `gateways: { main: { base_url: https://a.example.com/v1, ${settings} } }\ntools: { codex: {} }\n`;
const tool = (settings: string) =>
  `gateways: { main: { base_url: https://a.example.com/v1, groups: { one: {}, two: {} } }, other: { base_url: https://b.example.com/v1 } }\ntools: { codex: { gateway: main, ${settings} } }\n`;
const top = (settings: string) => `gateway: https://a.example.com/v1\ntools: { codex: {} }\n${settings}\n`;
const group = (settings: string) => gateway(`groups: { coding: { ${settings} } }`);
const H = (digit: string) => `sha256:${digit.repeat(64)}`;

const CHANGES: readonly (readonly [before: string, after: string, ...expectedChanges: string[]])[] = [
  [top(""), top("listen: 127.0.0.1:1"), "listen localhost:5397 → 127.0.0.1:1"],
  [top(""), top('listen: "[::1]:1"'), "listen localhost:5397 → [::1]:1"],
  [top(""), top("drain: 1.5m"), "drain 10s → 90s"],
  [top(""), top("log: { level: debug }"), "log level info → debug"],
  [
    top(""),
    top("usage: { sync: full }"),
    'usage {"keep":34560000000,"sync":"normal","project":"off","sameModels":{}} → {"keep":34560000000,"sync":"full","project":"off","sameModels":{}}',
  ],
  [
    top(""),
    top("dashboard: false"),
    'dashboard {"listen":{"host":"localhost","port":5398},"when":"asked"} → {"listen":{"host":"localhost","port":5398},"when":"never"}',
  ],
  [top(""), top("prices: { m: { input: 1, output: 2 } }"), "price m: added"],
  [top("prices: { m: { input: 1, output: 2 } }"), top(""), "price m: removed"],
  [gateway("websockets: false"), gateway("websockets: true"), "gateway main: websockets false → true"],
  [gateway("key_header: auto"), gateway("key_header: bearer"), "gateway main: key_header auto → bearer"],
  [
    gateway("websockets: false"),
    gateway("proxy: http://127.0.0.1:1"),
    "gateway main: proxy none → http://127.0.0.1:1",
  ],
  [
    gateway("timeouts: {}"),
    gateway("timeouts: { idle: 1m }"),
    'gateway main: timeouts {"connect":10000,"retryConnect":20000,"firstByte":600000,"idle":300000} → {"connect":10000,"retryConnect":20000,"firstByte":600000,"idle":60000}',
  ],
  [
    gateway("messages_url: https://a.example.com"),
    gateway("messages_url: https://m.example.com"),
    "gateway main: messages_url https://a.example.com → https://m.example.com",
  ],
  [
    top(""),
    top("").replace("https://a.example.com", "https://b.example.com"),
    "gateway main: base_url https://a.example.com/v1 → https://b.example.com/v1",
    "gateway main: messages_url https://a.example.com → https://b.example.com",
  ],
  [gateway("groups: {}"), group(""), "gateway main: group coding: added"],
  [group(""), gateway("groups: {}"), "gateway main: group coding: removed"],
  [group(""), group("enabled: false"), "gateway main: group coding: disabled"],
  [group("enabled: false"), group(""), "gateway main: group coding: enabled"],
  [group(""), group("multiplier: 1.5"), "gateway main: group coding: multiplier 1 → 1.5"],
  [group(""), group("models: [a, b]"), "gateway main: group coding: models * → a, b"],
  [gateway("groups: {}"), gateway("console: {}"), "gateway main: console changed"],
  [
    gateway(`console: { login: { password: ${OLD} } }`),
    gateway(`console: { login: { password: ${NEW} } }`),
    "gateway main: console changed",
  ],
  [tool(""), tool("enabled: false"), "tool codex: disabled"],
  [tool("enabled: false"), tool(""), "tool codex: enabled"],
  [tool(""), tool("").replace("gateway: main", "gateway: other"), "tool codex: gateway main → other"],
  [tool(""), tool("group: one"), "tool codex: group none → one"],
  [tool("group: one"), tool("group: two"), "tool codex: group one → two"],
  [tool(""), tool("key: env:A"), "tool codex: key comes from keychain:keybearer/codex → env:A"],
  [
    tool("key: file:/a"),
    tool("key: { command: [/b, s3cret-argument] }"),
    "tool codex: key comes from file:/a → command /b",
  ],
  [tool(""), tool(`token: ${H("a")}`), "tool codex: tokens changed, now 1"],
  [tool(`token: ${H("a")}`), tool(`token: [${H("b")}, ${H("c")}]`), "tool codex: tokens changed, now 2"],
  [tool(""), tool("token_in_url: true"), "tool codex: token_in_url false → true"],
  [tool(""), tool("process: /opt/x"), "tool codex: process none → /opt/x"],
  [tool(""), tool("allow_origins: [app://a, app://b]"), "tool codex: allow_origins none → app://a, app://b"],
  [tool(""), tool("model: m"), "tool codex: model none → m"],
  [
    tool(""),
    tool("limits: { requests: [60/minute, 1/day] }"),
    "tool codex: requests none → 60/minute, 1/day",
  ],
  [tool(""), tool("limits: { tokens: 4k/hour }"), "tool codex: tokens none → 4000/hour"],
  [
    tool("limits: { spend: $5/day }"),
    tool("limits: { spend: $0.5/day }"),
    "tool codex: spend $5.00/day → $0.50/day",
  ],
  [tool(""), tool("limits: { concurrent: 2 }"), "tool codex: concurrent none → 2"],
  [
    tool("limits: { session: { spend: $5 } }"),
    tool("limits: { session: { spend: $0.50, requests: 9 } }"),
    "tool codex: session spend $5.00 → requests 9, spend $0.50",
  ],
  [tool(""), tool("limits: { wait: 2s }"), "tool codex: wait 0 → 2000"],
  [tool(""), tool("quota: $2"), "tool codex: quota none → $2.00"],
  [tool(""), tool("expires: 2027-03-31T18:00:00Z"), "tool codex: expires none → 2027-03-31T18:00:00.000Z"],
  [tool(""), tool("ask_usage: true"), "tool codex: ask_usage false → true"],
  [tool(""), tool("estimate: true"), "tool codex: estimate false → true"],
  [tool(""), tool("keys_elsewhere: true"), "tool codex: keys_elsewhere false → true"],
  [tool(""), tool("watch_only: true"), "tool codex: watch_only false → true"],
  [top(""), top("").replace("codex", "scripts"), "tool codex: removed", "tool scripts: added"],
  [tool(""), tool("shared: false"), "tool codex: shared true → false"],
  [
    top(""),
    top("shared: { store: rediss://s.example.net }"),
    "shared: added, with rediss://s.example.net:6379",
  ],
  [top("shared: { store: rediss://s.example.net }"), top(""), "shared: removed"],
  [
    top("shared: { store: rediss://s.example.net }"),
    top(
      "shared: { store: { url: rediss://t.example.net/2, username: me, password: env:A, ca_file: /ca.pem, prefix: work }, secret: env:B, machine: laptop, timezone: UTC, when_unreachable: refuse }",
    ),
    "shared: store rediss://s.example.net:6379 → rediss://t.example.net:6379/2",
    "shared: username none → me",
    "shared: password comes from none → env:A",
    "shared: secret comes from none → env:B",
    "shared: ca_file none → /ca.pem",
    "shared: prefix keybearer → work",
    "shared: machine none → laptop",
    "shared: timezone none → UTC",
    "shared: when_unreachable grant → refuse",
  ],
];

for (const [before, after, ...expectedChanges] of CHANGES) {
  t.test(`a reload reports: ${expectedChanges.join("; ")}`, async (t) => {
    t.same(describeChanges(snapshot(before), snapshot(after)), expectedChanges);
    t.same(describeChanges(snapshot(after), snapshot(after)), [], "nothing where nothing changed");
  });
}

t.test("keys appear as fingerprints only", async (t) => {
  const ready = (text: string): KeyState => ({ state: "ready", key: new Secret(text) });
  const held: KeyState = {
    state: "needs-trust",
    what: "the key …0a1b of codex",
    from: "https://a",
    to: "https://b",
  };
  const gone: KeyState = { state: "unavailable", problem: "the variable A is not set", next: null };
  const between = (from: KeyState, to: KeyState) =>
    describeChanges(
      snapshot(tool("key: env:A"), { codex: from }),
      snapshot(tool("key: env:A"), { codex: to }),
    );
  t.same(between(ready(OLD), ready(NEW)), ["tool codex: key …0a1b → …9c3d"]);
  t.same(between(ready(OLD), ready(OLD)), []);
  t.same(between(ready(OLD), gone), ["tool codex: key …0a1b → unavailable"]);
  t.same(between(gone, gone), []);
  t.same(between(gone, ready(NEW)), ["tool codex: key unavailable → …9c3d"]);
  t.same(between(ready(OLD), held), [
    "tool codex: key …0a1b → held (the key …0a1b of codex: https://a → https://b)",
  ]);
  t.same(between(held, held), []);
  const twin = `${OLD.slice(0, -8)}zzzz${OLD.slice(-4)}`;
  t.same(
    between(ready(OLD), ready(twin)),
    ["tool codex: key …0a1b → …0a1b"],
    "another key with the same ending is reported",
  );
});

t.test("a literal key that changes is reported once, without either key", async (t) => {
  const withKey = (key: string) =>
    snapshot(tool(`key: ${key}`), { codex: { state: "ready", key: new Secret(key) } });
  const expectedChanges = describeChanges(withKey(OLD), withKey(NEW));
  t.same(expectedChanges, ["tool codex: key …0a1b → …9c3d"]);
  for (const key of [OLD, NEW]) t.notOk(expectedChanges.join("\n").includes(key.slice(0, -4)));
  const shown = describeChanges(snapshot(tool("key: env:A")), withKey(NEW)).join("\n");
  t.notOk(shown.includes(NEW.slice(0, -4)), shown);
});

t.test("the password of the shared store is reported without its fingerprint", async (t) => {
  const store = (password: string) =>
    top(`shared: { store: { url: rediss://s.example.net, password: ${password} } }`);
  const ready = (text: string): KeyState => ({ state: "ready", key: new Secret(text) });
  const between = (from: KeyState, to: KeyState, source = "env:A") =>
    describeChanges(
      snapshot(store("env:A"), { [SHARED_PASSWORD]: from }),
      snapshot(store(source), { [SHARED_PASSWORD]: to }),
    );
  const held: KeyState = { state: "needs-trust", what: "the password", from: "rediss://a", to: "rediss://b" };
  const gone: KeyState = { state: "unavailable", problem: "the variable A is not set", next: null };
  t.same(between(ready(OLD), ready(OLD)), []);
  t.same(between(ready(OLD), ready(NEW)), ["shared: password changed"]);
  t.same(between(ready(OLD), gone), ["shared: password ready → unavailable"]);
  t.same(between(gone, ready(NEW)), ["shared: password unavailable → ready"]);
  t.same(between(gone, gone), []);
  t.same(between(ready(OLD), held), [
    "shared: password ready → held (the password: rediss://a → rediss://b)",
  ]);
  const literal = between(ready(OLD), ready(NEW), NEW);
  t.same(literal, ["shared: password comes from env:A → config.yaml itself", "shared: password changed"]);
});

t.test("only listen needs a restart", async (t) => {
  const from = snapshot(top("")).config;
  t.same(needsRestart(from, snapshot(top("listen: localhost:1")).config), [
    { path: "listen", message: "listen localhost:5397 → localhost:1 needs a restart" },
  ]);
  t.same(needsRestart(from, snapshot(top("usage: { sync: full }")).config), [
    { path: "usage.sync", message: "usage.sync normal → full needs a restart" },
  ]);
  t.same(needsRestart(from, snapshot(top("log: { level: debug }")).config), []);
  t.same(needsRestart(from, snapshot(top("shared: { store: rediss://s.example.net }")).config), []);
});
