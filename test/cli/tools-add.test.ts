import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { readFrom } from "../../src/cli/tools/key-source.ts";
import { storeNamedKey } from "../../src/cli/tools/store-key.ts";
import { planTool, type ToolOptions } from "../../src/config/new-tool.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { findPaths } from "../../src/core/paths.ts";
import { Secret } from "../../src/core/secret.ts";
import { storeKey } from "../../src/keys/stored-keys.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { get, newKey, startSandbox } from "../doubles/sandbox.ts";

t.test(
  "a tool is added with its limits, its key is tried and stored, and its token works at once",
  async (t) => {
    const sandbox = await startSandbox(t);
    const { text: key } = newKey(sandbox);
    const { text: second } = newKey(sandbox);
    const home = await newHome(t);
    const before = `listen: localhost:0 # any\ngateway: ${sandbox.baseUrl} # mine\ntools:\n  # the first\n  zed: { key: env:ZED_KEY }\n`;
    const file = await saveConfig(home, before);
    const { url } = await serveIn(t, home);
    const settings = [
      "--group",
      "default",
      "--quota",
      "200",
      "--spend",
      "5/day,$60/month",
      "--requests",
      "60/minute",
    ];
    const more = [
      "--tokens",
      "400k/minute",
      "--concurrent",
      "4",
      "--expires",
      "2099-03-31",
      "--model",
      "sandbox-small",
    ];
    const added = await command(
      t,
      home,
      ["tools", "add", "codex", ...settings, ...more, "--key-stdin", "--store", "file"],
      { input: `${key}\n` },
    );
    t.equal(added.code, 0, added.stderr);
    t.match(added.stdout, /^kb_[\w-]+\n$/);
    t.match(added.stderr, /group default is new there: multiplier 1 and all models/);
    t.match(added.stderr, /next: keybearer use codex\n/);
    t.notOk(added.stderr.includes(key));
    t.equal((await get(`${url}/v1/models`, added.stdout.trim())).status, 200);
    const text = readFileSync(file, "utf8");
    t.match(
      text,
      /\ngateways: # mine\n {2}main:\n {4}base_url: .*\n {4}groups: \{ default: \{\} \}\ntools:\n {2}# the first\n {2}zed: /,
    );
    t.match(parseConfig(text, home).config?.tools.codex, {
      group: "default",
      quota: 200_000_000,
      model: "sandbox-small",
      key: { kind: "file", path: join(home, "keys", "codex") },
      limits: {
        spend: [{ max: 5_000_000, per: "day" }, { per: "month" }],
        tokens: [{ max: 400_000 }],
        concurrent: 4,
      },
    });

    const { token, hash } = freshToken();
    const both = ["--key-stdin", "--token-stdin", "--store", "file", "--json"];
    const byHand = await command(t, home, ["tools", "add", "mine", ...both], {
      input: `${second}\n${token}\n`,
    });
    t.equal(byHand.code, 0, byHand.stderr);
    t.match(JSON.parse(byHand.stdout), {
      tool: "mine",
      token: null,
      key: `…${second.slice(-4)}`,
      group: null,
    });
    t.match(byHand.stderr, /a token that keybearer makes is safer/);
    t.notOk(byHand.stdout.includes(token) || byHand.stderr.includes(token));
    t.ok(readFileSync(file, "utf8").includes(hash));
    t.equal((await get(`${url}/v1/models`, token)).status, 200);
  },
);

const TWO = `gateways:
  a: { base_url: http://127.0.0.1:9/v1, groups: { coding: {} } }
tools: { zed: {} }
`;

t.test("settings follow the rules of config.yaml, with the same messages", (t) => {
  const cases: [string, ToolOptions, RegExp][] = [
    ["zed", {}, /config\.yaml already has a tool zed/],
    ["my tool", {}, /this cannot be the name of a tool → letters, digits/],
    ["codex", { gateway: "b" }, /tools\.codex\.gateway: there is no gateway "?b"? → one of: a/],
    ["codex", { group: "codng" }, /has no group "?codng"? → one of: "?coding/],
    ["codex", { quota: "much" }, /tools\.codex\.quota: "?much"? is not an amount of money/],
    ["codex", { spend: "5/day,6/year" }, /is not a limit/],
    ["codex", { expires: "soon" }, /is not a date/],
  ];
  for (const [name, options, words] of cases)
    t.match(planTool(TWO, "/", name, options), { ok: false, problem: words }, JSON.stringify(options));
  t.match(planTool("gateway: nonsense\n", "/", "codex", {}), { ok: false, bad: "file" });
  t.match(planTool(TWO, "/", "codex", { group: "coding" }), { ok: true, newGroup: null });
  t.match(readFrom("file:keys/x", "/"), { problem: /the path of a key file is not absolute/ });
  t.match(readFrom("op://vault/x", "/"), { problem: /a command is written into config\.yaml by hand/ });
  t.match(readFrom("file:~/keys/x", "/home/me"), { source: { kind: "file", path: "/home/me/keys/x" } });
  t.end();
});

t.test("a tool that cannot be added is reported, and the file stays as it is", async (t) => {
  const home = await newHome(t);
  const none = await command(t, home, ["tools", "add", "codex", "--from", "env:X_KEY"]);
  t.match(none, { code: 1, stderr: /there is no .*config\.yaml → keybearer init/ });
  const file = await saveConfig(home, TWO);
  const { token } = freshToken();
  const byHand = ["codex", "--from", "env:X_KEY", "--token-stdin", "--no-probe"];
  const cases: [string[], string, number, RegExp][] = [
    [["codex", "--quota", "much"], "", 2, /tools\.codex\.quota/],
    [["codex", "--from", "sk-abcdefghijklmnop"], "", 2, /a key itself is never an argument → --key-stdin/],
    [["codex"], "", 2, /there is no terminal to type the key at.*--key-stdin/],
    [byHand, token.slice(0, -1), 1, /incomplete, or keybearer did not make it/],
  ];
  for (const [args, input, code, words] of cases) {
    const ended = await command(t, home, ["tools", "add", ...args], { input });
    t.equal(ended.code, code, `${args.join(" ")}: ${ended.stderr}`);
    t.match(ended.stderr, words);
    t.equal(ended.stdout, "");
    t.notMatch(ended.stderr, /abcdefgh/);
    t.equal(readFileSync(file, "utf8"), TWO);
  }
});

t.test("a key that is stored elsewhere is named, and tried if it can be read here", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const file = await saveConfig(home, `gateway: ${sandbox.baseUrl}\ntools: { zed: {} }\n`);
  const env = { CODEX_KEY: key };
  const added = await command(t, home, ["tools", "add", "codex", "--from", "env:CODEX_KEY"], { env });
  t.match(added, { code: 0, stderr: /the gateway accepts the key/ });
  t.match(
    readFileSync(file, "utf8"),
    /zed: \{\}, codex: \{ key: env:CODEX_KEY, token: \[\{ name: codex, hash: sha256:\w+, created: [\d-]+ \}\] \} \}\n$/,
  );
  const before = readFileSync(file, "utf8");
  const unset = await command(t, home, ["tools", "add", "later", "--from", "env:LATER_KEY"]);
  t.match(unset, {
    code: 1,
    stdout: "",
    stderr: /the variable LATER_KEY is not set.*for the service only: --no-probe\nnothing was changed/,
  });
  t.equal(readFileSync(file, "utf8"), before);
  const later = await command(t, home, ["tools", "add", "later", "--from", "env:LATER_KEY", "--no-probe"]);
  t.equal(later.code, 0, "it may be set for the service only");
});

t.test("a key that config.yaml does not name in the end is deleted, if this command stored it", async (t) => {
  const home = t.testdir({});
  const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
  const path = join(home, "keys", "codex");
  const key = new Secret("sk-0123456789abcdef");
  const taken = { tool: "codex", origins: [], key, place: { kind: "file", path } as const, models: null };
  let stored = false;
  const failToName = async () => {
    stored = existsSync(path);
    return false;
  };
  const keep = (name: () => Promise<boolean>) => storeNamedKey(paths, taken, name);
  t.equal(await keep(failToName), false);
  t.same([stored, existsSync(path)], [true, false]);
  const named = async () => {
    await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: "file:${path}" } }\n`);
    return false;
  };
  t.equal(await keep(named), false);
  t.equal(existsSync(path), true, "another command has named it in the meantime");
  t.equal(await keep(failToName), false);
  t.equal(existsSync(path), true, "it lay there before");
});

t.test("of commands that add the same tool and key at once, one succeeds, and its key stays", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { zed: {} }\n");
  const args = ["tools", "add", "codex", "--key-stdin", "--store", "file", "--no-probe"];
  const input = "sk-0123456789abcdef";
  const ended = await Promise.all([1, 2, 3].map(() => command(t, home, args, { input })));
  t.same(ended.map(({ code }) => code).toSorted(), [0, 1, 1], ended.map(({ stderr }) => stderr).join(""));
  const key = parseConfig(readFileSync(file, "utf8"), home).config?.tools.codex?.key;
  t.match(key, { kind: "file" });
  t.equal(readFileSync(key?.kind === "file" ? key.path : "", "utf8"), `${input}\n`);
});

t.test("a known key is not sent to another gateway, and no key to one that was moved", async (t) => {
  const [right, wrong] = [await startSandbox(t), await startRawGateway(t, (call) => call.ok())];
  const { text: key } = newKey(right);
  const home = await newHome(t);
  const gateways = (main: string) =>
    `listen: localhost:0\ngateways:\n  main: { base_url: ${main} }\n  other: { base_url: ${wrong.baseUrl} }\n`;
  const tools = "tools:\n  codex: { gateway: main, key: file:~/keys/codex }\n";
  const file = await saveConfig(home, gateways(right.baseUrl) + tools);
  await storeKey({ kind: "file", path: join(home, "keys", "codex") }, new Secret(key), { env: {} });
  await serveIn(t, home);
  const from = ["--gateway", "other", "--from", "file:~/keys/codex"];
  const added = await command(t, home, ["tools", "add", "helper", ...from]);
  t.match(added, { code: 0, stderr: /not tried: .* waits for your confirmation.* → keybearer trust helper/ });
  const typed = ["--gateway", "other", "--key-stdin", "--store", "file"];
  const again = await command(t, home, ["tools", "add", "typed", ...typed], { input: key });
  t.match(again, { code: 1, stderr: /each gateway has keys of its own.*\nnothing was changed/ });
  t.same(readdirSync(join(home, "keys")), ["codex"]);

  const before = gateways(wrong.baseUrl) + tools;
  await saveConfig(home, before);
  const main = ["--gateway", "main", "--key-stdin", "--store", "file"];
  const moved = await command(t, home, ["tools", "add", "new", ...main], { input: newKey(right).text });
  t.match(moved, { code: 1, stderr: /codex was used at .* → keybearer trust codex/ });
  t.equal(readFileSync(file, "utf8"), before);
  t.equal(wrong.calls.length, 0, "nothing came there");
});

t.test("concurrent commands keep each other's changes", async (t) => {
  const home = await newHome(t);
  const names = ["a", "b", "c", "d", "e", "f"];
  const tools = names.map((name) => `  ${name}: {} # ${name}\n`).join("");
  const file = await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools:\n${tools}`);
  const ended = await Promise.all(
    names.map((name) =>
      name < "d"
        ? command(t, home, ["tools", "disable", name])
        : command(t, home, ["tools", "add", `${name}2`, "--from", "env:X_KEY", "--no-probe"]),
    ),
  );
  t.same(
    ended.map(({ code }) => code),
    names.map(() => 0),
    ended.map(({ stderr }) => stderr).join(""),
  );
  const { config } = parseConfig(readFileSync(file, "utf8"), home);
  const disabled = Object.values(config?.tools ?? {}).filter(({ enabled }) => !enabled);
  t.same(disabled.map(({ name }) => name).toSorted(), ["a", "b", "c"]);
  t.same(Object.keys(config?.tools ?? {}).toSorted(), [...names, "d2", "e2", "f2"].toSorted());
});

t.test("a key that lists no models is added with a warning", async (t) => {
  // new-api 2d8e50bf, a key whose group has no channels.
  const list = '{"data":[],"object":"list","success":true}';
  const gateway = await startRawGateway(t, (call) => call.ok(list));
  const home = await newHome(t);
  await saveConfig(home, `gateway: ${gateway.origin}/v1\ntools: { zed: { key: env:ZED_KEY } }\n`);
  const args = ["tools", "add", "codex", "--key-stdin", "--store", "file", "--json"];
  const added = await command(t, home, args, { input: "sk-0123456789abcdef0123456789abcdef\n" });
  t.equal(added.code, 0, added.stderr);
  t.match(
    added.stderr,
    /warning: .*the gateway accepts the key, but lists no models.* → choose another group/,
  );
  t.match(JSON.parse(added.stdout), { tool: "codex", models: [] });
});
