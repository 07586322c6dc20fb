import { readFileSync } from "node:fs";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { get, newKey, startSandbox } from "../doubles/sandbox.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

t.test("a renamed tool keeps its counters, key, tokens and last use, also after a restart", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools:\n  codex: # mine\n    key: ${key}\n    token: ${hash}\n    limits: { requests: 3/day }\n`,
  );
  const first = await serveIn(t, home);
  const status = async (url: string) => (await get(`${url}/v1/models`, token)).status;
  t.equal(await status(first.url), 200);
  t.equal(await status(first.url), 200);
  const { code, stdout } = await command(t, home, ["tools", "rename", "codex", "codex-work"]);
  t.equal(code, 0);
  t.match(stdout, /codex is called codex-work now.*clients need no change\n.*records keep the name codex/);
  t.notOk(stdout.includes(key));
  t.match(readFileSync(file, "utf8"), "tools:\n  codex-work: # mine\n");
  const tools = (await first.daemon.status()).tools;
  t.match(tools, [{ name: "codex-work", state: "active", limits: [{ used: 2 }] }]);
  t.type(tools[0]?.last_use, "number");
  t.equal(await status(first.url), 200, "the same token, and the same key at the same address");
  await first.daemon.stop();
  const next = await serveIn(t, home);
  t.match((await next.daemon.status()).tools, [{ name: "codex-work", limits: [{ used: 3 }] }]);
  t.not(await status(next.url), 200, "the limit still counts what was used under the old name");
});

t.test("a key that is stored under the old name is still found", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {}, zed: {} }\n",
  );
  await serveIn(t, home);
  t.equal((await command(t, home, ["tools", "rename", "codex", "work"])).code, 0);
  t.match(readFileSync(file, "utf8"), "{ work: { key: keychain:keybearer/codex }, zed: {} }");
  const before = readFileSync(file, "utf8");
  for (const [from, to, words] of [
    ["work", "zed", /config\.yaml already has an entry zed/],
    ["work", "a b", /nothing was changed/],
    ["nobody", "x", /there is no tool or gateway nobody/],
  ] as const)
    t.match(await command(t, home, ["tools", "rename", from, to]), { code: 1, stdout: "", stderr: words });
  t.equal(readFileSync(file, "utf8"), before);
});

t.test("without a daemon nothing is renamed, because its counters would be lost", async (t) => {
  const home = await newHome(t);
  const text = "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n";
  const file = await saveConfig(home, text);
  const ended = await command(t, home, ["tools", "rename", "codex", "work"]);
  t.match(ended, { code: 1, stderr: /keybearer is not running → keybearer start\n.*moves the counters/ });
  t.equal(readFileSync(file, "utf8"), text);
});
