import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import { Secret } from "../../src/core/secret.ts";
import { storeKey } from "../../src/keys/stored-keys.ts";
import { advised, command, newHome, saveConfig, start } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { get, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { missingForSecrets, startSecretService } from "../doubles/secret-service.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

t.test(
  "the running daemon uses the new key for the next request, and a stream in flight finishes with the old",
  async (t) => {
    const sandbox = await startSandbox(t, { wordDelay: 40 });
    const [old, fresh] = [newKey(sandbox), newKey(sandbox)];
    const { token, hash } = freshToken();
    const home = await newHome(t);
    const file = await saveConfig(
      home,
      `listen: localhost:0\ngateway: ${sandbox.baseUrl}\n# mine\ntools:\n  codex:\n    key: ${old.text} # the first\n    token: ${hash}\n`,
    );
    const { url } = await serveIn(t, home);
    const rotate = (input: string, ...more: string[]) =>
      command(t, home, ["tools", "rotate", "codex", "--key-stdin", ...more], { input });

    const first = await rotate(fresh.text, "--store", "file");
    t.equal(first.code, 0, first.stderr);
    const [was, is] = [`…${old.text.slice(-4)}`, `…${fresh.text.slice(-4)}`];
    t.equal(first.stdout, `codex: key ${was} → ${is}, file:~/keys/codex\n`);
    t.match(first.stderr, /uses it from the next request on/);
    t.match(first.stderr, new RegExp(`now delete the old key ${was} in the gateway's console`));
    t.match(
      readFileSync(file, "utf8"),
      /# mine\ntools:\n {2}codex:\n {4}key: file:~\/keys\/codex # the first\n/,
    );

    const body = { model: "sandbox-small", stream: true, messages: [{ role: "user", content: "hello" }] };
    const stream = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const third = newKey(sandbox);
    const second = await rotate(third.text, "--json");
    t.equal(second.code, 0, second.stderr);
    t.match(JSON.parse(second.stdout), {
      old: is,
      new: `…${third.text.slice(-4)}`,
      source: "file:~/keys/codex-2",
      effect: "in force",
    });
    t.same(
      readdirSync(join(home, "keys")),
      ["codex-2"],
      "the old key's file is gone once it is not read any more",
    );
    t.match(await stream.text(), /\[DONE\]/, "the stream is whole");
    t.equal((await post(`${url}/v1/chat/completions`, token, { ...body, stream: false })).status, 200);
    const used = (id: number) => sandbox.usage().filter((row) => row.keyId === id).length;
    t.same([used(fresh.id), used(third.id)], [1, 1]);
    t.equal((await get(`${url}/v1/models`, token)).status, 200);
  },
);

t.test("a key that does not work, or is the same, changes nothing", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const text = `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${key} }, b: { key: env:B_KEY }, c: { key: { command: [/bin/echo, x] } } }\n`;
  const file = await saveConfig(home, text);
  const cases: [string[], string, number, RegExp][] = [
    [["codex", "--key-stdin"], key.slice(0, -2), 1, /--no-probe\nnothing was changed/],
    [["codex", "--key-stdin"], key, 1, /the tool already has this key, …\w{4}\./],
    [
      ["b", "--key-stdin"],
      key,
      1,
      /comes from env:B_KEY, which keybearer cannot change.*--from env:NAME.*--store (?:keychain|file)\n$/s,
    ],
    [["b", "--from", "env:B_KEY"], "", 1, /comes from env:B_KEY already/],
    [["nobody", "--key-stdin"], key, 1, /there is no tool nobody in config\.yaml; its tools are codex, b, c/],
  ];
  for (const [args, input, code, words] of cases) {
    const ended = await command(t, home, ["tools", "rotate", ...args], {
      input,
    });
    t.equal(ended.code, code, `${args.join(" ")}: ${ended.stderr}`);
    t.match(ended.stderr, words);
    t.notOk(ended.stderr.includes(key.slice(0, 14)));
    t.equal(readFileSync(file, "utf8"), text);
  }
  t.notOk(existsSync(join(home, "keys")));
});

t.test(
  "without a daemon, rotate --from reads the new key and writes its variable into config.yaml",
  async (t) => {
    const sandbox = await startSandbox(t);
    const [one, two] = [newKey(sandbox), newKey(sandbox)];
    const home = await newHome(t);
    const file = await saveConfig(home, `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: env:ONE } }\n`);
    const env = { ONE: one.text, TWO: two.text };
    const ended = await command(t, home, ["tools", "rotate", "codex", "--from", "env:TWO"], { env });
    t.equal(ended.code, 0, ended.stderr);
    t.equal(ended.stdout, `codex: key …${one.text.slice(-4)} → …${two.text.slice(-4)}, env:TWO\n`);
    t.match(readFileSync(file, "utf8"), /codex: \{ key: env:TWO \}/);
  },
);

const withoutKeychain = { skip: process.platform === "linux" ? false : "a Mac always has a keychain" };

t.test("the command that check advises takes a key out of config.yaml", withoutKeychain, async (t) => {
  const sandbox = await startSandbox(t);
  const old = newKey(sandbox).text;
  const home = await newHome(t);
  const file = await saveConfig(home, `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${old} } }\n`);
  const { stderr } = await command(t, home, ["check"]);
  const next = advised(t, stderr, advice.rotate("codex"));
  const person = atScreen(t, home, next);
  await person.says(/\(not shown\)/);
  person.type(`${newKey(sandbox).text}\r`);
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  t.match(readFileSync(file, "utf8"), /key: ["']?file:/);
  t.notMatch((await command(t, home, ["check"])).stderr, /written into config\.yaml/);
});

const OLD = "sk-old-0123456789abcdef";
const NEW = "sk-new-0123456789fedcba";
const MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}';

/** codex has its key in keybearer's own folder. */
async function homeWithKey(t: Test, baseUrl: string, key = OLD) {
  const home = await newHome(t);
  await storeKey({ kind: "file", path: join(home, "keys", "codex") }, new Secret(key), { env: {} });
  const text = `listen: localhost:0\ngateway: ${baseUrl}\ntools:\n  codex: { key: "file:~/keys/codex" }\n`;
  const file = await saveConfig(home, text);
  const rotate = (args: string[], input = "", env: NodeJS.ProcessEnv = {}) =>
    command(t, home, ["tools", "rotate", "codex", ...args], { input, env });
  return { home, file, text, rotate, keys: () => readdirSync(join(home, "keys")).toSorted() };
}

t.test("the old key stays until the gateway has accepted a new one", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: old } = newKey(sandbox);
  const { home, file, text, rotate, keys } = await homeWithKey(t, sandbox.baseUrl, old);
  await serveIn(t, home);
  const typo = await rotate(["--from", "env:TYPO"]);
  t.match(typo, { code: 1, stdout: "", stderr: /TYPO is not set.*\nnothing was changed/ });
  t.equal(readFileSync(file, "utf8"), text);
  t.same(keys(), ["codex"]);

  const blind = await rotate(["--key-stdin", "--no-probe"], newKey(sandbox).text);
  t.equal(blind.code, 0, blind.stderr);
  t.match(
    blind.stderr,
    /old key stays in file:.*keys\/codex: the gateway has not accepted .* → rm \S+codex\n/,
  );
  t.notMatch(blind.stderr, /now delete the old key/);
  t.same(keys(), ["codex", "codex-2"]);
  t.equal(readFileSync(join(home, "keys", "codex"), "utf8"), `${old}\n`);

  const back = await rotate(["--key-stdin"], old);
  t.match(
    back,
    { code: 0, stdout: /, file:~\/keys\/codex\n$/ },
    "a stored key that no tool names is used again",
  );
  t.same(keys(), ["codex"], "and the key before it is deleted, because the gateway accepts this one");
});

t.test("a tool whose gateway changed gets no key, and a known key is not sent elsewhere", async (t) => {
  const [sandbox, strange] = [await startSandbox(t), await startRawGateway(t, (call) => call.ok())];
  const more = `  other: { key: "file:~/keys/other", gateway: main }\n`;
  const { home, rotate, keys } = await homeWithKey(t, sandbox.baseUrl, newKey(sandbox).text);
  await storeKey({ kind: "file", path: join(home, "keys", "other") }, new Secret(OLD), { env: {} });
  const both = (main: string, second: string) =>
    `listen: localhost:0\ngateways: { main: { base_url: ${main} }, second: { base_url: ${second} } }\n` +
    `tools:\n  codex: { gateway: second, key: "file:~/keys/codex" }\n${more}`;
  await saveConfig(home, both(strange.baseUrl, sandbox.baseUrl));
  await serveIn(t, home);
  const known = await rotate(["--from", "file:~/keys/other"]);
  t.match(known, { code: 1, stderr: /waits for your confirmation and was not sent.*\nnothing was changed/ });

  const text = both(strange.baseUrl, strange.baseUrl);
  const file = await saveConfig(home, text);
  const moved = await rotate(["--key-stdin"], NEW);
  t.match(moved, { code: 1, stdout: "", stderr: /codex was used at http.* → keybearer trust codex/ });
  t.equal(readFileSync(file, "utf8"), text);
  t.same(keys(), ["codex", "other"]);
  t.equal(strange.calls.length, 0, "nothing came there");
});

t.test("of two concurrent rotations the slower one changes nothing and says so", async (t) => {
  const gate = new AbortController();
  const gateway = await startRawGateway(t, async (call) => {
    await once(gate.signal, "abort");
    call.ok(MODELS);
  });
  const { home, file, rotate, keys } = await homeWithKey(t, gateway.baseUrl);
  const slow = rotate(["--key-stdin"], NEW);
  await until("its key is being tried", () => gateway.calls.length > 0);
  const quick = await rotate(["--key-stdin", "--no-probe"], `${NEW}-quick`);
  t.equal(quick.code, 0, quick.stderr);
  const text = readFileSync(file, "utf8");
  gate.abort();
  const ended = await slow;
  t.match(ended, { code: 1, stdout: "", stderr: /was changed in the meantime and was left as it is/ });
  t.equal(readFileSync(file, "utf8"), text);
  t.same(keys(), ["codex", "codex-2"], "its own key is taken away again");
  t.equal(readFileSync(join(home, "keys", "codex-2"), "utf8"), `${NEW}-quick\n`);
});

t.test("Ctrl-C after the save lets the rotation finish and report the old key", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok(MODELS));
  const { home, file, keys } = await homeWithKey(t, gateway.baseUrl);
  const pids: number[] = [];
  const daemon = createServer((request, response) => {
    // The claim comes before the save.
    if (!request.url?.startsWith("/claim/")) for (const pid of pids) process.kill(pid, "SIGINT");
    const tools = [{ name: "codex", key: new Secret(NEW).fingerprint, state: "active" }];
    response.end(JSON.stringify({ tools, config: { path: file, revision: 2 } }));
  });
  mkdirSync(join(home, "run"), { mode: 0o700 });
  await new Promise<void>((done) => daemon.listen(join(home, "run", "control.sock"), done));
  t.teardown(() => daemon.close());
  const rotating = start(t, home, ["tools", "rotate", "codex", "--key-stdin"], { input: NEW });
  pids.push(rotating.pid);
  t.match(await rotating.ended, { code: 0, signal: null, stderr: /now delete the old key …cdef/ });
  t.same(keys(), ["codex-2"]);
});

t.test("a keychain that cannot store is found before the key is tried", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const home = await newHome(t);
  await saveConfig(home, `gateway: ${gateway.baseUrl}\ntools: { codex: {} }\n`);
  const rotate = (env: NodeJS.ProcessEnv) =>
    command(t, home, ["tools", "rotate", "codex", "--key-stdin"], { input: NEW, env });
  if (process.platform === "linux")
    t.match(await rotate({}), {
      code: 1,
      stderr: /no session bus.* → .*--store file .*\nnothing was changed/,
    });
  if (missingForSecrets() === null) {
    const service = await startSecretService(t);
    service.lock();
    const { DBUS_SESSION_BUS_ADDRESS } = service.env;
    t.match(await rotate({ DBUS_SESSION_BUS_ADDRESS }), {
      code: 1,
      stderr: /the keychain is locked.* → unlock it, then run this again; or --store file/,
    });
  } else t.skip("the locked keychain: there is no gnome-keyring or dbus here", async () => {});
  t.equal(gateway.calls.length, 0);
});
