import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import t, { type Test } from "tap";
import { parse } from "yaml";
import { advised, command, type Ended, flat, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { ask, newKey, startSandbox, type TestGateway } from "../doubles/sandbox.ts";
import { filesBelow } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

/** How each client's file says where requests go, and with which credential. */
const CLIENTS: Readonly<Record<string, readonly [file: string, address: RegExp, key: RegExp]>> = {
  "claude-code": [
    ".claude/settings.json",
    /"ANTHROPIC_BASE_URL": "([^"]+)"/,
    /"ANTHROPIC_AUTH_TOKEN": "([^"]+)"/,
  ],
  codex: [".codex/config.toml", /base_url = "([^"]+)\/v1"/, /experimental_bearer_token = "([^"]+)"/],
  "qwen-code": [".qwen/.env", /OPENAI_BASE_URL=(.+)\/v1/, /OPENAI_API_KEY=(.+)/],
};

/** Three clients with one bare key, and a keybearer that knows their gateway. */
async function prepare(t: Test, { console }: { readonly console: "with login" | "without login" | "none" }) {
  const sandbox = await startSandbox(t);
  const key = newKey(sandbox);
  const home = await newHome(t);
  const { email, password } = sandbox.account;
  const secret = console === "with login" ? `, password: ${password.reveal()}` : "";
  const entry = `console: { kind: sub2api, url: "${sandbox.origin}", login: { email: ${email}${secret} } }`;
  await saveConfig(
    home,
    [
      "listen: localhost:0",
      "gateways:",
      "  main:",
      `    base_url: ${sandbox.baseUrl}`,
      ...(console === "none" ? [] : [`    ${entry}`]),
      "tools: {}",
      "",
    ].join("\n"),
  );
  const files: Readonly<Record<string, string>> = {
    ".claude/settings.json": `{ "env": { "ANTHROPIC_BASE_URL": "${sandbox.origin}", "ANTHROPIC_AUTH_TOKEN": "${key.text}" } }\n`,
    ".codex/config.toml": `model_provider = "gw"\n\n[model_providers.gw]\nbase_url = "${sandbox.baseUrl}"\nexperimental_bearer_token = "${key.text}"\n`,
    ".qwen/.env": `OPENAI_BASE_URL=${sandbox.baseUrl}\nOPENAI_API_KEY=${key.text}\n`,
  };
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text, { mode: 0o600 });
  }
  const cwd = process.cwd();
  process.chdir(home);
  t.teardown(() => process.chdir(cwd));
  const { daemon } = await serveIn(t, home);
  const run = (...args: string[]) => command(t, home, args, { env: { SHELL: "/bin/zsh" } });
  return { sandbox, key, home, daemon, run };
}

function adoptAll(run: (...args: string[]) => Promise<Ended>): Promise<Ended> {
  return run("adopt", "--write", "--yes", "--store", "file", "--rotate");
}

/** What a client's next request gets, with its file as it is. */
async function call(home: string, client: string): Promise<number> {
  const [file, address, key] = CLIENTS[client] ?? ["", /^$/, /^$/];
  const text = readFileSync(join(home, file), "utf8");
  const [, url = ""] = address.exec(text) ?? [];
  const [, token = ""] = key.exec(text) ?? [];
  return (await ask(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } })).status;
}

async function allWork(t: Test, home: string): Promise<void> {
  for (const client of Object.keys(CLIENTS)) t.equal(await call(home, client), 200, `${client} works`);
}

/** The key of a tool, which must be in a file of keybearer's own. */
function keyOf(home: string, tool: string): string {
  const { tools } = parse(readFileSync(join(home, "config.yaml"), "utf8"));
  return readFileSync(tools[tool].key.replace("file:~", home), "utf8").trim();
}

/** Where a text is below a home folder. */
function filesWith(home: string, text: string): string[] {
  return filesBelow(home)
    .filter((file) => statSync(file).isFile() && readFileSync(file).includes(text))
    .map((file) => relative(home, file));
}

async function statusOf(sandbox: TestGateway, key: string): Promise<number> {
  return (await ask(`${sandbox.baseUrl}/models`, { headers: { authorization: `Bearer ${key}` } })).status;
}

t.test("adopt --rotate gives each tool a key of its own, and deletes the shared one", async (t) => {
  const { sandbox, key, home, run } = await prepare(t, { console: "with login" });
  const { code, stdout, stderr } = await adoptAll(run);
  t.equal(code, 0, stdout + stderr);
  const keys = Object.keys(CLIENTS).map((tool) => keyOf(home, tool));
  t.equal(new Set([...keys, key.text]).size, 4, "all differ");
  await allWork(t, home);
  t.equal(sandbox.keyStatus(key.id), "deleted");
  t.equal(await statusOf(sandbox, key.text), 401);
  t.same(filesWith(home, key.text), [], "the old key is nowhere");
  for (const each of [key.text, ...keys]) t.notOk(`${stdout}${stderr}`.includes(each.slice(3, -4)));
  t.equal((await run("adopt")).code, 0);
});

t.test("adopt --rotate without a console login says which keys to replace, and where", async (t) => {
  const { sandbox, key, home, run } = await prepare(t, { console: "none" });
  const { code, stdout, stderr } = await adoptAll(run);
  t.equal(code, 0, stdout + stderr);
  await allWork(t, home);
  t.equal(sandbox.keyStatus(key.id), "active");
  for (const tool of Object.keys(CLIENTS)) {
    t.match(flat(stderr), `${key.fingerprint} of ${tool} at ${sandbox.baseUrl}`);
    t.equal(keyOf(home, tool), key.text);
  }
});

t.test("a console without a login is one whose keys are replaced by hand", async (t) => {
  const { sandbox, key, home, run } = await prepare(t, { console: "without login" });
  const { code, stderr } = await adoptAll(run);
  t.equal(code, 0, stderr);
  await allWork(t, home);
  t.match(flat(stderr), `${key.fingerprint} of codex at ${sandbox.baseUrl}`);
  t.match(stderr, "each new key goes in with: keybearer tools rotate <tool>");
});

/** keybearer asks a failing console three times, with pauses. */
const TRIES = 3;

longTest(t, "where the console makes no key, the client keeps working, and a command finishes", async (t) => {
  const { sandbox, key, home, run } = await prepare(t, { console: "with login" });
  sandbox.orderAtConsole(/^POST .*\/keys$/, { kind: "refuse", status: 500 }, TRIES);
  const { code, stderr } = await adoptAll(run);
  t.equal(code, 1);
  await allWork(t, home);
  t.match(stderr, "claude-code: the console of main answered 500");
  const next = advised(t, stderr, "keybearer tools rotate claude-code");
  t.equal(keyOf(home, "claude-code"), key.text);
  t.not(keyOf(home, "codex"), key.text);
  t.equal(sandbox.keyStatus(key.id), "active", "a tool has it still");

  const again = await run(...next, "--yes");
  t.equal(again.code, 0, again.stderr);
  t.equal(sandbox.keyStatus(key.id), "deleted");
  await allWork(t, home);
  t.same(filesWith(home, key.text), []);
});

longTest(t, "where the console does not delete the old key, the next start of keybearer does", async (t) => {
  const { sandbox, key, home, daemon, run } = await prepare(t, { console: "with login" });
  sandbox.orderAtConsole(/^DELETE /, { kind: "refuse", status: 500 }, TRIES);
  const { code, stderr } = await adoptAll(run);
  t.equal(code, 0, stderr);
  await allWork(t, home);
  t.match(
    flat(stderr),
    /the old one is not deleted yet: the console of main answered 500 → keybearer status/,
  );
  t.equal(sandbox.keyStatus(key.id), "active");

  await daemon.stop(0);
  const { daemon: second } = await startUnderTest(t, null, { home });
  await until("the old key is deleted", () => sandbox.keyStatus(key.id) === "deleted");
  await until("the change is finished", async () => (await second.status()).key_changes.length === 0);
  t.same(filesWith(home, key.text), []);
});
