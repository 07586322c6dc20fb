import { readFileSync } from "node:fs";
import t from "tap";
import { advice } from "../../src/core/advice.ts";
import { hashToken } from "../../src/core/token.ts";
import { advised, command, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";

const GATEWAY =
  "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-of-codex } }\n";

t.test("the token that metrics token makes is printed once, and reads the metrics", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, `${GATEWAY}metrics:\n  listen: localhost:0   # any\n`);
  const { daemon } = await serveIn(t, home);
  const address = async () =>
    ((await daemon.status()).metrics?.address ?? "").replace("localhost", "127.0.0.1");
  const read = async (token: string) => {
    const response = await fetch(await address(), { headers: { authorization: `Bearer ${token}` } });
    return { status: response.status, text: await response.text() };
  };
  const refused = await read("kb_other");
  t.equal(refused.status, 401);
  const made = await command(t, home, advised(t, refused.text, advice.metricsToken()));
  t.equal(made.code, 0, made.stderr);
  t.match(made.stdout, /^kb_[A-Za-z0-9_-]+\n$/, "one line, nothing else");
  const token = made.stdout.trim();
  t.notOk(made.stderr.includes(token));
  const text = readFileSync(file, "utf8");
  t.notOk(text.includes(token));
  t.equal(text, `${GATEWAY}metrics:\n  listen: localhost:0   # any\n  token: sha256:${hashToken(token)}\n`);
  t.match(await read(token), { status: 200, text: /keybearer_build_info/ }, "it is in force");
  const next = await command(t, home, ["metrics", "token"]);
  t.match(next.stderr, /the one before has ended/);
  t.match(await read(token), { status: 401 });
  t.match(await read(next.stdout.trim()), { status: 200 });
});

t.test("it switches metrics on where they are off", async (t) => {
  for (const before of ["", "metrics: true\n", "metrics: false\n"]) {
    const home = await newHome(t);
    const file = await saveConfig(home, GATEWAY + before);
    const { code, stdout, stderr } = await command(t, home, ["metrics", "token"]);
    t.equal(code, 0, stderr);
    const after = readFileSync(file, "utf8");
    t.match(after, /metrics:.*\n?.*localhost:5399/);
    t.match(after, `sha256:${hashToken(stdout.trim())}`);
    t.equal(/metrics were off/.test(stderr), before !== "metrics: true\n", before);
  }
});

t.test("a config.yaml that cannot be used is not changed", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, "gateway: 1\n");
  const { code, stdout } = await command(t, home, ["metrics", "token"]);
  t.not(code, 0);
  t.equal(stdout, "");
  t.equal(readFileSync(file, "utf8"), "gateway: 1\n");
});
