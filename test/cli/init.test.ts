import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { storeKey } from "../../src/keys/stored-keys.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { freePort, listen } from "../doubles/listen.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { get, newKey, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";
import { until } from "../doubles/until.ts";

const NO_KEYCHAIN = { DBUS_SESSION_BUS_ADDRESS: undefined };

function modeOf(path: string): number {
  return statSync(path).mode & 0o777;
}

/** The files below a home that contain this text. */
function filesWith(home: string, text: string): string[] {
  return readdirSync(home, { recursive: true, encoding: "utf8" })
    .filter((name) => statSync(join(home, name)).isFile())
    .filter((name) => readFileSync(join(home, name), "latin1").includes(text));
}

async function piped(t: Test, home: string, input: string, ...args: string[]) {
  return command(t, home, ["init", ...args, "--key-stdin", "--store", "file"], { input, env: NO_KEYCHAIN });
}

t.test("init with flags and a piped key writes a config.yaml that a running sandbox uses", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const { url } = await serveIn(t, home);
  const made = await piped(t, home, `${key}\n`, "--gateway", sandbox.baseUrl, "--tool", "codex");
  t.equal(made.code, 0, made.stderr);
  t.match(made.stdout, /^kb_[A-Za-z0-9_-]+\n$/, "the token alone is on stdout");
  t.match(made.stderr, /the gateway accepts the key and lists \d+ models/);
  t.match(made.stderr, /the running keybearer uses it now, and its sandbox has ended/);
  t.match(made.stderr, /keybearer use codex/);
  t.notOk(made.stderr.includes(key) || made.stderr.includes(made.stdout.trim()));
  t.equal(modeOf(join(home, "config.yaml")), 0o600);
  t.equal(modeOf(join(home, "keys")), 0o700);
  t.equal(modeOf(join(home, "keys", "codex")), 0o600);
  t.match(
    readFileSync(join(home, "config.yaml"), "utf8"),
    /key: file:~\/keys\/codex\n {4}token: \[\{ name: codex, hash: sha256:/,
  );
  t.same(filesWith(home, key), ["keys/codex"]);
  t.equal((await get(`${url}/v1/models`, made.stdout.trim())).status, 200, "and it works");

  const before = readFileSync(join(home, "config.yaml"), "utf8");
  const again = await command(t, home, ["init"]);
  t.match(again, {
    code: 0,
    stdout: "",
    stderr: /nothing in it is overwritten\ncodex has its key and its token/,
  });
  const other = await command(t, home, ["init", "--gateway", "https://other.example/v1"]);
  t.match(other, { code: 2, stderr: /names another gateway/ });
  t.equal(readFileSync(join(home, "config.yaml"), "utf8"), before);
});

t.test("init reports a mistake before anything is stored", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const right = ["--gateway", sandbox.baseUrl, "--tool", "codex"];
  const cases: [string, string[], number, RegExp][] = [
    [
      key,
      ["--gateway", `${sandbox.baseUrl}/chat/completions`, "--tool", "codex"],
      2,
      /endpoint path \/chat\/completions → cut it off: .*\/v1\n/,
    ],
    [key, ["--gateway", sandbox.baseUrl, "--tool", "my tool"], 2, /cannot be the name of a tool/],
    [`${key}\nmore\n`, right, 1, /incomplete key: the key contains a line break/],
    [key.slice(0, -3), right, 1, /--no-probe\nnothing was changed/],
  ];
  for (const [input, args, code, words] of cases) {
    const ended = await piped(t, home, input, ...args);
    t.equal(ended.code, code, `${args.join(" ")}\n${ended.stderr}`);
    t.match(ended.stderr, words);
    t.equal(ended.stdout, "");
    t.notOk(ended.stderr.includes(key.slice(0, 12)));
  }
  const alone = await command(t, home, ["init", "--gateway", sandbox.baseUrl], { input: key });
  t.match(alone, { code: 2, stderr: /there is no terminal to ask at.*--key-stdin/ });
  t.same(readdirSync(home), [], "not a file is left");
});

t.test(
  "a configuration without tools, without keys or without tokens is completed, not replaced",
  async (t) => {
    const sandbox = await startSandbox(t);
    const { text: key } = newKey(sandbox);
    const home = await newHome(t);
    const file = await saveConfig(home, `# mine\ngateway: ${sandbox.baseUrl}\n`);
    const first = await piped(t, home, key, "--tool", "codex");
    t.equal(first.code, 0, first.stderr);
    t.match(first.stdout, /^kb_/);
    t.match(readFileSync(file, "utf8"), /^# mine\ngateway: .*\ntools:\n {2}codex:\n {4}key: file:/);

    await saveConfig(
      home,
      `gateway: ${sandbox.baseUrl}\ntools: { zed: { key: "file:~/keys/zed" } } # mine\n`,
    );
    const second = await piped(t, home, newKey(sandbox).text);
    t.equal(second.code, 0, second.stderr);
    t.match(second.stderr, /zed has no key yet: there is no file/);
    t.match(second.stdout, /zed: key \(none\) → …\w{4}, file:~\/keys\/zed-2\nkb_/);
    t.match(
      readFileSync(file, "utf8"),
      /zed: \{ key: file:~\/keys\/zed-2, token: \[\{ name: zed, hash: sha256:\w+, created: [\d-]+ \}\] \} \} # mine/,
    );

    writeFileSync(file, "gateway: nonsense\n");
    t.match(await command(t, home, ["init"]), { code: 78, stderr: /is not an address/ });
    t.equal(readFileSync(file, "utf8"), "gateway: nonsense\n");
  },
);

t.test("a key that a killed command left is used, and a known key is not sent elsewhere", async (t) => {
  const [sandbox, strange] = [await startSandbox(t), await startRawGateway(t, (call) => call.ok())];
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  await storeKey({ kind: "file", path: join(home, "keys", "codex") }, new Secret(key), { env: {} });
  const made = await piped(t, home, key, "--gateway", sandbox.baseUrl, "--tool", "codex");
  t.match(made, { code: 0, stderr: /the key of codex is file:~\/keys\/codex\n/ });
  t.same(filesWith(home, key), ["keys/codex"]);

  // The usual port may be another program's.
  const file = join(home, "config.yaml");
  writeFileSync(file, `listen: localhost:0\n${readFileSync(file, "utf8")}`);
  const { daemon } = await serveIn(t, home);
  await daemon.stop();
  rmSync(file);
  const elsewhere = ["--gateway", strange.baseUrl, "--tool", "codex"];
  const again = await piped(t, home, key, ...elsewhere);
  t.match(again, { code: 1, stderr: /was not sent.*each gateway has keys of its own/ });
  t.notOk(existsSync(join(home, "config.yaml")));
  const other = await piped(t, home, newKey(sandbox).text, ...elsewhere);
  t.match(
    other,
    { code: 0, stderr: /not tried: .* → keybearer trust codex/ },
    "the tool itself is known there",
  );
  t.equal(strange.calls.length, 0);
});

t.test("at a terminal init asks again after a wrong address or key, and shows no key", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const env = { PATH: "/usr/bin:/bin" };
  const person = atScreen(t, home, ["init", "--store", "file"], { columns: 120, env });
  const { type } = person;
  await person.says(/ends in \/v1\): /);
  type(`${sandbox.baseUrl}/chat/completions\r`);
  await person.says(/ends in the endpoint path[\s\S]*\[Y\/n\]/);
  type("n\r");
  await person.says(/\[Y\/n\][\s\S]*ends in \/v1\): /);
  type(`${sandbox.baseUrl}\r`);
  await person.says(/name of the first tool.*: /);
  type("codex\r");
  await person.says(/\(not shown\): /);
  type(`${key.slice(0, -4)}\r`);
  await person.says(/k: type the key again, a: another address, g: go on anyway, s:\s+stop\s+\[k\]:\s/);
  type("k\r");
  await person.says(/\[k\]:\s[\s\S]*\(not shown\): /);
  type(`${key}\r`);
  await person.says(/daily budget of codex in dollars, or none \[10\]: /);
  type("none\r");
  await person.says(/start keybearer now, in the background\? \[Y\/n\]/);
  type("n\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /kb_[\w-]{40,}\r?\n/);
  t.notOk(stdout.includes(key.slice(0, 14)), "not even a part of the key is on the screen");
  t.ok(existsSync(join(home, "config.yaml")));
});

/** A home folder in which another tool has a key of this gateway. */
async function homeWithKey(t: Test, sandbox: Awaited<ReturnType<typeof startSandbox>>) {
  const home = await newHome(t);
  const { text: key } = newKey(sandbox);
  const file = join(home, ".zshrc");
  const lines = `export ANTHROPIC_BASE_URL=${sandbox.origin}\nexport ANTHROPIC_AUTH_TOKEN=${key}\n`;
  writeFileSync(file, lines, { mode: 0o600 });
  return { home, key, file };
}

t.test("without a terminal init says where the keys of other tools can be moved", async (t) => {
  const sandbox = await startSandbox(t);
  const { home, key, file } = await homeWithKey(t, sandbox);
  const made = await piped(t, home, newKey(sandbox).text, "--gateway", sandbox.baseUrl, "--tool", "codex");
  t.match(made, {
    code: 0,
    stderr: /keys of other tools can be moved into keybearer: 1 key in 1 place → keybearer adopt\n/,
  });
  t.match(readFileSync(file, "utf8"), key, "it stays where it is");
});

t.test("at a terminal init lists the keys of other tools, and moves them if the person agrees", async (t) => {
  const sandbox = await startSandbox(t);
  const { home, key, file } = await homeWithKey(t, sandbox);
  await serveIn(t, home);
  const args = ["init", "--store", "file", "--gateway", sandbox.baseUrl, "--tool", "codex"];
  const person = atScreen(t, home, args, { columns: 160, env: { PATH: "/usr/bin:/bin" } });
  await person.says(/\(not shown\): /);
  person.type(`${newKey(sandbox).text}\r`);
  await person.says(/daily budget of codex in dollars, or none \[10\]: /);
  person.type("none\r");
  await person.says(
    /1 key in 1 place[\s\S]*~\/\.zshrc:2 {2}ANTHROPIC_AUTH_TOKEN[\s\S]*move them into keybearer now\? \[Y\/n\]/,
  );
  person.type("\r");
  await person.says(/move it into keybearer\? \[Y\/n\]/);
  person.type("\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /claude-code: a request went through keybearer/);
  t.notOk(stdout.includes(key.slice(0, 14)), "not even a part of the key is on the screen");
  t.match(readFileSync(file, "utf8"), /^export ANTHROPIC_AUTH_TOKEN=kb_/m);
  t.same(filesWith(home, key), ["keys/claude-code"]);
});

t.test("init is successful although the person declines to move a key", async (t) => {
  const sandbox = await startSandbox(t);
  const { home, key, file } = await homeWithKey(t, sandbox);
  await serveIn(t, home);
  const args = ["init", "--store", "file", "--gateway", sandbox.baseUrl, "--tool", "codex"];
  const person = atScreen(t, home, args, { columns: 160, env: { PATH: "/usr/bin:/bin" } });
  await person.says(/\(not shown\): /);
  person.type(`${newKey(sandbox).text}\r`);
  await person.says(/daily budget of codex in dollars, or none \[10\]: /);
  person.type("none\r");
  await person.says(/move them into keybearer now\? \[Y\/n\]/);
  person.type("\r");
  await person.says(/move it into keybearer\? \[Y\/n\]/);
  person.type("n\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /it stays where it is[\s\S]*no key was moved/);
  t.match(readFileSync(file, "utf8"), key);
});

/** A person at a terminal who has Codex, and types until the tool is made. */
async function initWithCodex(t: Test, home: string, path: string) {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const bin = join(home, "clients");
  mkdirSync(bin);
  writeFileSync(join(bin, "codex"), "#!/bin/sh\n", { mode: 0o755 });
  const env = { PATH: `${bin}:${path}` };
  const person = atScreen(t, home, ["init", "--store", "file"], { columns: 120, env });
  const { type } = person;
  await person.says(/ends in \/v1\): /);
  type(`${new URL(sandbox.baseUrl).origin}\r`);
  await person.says(/does not end in its version segment[\s\S]*\[Y\/n\]/);
  type("\r");
  await person.says(/name of the first tool.*: /);
  type("codex\r");
  await person.says(/\(not shown\): /);
  type(`${key}\r`);
  await person.says(/daily budget of codex in dollars, or none \[10\]: /);
  type("none\r");
  await person.says(/set up Codex now\? \[Y\/n\]/);
  return { ...person, sandbox };
}

t.test("at a terminal init also sets up a client, and sends a request through keybearer", async (t) => {
  const home = await newHome(t);
  await serveIn(t, home);
  const person = await initWithCodex(t, home, "/usr/bin:/bin");
  person.type("\r");
  await person.says(/write this to .*config\.toml\? \[Y\/n\]/);
  person.type("\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /it works: a request went through keybearer to the gateway/);
  const settings = readFileSync(join(home, ".codex", "config.toml"), "utf8");
  const [token = ""] = /kb_[\w-]{40,}/.exec(settings) ?? [];
  t.ok(stdout.includes(token), "the tool has one token, and the client has it");
  const config = readFileSync(join(home, "config.yaml"), "utf8");
  t.equal(config.match(/hash: sha256:/g)?.length, 1);
});

t.test("without a daemon init runs one for the request, and then offers the service", async (t) => {
  const home = await newHome(t);
  const systemctl = await createSystemctl(home);
  const person = await initWithCodex(t, home, systemctl.env.PATH);
  // The usual port may be another program's.
  const port = await freePort();
  const file = join(home, "config.yaml");
  writeFileSync(file, `listen: localhost:${port}\n${readFileSync(file, "utf8")}`);
  person.type("\r");
  await person.says(/write this to .*config\.toml\? \[Y\/n\]/);
  const settings = person.stdout();
  t.match(settings, `http://localhost:${port}/v1`);
  t.match(settings, /model = "sandbox-/, "the gateway was asked for its models");
  person.type("\r");
  await person.says(
    /it works: a request went through[\s\S]*start keybearer now and at every login, as a service\? \[Y\/n\]/,
  );
  t.equal(person.sandbox.requests().filter(({ method }) => method === "POST").length, 0, "it costs nothing");
  t.match(await command(t, home, ["status"]), { code: 1 }, "the daemon has ended");
  person.type("\r");
  await until("the manager is asked to start it", () =>
    systemctl.changes().some((line) => /--now/.test(line)),
  );
  await serveIn(t, home);
  systemctl.state({ ActiveState: "active", SubState: "running", MainPID: process.pid });
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(stdout, new RegExp(`installed .*keybearer\\.service[\\s\\S]*it runs as pid ${process.pid}`));
  t.match(stdout, /the running keybearer uses it[\s\S]*keybearer use codex/);
});

longTest(
  t,
  "a daemon that runs already is left alone by init, which says how it becomes a service",
  async (t) => {
    const home = await newHome(t);
    const systemctl = await createSystemctl(home);
    const byHand = await serveIn(t, home);
    const person = await initWithCodex(t, home, systemctl.env.PATH);
    person.type("n\r");
    const { code, stdout } = await person.ended;
    t.equal(code, 0, stdout);
    const running = `keybearer runs already as pid ${process.pid}\\. to have it started at every login, as a service: `;
    t.match(stdout, new RegExp(`${running}\\s*keybearer stop, then\\s+keybearer\\s+service\\s+install`));
    t.notMatch(stdout, /it works|as a service\?/);
    t.same(systemctl.changes(), []);
    t.equal((await fetch(`${byHand.url}/healthz`)).status, 200, "it still runs");
  },
);

longTest(t, "if no daemon can start for the request, init says why and sets up no client", async (t) => {
  const home = await newHome(t);
  const { port } = await listen(t, createServer());
  const person = await initWithCodex(t, home, "/usr/bin:/bin");
  const file = join(home, "config.yaml");
  writeFileSync(file, `listen: localhost:${port}\n${readFileSync(file, "utf8")}`);
  person.type("\r");
  await person.says(/start keybearer now, in the background\? \[Y\/n\]/);
  person.type("\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 69, stdout);
  t.match(stdout, new RegExp(`no client was set up:[\\s\\S]*${port}`));
  t.notOk(existsSync(join(home, ".codex")));
});

t.test("init asks for a daily budget, and for the price of a model that has none", async (t) => {
  const models = JSON.stringify({ data: [{ id: "gpt-5.1" }, { id: "house-model" }] });
  const gateway = await startRawGateway(t, (call) => call.ok(models));
  const home = await newHome(t);
  const args = ["init", "--store", "file", "--gateway", gateway.baseUrl, "--tool", "codex"];
  const person = atScreen(t, home, args, { env: { PATH: "/usr/bin:/bin" } });
  await person.says(/\(not shown\): /);
  person.type("sk-0123456789abcdef\r");
  await person.says(/lists 2 models[\s\S]*daily budget of codex in dollars, or none \[10\]: /);
  person.type("a lot\r");
  await person.says(/such as 10 or 2\.50, or none\n[\s\S]*\[10\]: /);
  person.type("\r");
  await person.says(/no price is known for house-model: [\s\S]*requests for it are refused\n[\s\S]*\[k\]: /);
  person.type("p\r");
  await person.says(/dollars per million tokens[\s\S]*house-model, input and output, such as 3 15: /);
  person.type("3 15\r");
  await person.says(/start keybearer now, in the background\? \[Y\/n\]/);
  const file = join(home, "config.yaml");
  const text = readFileSync(file, "utf8");
  t.match(text, "\n    limits: { spend: $10/day }\n");
  t.match(text, "\nprices:\n  house-model: { input: 3, output: 15 }\n");
  // The usual port may be another program's.
  writeFileSync(file, `listen: localhost:0\n${text}`);
  t.teardown(() => command(t, home, ["stop"]));
  person.type("\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(
    stdout,
    /runs in the background as pid \d+[\s\S]*it will not come back[\s\S]*the running keybearer uses it/,
  );
  t.match(await command(t, home, ["stop"]), { code: 0 });
});

t.test("without a terminal the budget is an option, and defaults are used only with --yes", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const right = ["--gateway", sandbox.baseUrl, "--tool", "codex"];
  const cases: [string[], RegExp, RegExp][] = [
    [["--budget", "2.50"], /no price is known for sandbox-/, /\n {4}limits: \{ spend: \$2\.50\/day \}\n/],
    [["--budget", "none"], /codex is file:/, /\n {4}#limits: /],
    [["--yes"], /codex may send 500 requests per day\n/, /\n {4}limits: \{ requests: 500\/day \}\n/],
    [[], /codex has no budget → keybearer tools set codex limits\.spend=10\/day\n/, /\n {4}#limits: /],
  ];
  for (const [args, said, written] of cases) {
    const home = await newHome(t);
    const made = await piped(t, home, key, ...right, ...args);
    t.equal(made.code, 0, made.stderr);
    t.match(made.stderr, said);
    t.match(readFileSync(join(home, "config.yaml"), "utf8"), written);
  }
  const asked = sandbox.requests().length;
  const wrong = await piped(t, await newHome(t), key, ...right, "--budget", "0");
  t.match(wrong, { code: 2, stderr: /--budget: a budget is dollars for one day/ });
  t.equal(sandbox.requests().length, asked, "before the key is sent");
});

t.test("Ctrl-C and Ctrl-D leave nothing behind", async (t) => {
  const home = await newHome(t);
  for (const end of ["\u0003", "\u0004"]) {
    const args = ["init", "--gateway", "https://gateway.example.com/v1", "--tool", "codex"];
    const person = atScreen(t, home, args);
    await person.says(/\(not shown\): /);
    person.type(end);
    t.match(await person.ended, { code: 1, stdout: /stopped; nothing was changed/ });
  }
  t.same(readdirSync(home), []);
});
