import { chmodSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { formatFindings } from "../../src/cli/doctor/command.ts";
import { findPaths } from "../../src/core/paths.ts";
import { Secret } from "../../src/core/secret.ts";
import type { Finding } from "../../src/doctor/findings.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { examineHome } from "../doubles/doctor.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { startSandbox, type TestGateway } from "../doubles/sandbox.ts";

/** Of the running test. */
let sandbox: TestGateway;

const { token, hash } = freshToken();

function newKey(more: Partial<Parameters<typeof sandbox.createKey>[0]> = {}) {
  return sandbox.createKey({ name: "doctor", group: "default", ...more });
}

interface Examined {
  readonly findings: readonly Finding[];
  /** The findings about a tool or a gateway that are not ok. */
  wrong(about: string): readonly Finding[];
}

async function examined(home: string, env: NodeJS.ProcessEnv = {}): Promise<Examined> {
  const findings = await examineHome(findPaths({ env: { KEYBEARER_HOME: home }, home }), env);
  const wrong = (about: string) => findings.filter((each) => each.about === about && each.level !== "ok");
  return { findings, wrong };
}

/** Every tool is { key, … } in YAML. */
async function withTools(
  t: Test,
  tools: Readonly<Record<string, string>>,
  gateways?: string,
): Promise<string> {
  const home = await newHome(t);
  const lines = Object.entries(tools).map(([name, text]) => `  ${name}: { token: "${hash}", ${text} }`);
  const first = gateways ?? `gateways: { main: { base_url: "${sandbox.baseUrl}" } }`;
  const distinct = lines.map((line, at) => line.replace(hash, distinctHash(at)));
  await saveConfig(home, `listen: localhost:0\n${first}\ntools:\n${distinct.join("\n")}\n`);
  return home;
}

/** One token opens one tool only. */
function distinctHash(at: number): string {
  return at === 0 ? hash : freshToken().hash;
}

async function spendAll(key: Secret): Promise<void> {
  const answer = await fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key.reveal()}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "sandbox-large", messages: [{ role: "user", content: "hello" }] }),
  });
  await answer.text();
}

t.test("without a daemon, each tool's key is checked, and each problem has its own cause", async (t) => {
  sandbox = await startSandbox(t);
  const good = newKey();
  const cut = newKey().key.reveal().slice(0, -9);
  const quota = newKey({ quota: 0.000001 });
  await spendAll(quota.key);
  const disabled = newKey();
  sandbox.disableKey(disabled.id);
  const expired = newKey({ expiresAt: Date.now() - 1000 });
  const closed = newKey({ group: "retired" });
  const coding = newKey({ group: "coding" });
  const home = await withTools(t, {
    good: `key: ${good.key.reveal()}`,
    cut: `key: ${cut}`,
    spaces: "key: env:SPACED",
    quota: `key: ${quota.key.reveal()}`,
    disabled: `key: ${disabled.key.reveal()}`,
    expired: `key: ${expired.key.reveal()}`,
    closed: `key: ${closed.key.reveal()}`,
    group: `key: ${coding.key.reveal()}, model: sandbox-small`,
    idle: `key: ${newKey().key.reveal()}, enabled: false`,
  });
  const { findings, wrong } = await examined(home, { SPACED: "sk-abc def0123456789" });
  t.match(wrong("config.yaml"), [
    { level: "warning", what: /^tools: the keys of good, cut, .* are written into config\.yaml/ },
    { level: "warning", what: /^tools: no limit for good, cut, / },
  ]);
  t.same(wrong("tool good"), []);
  t.same(wrong("tool idle"), []);
  const problem = (name: string, what: RegExp, next: RegExp) =>
    t.match(wrong(`tool ${name}`), [{ level: "problem", what, next }], name);
  problem("cut", /^incomplete key: .*shorter than/, /keybearer tools rotate cut --manual$/);
  problem("spaces", /incomplete key: the key contains a space/, /keybearer tools rotate spaces/);
  problem("quota", /^balance or quota: the key's own quota/, /console/);
  problem("disabled", /^disabled key \(401: /, /enable it in the console/);
  problem("expired", /^expired key \(403: /, /expiry in the console/);
  problem("closed", /^group unavailable: the key's group is disabled \(403: /, /choose another group/);
  problem(
    "group",
    /^group unavailable: the key's list lacks model sandbox-small/,
    /keybearer models --tool group/,
  );
  t.match(
    findings.find(({ id }) => id === "daemon"),
    { level: "problem", next: "keybearer start" },
  );
  const shown = formatFindings(findings, 80) + JSON.stringify(findings);
  for (const text of [good.key, quota.key, disabled.key, coding.key])
    t.notOk(text.isIn(shown), "no key is shown");
  t.notOk(new Secret(cut).isIn(shown));
});

t.test("an empty account is distinguished from a used up key", async (t) => {
  sandbox = await startSandbox(t);
  const home = await withTools(t, { codex: `key: ${newKey().key.reveal()}` });
  sandbox.account.balance = 0;
  t.match((await examined(home)).wrong("tool codex"), [{ what: /^balance or quota: the account's balance/ }]);
});

t.test(
  "a base url with an endpoint, without /v1, of the console's page, or where nothing listens is a problem",
  async (t) => {
    sandbox = await startSandbox(t);
    const key = newKey().key.reveal();
    const { origin, baseUrl } = sandbox;
    const at = (url: string) =>
      withTools(t, { codex: `key: ${key}` }, `gateways: { main: { base_url: "${url}" } }`);
    const endpoint = await examined(await at(`${baseUrl}/chat/completions`));
    t.match(endpoint.wrong("config.yaml"), [
      {
        id: "base-url",
        level: "problem",
        what: /endpoint path \/chat\/completions/,
        next: `cut it off: ${baseUrl}`,
      },
    ]);
    const bare = await examined(await at(origin));
    t.match(bare.wrong("config.yaml"), [
      { id: "base-url", what: /wrong base url/, next: `probably: ${baseUrl}` },
    ]);
    const page = await examined(await at(`${origin}/console/v1`));
    t.match(page.wrong("gateway main"), [{ id: "base-url", what: /a web page/, next: `${baseUrl} answers` }]);
    t.match(page.wrong("tool codex"), [{ level: "warning", what: /could not be checked/ }]);
    const dead = await examined(await at("http://127.0.0.1:9/v1"));
    t.match(dead.wrong("gateway main"), [{ id: "gateway", level: "problem", what: /nothing listens there/ }]);
  },
);

t.test(
  "with a daemon, its keys are checked, a deleted key is recognized, and models that the list lacks are reported",
  async (t) => {
    sandbox = await startSandbox(t);
    const deleted = newKey();
    const other = newKey();
    const under = await startUnderTest(
      t,
      `gateways: { main: { base_url: "${sandbox.baseUrl}" } }
tools:
  codex: { key: env:CODEX_KEY, token: "${hash}" }
  chat: { key: ${other.key.reveal()}, limits: { requests: 1/day } }
`,
      { env: { CODEX_KEY: deleted.key.reveal() } },
    );
    const ask = async (model: string) => {
      const answer = await fetch(`${under.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ model, messages: [{ role: "user", content: "hello" }] }),
      });
      await answer.text();
      return answer.status;
    };
    t.equal(await ask("sandbox-small"), 200);
    t.equal(await ask("gpt-nowhere"), 404);
    const before = await examined(under.home);
    t.match(before.wrong("tool codex"), [
      { level: "warning", what: /lacks model gpt-nowhere \(1 request, none answered\)/ },
    ]);
    t.match(before.wrong("tool chat"), [{ id: "token", next: "keybearer tools token chat" }]);
    t.match(
      before.findings.filter(({ about }) => about === "the daemon" || about === "the usage log"),
      [{ level: "ok", what: /running as pid/ }, { id: "node" }, { level: "ok", id: "usage" }],
    );
    sandbox.deleteKey(deleted.id);
    const after = await examined(under.home);
    t.match(after.wrong("tool codex"), [
      { what: /^deleted key \(401: /, next: /keybearer tools rotate codex --manual$/ },
    ]);
  },
);

t.test("without a daemon, a known key that an edit sends elsewhere is held, and not sent", async (t) => {
  sandbox = await startSandbox(t);
  const { key } = newKey();
  const stranger = await startRawGateway(t, (call) => call.ok('{"data":[]}'));
  const home = await newHome(t);
  const config = (url: string) =>
    `gateway: ${url}\ntools: { codex: { key: ${key.reveal()}, token: "${hash}" } }\n`;
  const { daemon } = await startUnderTest(t, config(sandbox.baseUrl), { home });
  await daemon.stop(0);
  await saveConfig(home, config(`${stranger.origin}/v1`));
  const { wrong } = await examined(home);
  t.match(wrong("tool codex"), [{ level: "problem", what: stranger.origin, next: "keybearer trust codex" }]);
  t.equal(stranger.connections(), 0, "nothing went there");
});

t.test("without a daemon, a port that another program has is a problem", async (t) => {
  sandbox = await startSandbox(t);
  const taken = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => taken.once("listening", resolve));
  t.teardown(() => taken.close());
  const address = taken.address();
  const port = typeof address === "object" ? address?.port : 0;
  const home = await withTools(t, { codex: `key: ${newKey().key.reveal()}` });
  await saveConfig(
    home,
    `listen: localhost:${port}\ngateway: ${sandbox.baseUrl}\ntools: { codex: { key: env:NOT_SET } }\n`,
  );
  const { wrong } = await examined(home);
  t.match(wrong("the daemon"), [{ id: "daemon" }, { id: "port", what: `port ${port} is taken by` }]);
});

t.test("a missing config.yaml is a warning", async (t) => {
  const home = await newHome(t);
  const { findings } = await examined(home);
  t.match(findings[0], { about: "config.yaml", level: "warning", next: "keybearer init" });
});

t.test("a file that others may read is reported with its chmod", async (t) => {
  const home = await newHome(t);
  const text = "gateway: https://g.invalid/v1\ntools: { a: { key: sk-left-here-0001 } }\n";
  chmodSync(await saveConfig(home, text), 0o644);
  const { wrong } = await examined(home);
  t.match(wrong("config.yaml"), [{ level: "problem", what: /other users can read/, next: /^chmod 600/ }]);
});

t.test("findings fit 80 columns, are summed up, and contain no escape sequences", async (t) => {
  const finding = (more: Partial<Finding>): Finding => ({
    ...{ id: "key", level: "ok", about: "tool codex", what: "key …a1b2 is accepted", next: null },
    ...more,
  });
  const shown = formatFindings(
    [
      finding({}),
      finding({
        level: "problem",
        what: "a long sentence ".repeat(12).trim(),
        next: "keybearer tools rotate codex",
      }),
      finding({ about: "gateway main", level: "warning", what: "\u001b[2Jclock", next: null }),
    ],
    80,
  );
  t.ok(shown.split("\n").every((line) => line.length <= 80));
  t.match(shown, /^tool codex\n {2}ok {7}key …a1b2 is accepted\n {2}problem {2}a long/);
  t.match(shown, "\n           → keybearer tools rotate codex\n");
  t.notMatch(shown, "\u001b");
  t.match(shown, /\n1 problem, 1 warning\n$/);
  t.match(formatFindings([finding({})], 80), /\nno problems found\n$/);
});

t.test("doctor --config examines another file", async (t) => {
  const home = await newHome(t);
  const file = join(home, "other.yaml");
  writeFileSync(file, "gateway: nonsense\n", { mode: 0o600 });
  const { code, stdout } = await command(t, home, ["doctor", "--json", "--config", file]);
  t.equal(code, 1);
  t.match(stdout, /nonsense.* is not an address/);
});
