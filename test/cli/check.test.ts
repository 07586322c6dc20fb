import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";

t.test("check of a good file sums up its tools, gateways and groups", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    `gateways: { main: { base_url: "https://gateway.example.com/v1", groups: { coding: {}, chat: {} } } }
tools: { codex: { key: env:A, group: coding }, scripts: { key: env:B } }\n`,
  );
  const { code, stdout } = await command(t, home, ["check"]);
  t.equal(code, 0);
  t.equal(
    stdout,
    `${file} is fine: 2 tools, 1 gateway, 2 groups
  gateway main  https://gateway.example.com/v1  groups coding, chat
  tool codex  main/coding
  tool scripts  main\n`,
  );
  const json = await command(t, home, ["check", "--json"]);
  t.equal(json.code, 0);
  t.match(JSON.parse(json.stdout), { ok: true });
});

t.test("check of a bad file names every problem and exits 78; the key is never shown", async (t) => {
  const home = await newHome(t);
  const secret = "sk-proj-Abcd1234Efgh5678Ijkl";
  const file = join(home, "other.yaml");
  await saveConfig(home, "");
  writeFileSync(
    file,
    `gateway: https://gateway.example.com/v1\ntools:\n  codex: { key: "${secret} x", tokn: a }\n  codex: {}\n`,
    { mode: 0o600 },
  );
  const { code, stdout, stderr } = await command(t, home, ["check", file]);
  t.equal(code, 78);
  t.equal(stdout, "");
  t.match(stderr, `${file}:3:17: tools.codex.key: incomplete key`);
  t.match(stderr, `${file}:3:`);
  t.match(stderr, `${file}:4:3: `);
  t.match(stderr, /\n\d+ problems\n$/);
  t.notMatch(stderr, "Abcd1234");
  const json = JSON.parse((await command(t, home, ["check", file, "--json"])).stdout);
  t.equal(json.ok, false);
  t.ok(json.problems.length >= 2);
  for (const problem of json.problems) t.match(problem, { line: Number, column: Number, message: String });
  t.notMatch(JSON.stringify(json), "Abcd1234");
});

t.test(
  "check exits 78 without a file, and for a file with a key that others can read, whether it is named or not",
  async (t) => {
    const home = await newHome(t);
    t.match(await command(t, home, ["check"]), { code: 78, stderr: /there is no / });
    const file = await saveConfig(
      home,
      "gateway: https://gateway.example.com/v1\ntools: { codex: { key: sk-readable-0123456789 } }\n",
    );
    chmodSync(file, 0o644);
    t.match(await command(t, home, ["check"]), { code: 78, stderr: /chmod 600/ });
    t.match(await command(t, home, ["check", file]), {
      code: 78,
      stderr: /other users can read .*\n.*chmod 600/,
    });
  },
);

t.test("nothing in a file can control the terminal", async (t) => {
  const home = await newHome(t);
  const raw = "\u001b]0;owned\u0007\u001b[2J\u009b31m\u202e";
  // As itself, and as YAML can spell it.
  for (const evil of [raw, "\\e]0;owned\\a\\e[2J\\u009b31m\\u202e"]) {
    const tools = `tools: { "a${evil}b": {}, ok: { "${evil}": 1, gateway: "${evil}" } }`;
    await saveConfig(home, `gateway: https://gateway.example.com/v1\n${tools}\n`);
    const { code, stdout, stderr } = await command(t, home, ["check"]);
    t.equal(code, 78);
    t.match(stderr, `${home}/config.yaml:2:`);
    t.notMatch(`${stdout}${stderr}`, /(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  }
});

t.test("check mentions written keys, missing key files, shared keys and tools without a limit", async (t) => {
  const home = await newHome(t);
  const keyFile = join(home, "shared-key");
  writeFileSync(keyFile, "sk-shared-0123456789\n", { mode: 0o600 });
  await saveConfig(
    home,
    `gateway: https://gateway.example.com/v1
tools:
  codex: { key: sk-shared-0123456789 }
  scripts: { key: "file:${keyFile}", limits: { spend: $5/day } }
  zed: { key: "file:${home}/none", quota: $5 }
`,
  );
  const { code, stderr } = await command(t, home, ["check"]);
  t.equal(code, 0);
  t.match(stderr, /warning: tools\.zed\.key: .*\/none.*\n {4}→ keybearer tools rotate zed --store file\n/);
  t.match(stderr, /key of codex is written into config\.yaml, .* has it\n.*→ .* codex --store keychain/);
  t.match(stderr, /tools\.scripts\.key: tools codex and scripts share one key, …6789\n/);
  t.match(stderr, /tools: no limit for codex: .*\n {4}→ keybearer tools set codex limits\.spend=10\/day;/);
  t.notMatch(stderr, "sk-shared");
  t.equal((await command(t, home, ["tools", "set", "codex", "limits.spend=10/day"])).code, 0);
  t.notMatch((await command(t, home, ["check"])).stderr, "no limit");
});

t.test("a port and a path are no secret, and a setting is listed once", async (t) => {
  const home = await newHome(t);
  await saveConfig(
    home,
    "gateway: http://localhost:8080/v1/chat/completions\ndashboard: false\nx: 1\ntools: { codex: {} }\n",
  );
  const { stderr } = await command(t, home, ["check"]);
  t.match(stderr, "http://localhost:8080/v1");
  t.notMatch(stderr, "[hidden]");
  t.match(stderr, /known here: dashboard, drain, /);
});
