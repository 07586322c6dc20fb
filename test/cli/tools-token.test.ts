import { createHash } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { get, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

function hashOf(token: string): string {
  return `sha256:${createHash("sha256").update(token).digest("hex")}`;
}

const BLOCK = `# my tools
listen:   localhost:0     # any port
gateway: http://127.0.0.1:9/v1

tools:
  zed:   # the editor
    key: env:ZED_KEY

  codex:
    key: env:CODEX_KEY   # from the vault
    expires: 2020-01-01
  # not now
  old: { key: env:OLD_KEY, enabled: false }
`;

t.test("a token is printed once, alone, and only its hash is written; every other byte stays", async (t) => {
  const home = await newHome(t);
  for (const tool of ["codex", "old"]) {
    const file = await saveConfig(home, BLOCK);
    const { code, stdout, stderr } = await command(t, home, ["tools", "token", tool]);
    t.equal(code, 0, tool);
    t.match(stdout, /^kb_[A-Za-z0-9_-]+\n$/, "one line, nothing else");
    const token = stdout.trim();
    t.notOk(stderr.includes(token));
    const after = readFileSync(file, "utf8");
    t.notOk(after.includes(token));
    t.equal(after.split(hashOf(token)).length, 2, "the hash is there once");
    const without = after.replace(/\n {4}token: sha256:\w+|, token: sha256:\w+/, "");
    t.equal(without, BLOCK, "comments, order and spaces are kept to the byte");
    t.equal(statSync(file).mode & 0o777, 0o600);
  }
});

t.test("a new token takes the place of the old ones, --add stands beside them", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  const make = async (...more: string[]) =>
    hashOf((await command(t, home, ["tools", "token", "codex", ...more])).stdout.trim());
  const first = await make();
  t.ok(readFileSync(file, "utf8").includes(first));
  const second = await make("--add");
  t.ok(readFileSync(file, "utf8").includes(first) && readFileSync(file, "utf8").includes(second));
  const third = await make();
  const last = readFileSync(file, "utf8");
  t.notOk(last.includes(first) || last.includes(second));
  t.ok(last.includes(third));
  t.equal((await command(t, home, ["check"])).code, 0, "and the file is still good");
});

t.test("what cannot be edited is left alone, and no token is printed", async (t) => {
  const home = await newHome(t);
  const none = await command(t, home, ["tools", "token", "codex"]);
  t.match(none, { code: 1, stdout: "", stderr: /there is no .*config\.yaml\. write one first/ });
  const bad: [string | Buffer, string, RegExp][] = [
    [BLOCK, "nobody", /there is no tool nobody in config\.yaml; its tools are zed, codex, old/],
    ["tools: { codex: { key: [", "codex", /keybearer check/],
    ["gateway: http://127.0.0.1:9/v1\n", "codex", /no map of tools/],
    [Buffer.from([...Buffer.from("tools: { codex: {} } # "), 0xff, 0xfe, 0x0a]), "codex", /./],
  ];
  for (const [text, tool, words] of bad) {
    const file = await saveConfig(home, "");
    writeFileSync(file, text);
    const { code, stdout, stderr } = await command(t, home, ["tools", "token", tool]);
    t.equal(code, 1, String(text).slice(0, 30));
    t.equal(stdout, "");
    t.match(stderr, words);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
    t.ok(readFileSync(file).equals(Buffer.from(text)), "not a byte is changed");
  }
});

t.test("a running daemon takes a new token, and drops the old one", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "tools", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools:\n  codex:\n    key: ${key.reveal()}\n    token: "${hash}"\n`,
  );
  const { url } = await serveIn(t, home);
  t.equal((await get(`${url}/v1/models`, token)).status, 200);
  const made = (await command(t, home, ["tools", "token", "codex"])).stdout.trim();
  await until("the new token works", async () => (await get(`${url}/v1/models`, made)).status === 200);
  t.equal((await get(`${url}/v1/models`, token)).status, 401);
});
