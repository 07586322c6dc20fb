import { existsSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { newHome, saveConfig, start } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const CONFIG =
  "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NOT_SET } }\n";

t.test("of two programs started at the same moment exactly one runs", async (t) => {
  const rounds = repeats("KEYBEARER_START_ROUNDS", 1, 10);
  for (let round = 0; round < rounds; round += 1) {
    const home = await newHome(t);
    await saveConfig(home, CONFIG);
    const two = [start(t, home, ["run"]), start(t, home, ["run"])];
    const code = await Promise.race(two.map(async ({ ended }) => (await ended).code));
    t.equal(code, 75);
    const other = two.find(({ child }) => child.exitCode === null);
    await other?.says(/serves http/);
    t.ok(existsSync(join(home, "run", "control.sock")), "the loser does not remove the winner's socket");
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
    await until("the broken file is logged", () => log().some(({ level }) => level === "error"));
    t.equal(
      (await post(`${url}/v1/chat/completions`, first, hello())).status,
      200,
      "a broken file does not end it",
    );

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

t.test("each sandbox has its own token", async (t) => {
  const tokens = [await startUnderTest(t, null), await startUnderTest(t, null)].map(
    ({ daemon }) => daemon.sandboxSession?.token,
  );
  t.match(tokens[0], /^kb_/);
  t.not(tokens[0], tokens[1]);
});
