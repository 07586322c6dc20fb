import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { findPaths } from "../../src/core/paths.ts";
import { type Daemon, startDaemon } from "../../src/daemon/daemon.ts";
import { newHome, saveConfig, start } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

const CONFIG =
  "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NOT_SET } }\n";

t.test("of two starts at the very same moment exactly one runs, every time", async (t) => {
  for (let round = 0; round < 6; round += 1) {
    const home = mkdtempSync(join(tmpdir(), "kb-"));
    const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
    writeFileSync(paths.config, CONFIG, { mode: 0o600 });
    const begin = () => startDaemon({ paths, env: {}, logTo: { write: () => {} } });
    const outcomes = await Promise.allSettled([begin(), begin()]);
    const running = outcomes.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    const codes = outcomes.flatMap((one) => (one.status === "rejected" ? [one.reason.exitCode] : []));
    t.equal(running.length, 1, `round ${round}`);
    t.same(codes, [75]);
    t.ok(existsSync(paths.socket), "the winner's socket is not taken away by the loser");
    await Promise.all(running.map((daemon: Daemon) => daemon.stop(0)));
    rmSync(home, { recursive: true, force: true });
  }
});

t.test("of two programs started at the same moment exactly one runs", async (t) => {
  for (let round = 0; round < 3; round += 1) {
    const home = await newHome(t);
    await saveConfig(home, CONFIG);
    const two = [start(t, home, ["run"]), start(t, home, ["run"])];
    const code = await Promise.race(two.map(async ({ ended }) => (await ended).code));
    t.equal(code, 75);
    const other = two.find(({ child }) => child.exitCode === null);
    await other?.says(/serves http/);
    other?.child.kill("SIGTERM");
    const codes = await Promise.all(two.map(async ({ ended }) => (await ended).code));
    t.same(codes.toSorted(), [0, 75]);
  }
});

t.test(
  "a config.yaml that appears ends the sandbox: its tool works, the sandbox's token is unknown",
  async (t) => {
    const gateway = await startSandbox(t);
    const { key } = gateway.createKey({ name: "own", group: "default" });
    const { token, hash } = freshToken();
    const { daemon, url, save, log } = await startUnderTest(t, null);
    const first = daemon.sandboxSession?.token ?? "";
    const before = await post(`${url}/v1/chat/completions`, first, hello());
    t.equal(before.status, 200);
    t.equal(before.headers.get("x-keybearer-sandbox"), "1");

    await save("tools: { broken");
    await until("the broken file is told", () => log().some(({ level }) => level === "error"));
    t.equal((await post(`${url}/v1/chat/completions`, first, hello())).status, 200, "a broken one does not");

    await save(`gateway: ${gateway.baseUrl}\ntools: { own: { key: ${key.reveal()}, token: "${hash}" } }\n`);
    await until("the new tool works", async () => {
      return (await post(`${url}/v1/chat/completions`, token, hello())).status === 200;
    });
    const after = await post(`${url}/v1/chat/completions`, token, hello());
    t.equal(after.headers.get("x-keybearer-sandbox"), null);
    const old = await post(`${url}/v1/chat/completions`, first, hello());
    t.equal(old.status, 401);
    t.equal(old.headers.get("x-keybearer-refusal"), "token-unknown");
    await until("the sandbox has ended", () => daemon.sandboxSession?.sandbox.isRunning === false);
    t.equal((await daemon.status()).sandbox, false);
  },
);

t.test("the sandbox's token is new each time", async (t) => {
  const tokens = [await startUnderTest(t, null), await startUnderTest(t, null)].map(
    ({ daemon }) => daemon.sandboxSession?.token,
  );
  t.match(tokens[0], /^kb_/);
  t.not(tokens[0], tokens[1]);
});
