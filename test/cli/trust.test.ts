import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { get, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

/** A daemon whose one key has just been moved to another gateway by an edit, and is held. */
async function startHeld(t: Test) {
  const [first, second] = [await startSandbox(t), await startSandbox(t)];
  const { key } = first.createKey({ name: "moved", group: "default" });
  second.createKey({ name: "moved", group: "default", customKey: key.reveal() });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const config = (gateway: string) =>
    `listen: localhost:0\ngateway: ${gateway}\ntools: { codex: { key: ${key.reveal()}, token: "${hash}" } }\n`;
  await saveConfig(home, config(first.baseUrl));
  const running = await serveIn(t, home);
  const ask = () => get(`${running.url}/v1/models`, token);
  t.equal((await ask()).status, 200);
  await saveConfig(home, config(second.baseUrl));
  await until(
    "the key is held",
    async () => (await ask()).headers.get("x-keybearer-refusal") === "needs-trust",
  );
  return { ...running, home, ask, first, second, key: key.reveal() };
}

t.test("trust without a terminal exits 2 and changes nothing", async (t) => {
  const { home, ask, second } = await startHeld(t);
  const before = readFileSync(join(home, "state", "trust.json"), "utf8");
  const { code, stdout, stderr } = await command(t, home, ["trust", "codex"], { input: "yes\n" });
  t.equal(code, 2);
  t.equal(stdout, "");
  t.match(stderr, /needs a person at a terminal\. open one and type: keybearer trust codex/);
  t.equal((await ask()).status, 400);
  t.equal(readFileSync(join(home, "state", "trust.json"), "utf8"), before);
  t.equal(second.requests().length, 0);
});

t.test("a key that an edit moved waits until a person says yes at a terminal", async (t) => {
  const { home, ask, first, second, key } = await startHeld(t);
  const seen = first.requests().length;
  const status = await command(t, home, ["status"]);
  t.match(status.stdout, /^codex +needs-trust /m);
  t.match(status.stdout, `${first.origin} → ${second.origin}`);
  t.match(status.stdout, "→ keybearer trust codex");

  for (const answer of ["\r", "n\r", "NO\r", "\u0004", "\u0003"]) {
    const person = atScreen(t, home, ["trust", "codex"]);
    await person.says(/trust this\? \[y\/N\]/);
    person.type(answer);
    const { code, stdout } = await person.ended;
    t.equal(code, 1, JSON.stringify(answer));
    t.match(stdout, /not trusted; nothing changed/);
    t.notMatch(stdout, /^\s+at |Warning/m);
  }
  t.equal((await ask()).headers.get("x-keybearer-refusal"), "needs-trust");
  t.equal(second.requests().length, 0, "the key has not been there");

  const person = atScreen(t, home, ["trust", "codex"]);
  await person.says(/trust this\? \[y\/N\]/);
  t.match(person.stdout(), `was  ${first.origin}`);
  t.match(person.stdout(), `now  ${second.origin}`);
  person.type("yes\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0);
  t.match(stdout, /trusted codex: /);
  t.notOk(stdout.includes(key));
  t.equal((await ask()).status, 200);
  t.equal(second.requests().length, 1);
  t.equal(first.requests().length, seen, "and the old gateway is no longer asked");

  const again = await atScreen(t, home, ["trust", "codex"]).ended;
  t.equal(again.code, 0);
  t.match(again.stdout, /nothing of codex is held/);
  const unknown = await atScreen(t, home, ["trust", "elsewhere"]).ended;
  t.equal(unknown.code, 1);
  t.match(unknown.stdout, /there is no tool or gateway elsewhere/);
});

t.test("the password of the shared store waits until a person says yes at a terminal", async (t) => {
  const home = await newHome(t);
  const password = "correct-horse-battery";
  const config = (port: number) =>
    `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { shared: {} }\nshared: { store: { url: "redis://127.0.0.1:${port}", password: ${password} } }\n`;
  await saveConfig(home, config(9));
  await serveIn(t, home);
  await saveConfig(home, config(10));
  let status = "";
  const refused = /^shared: redis:\/\/127\.0\.0\.1:10, refused: the password of the shared store\b/m;
  await until("status says that the store is held", async () => {
    status = (await command(t, home, ["status"])).stdout;
    return refused.test(status);
  });
  t.match(status, "→ keybearer trust shared");
  const doctor = await command(t, home, ["doctor"]);
  t.match(doctor.stdout, /the shared store[\s\S]*redis:\/\/127\.0\.0\.1:10 cannot be used/);

  const person = atScreen(t, home, ["trust", "shared"]);
  await person.says(/trust this\? \[y\/N\]/);
  t.match(person.stdout(), /^the password of the shared store\n {2}was {2}redis:\/\/127\.0\.0\.1:9\b/m);
  t.match(person.stdout(), /^ {2}now {2}redis:\/\/127\.0\.0\.1:10\b/m);
  person.type("yes\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0);
  t.match(stdout, /trusted shared store password: the password of the shared store: /);
  t.notOk(`${stdout}${status}${doctor.stdout}`.includes(password));
  const after = JSON.parse((await command(t, home, ["status", "--json"])).stdout);
  t.not(after.shared.next, "keybearer trust shared");
  t.match((await atScreen(t, home, ["trust", "shared"]).ended).stdout, /nothing of shared is held/);
});

t.test("without a shared store, shared is a name like others", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  await serveIn(t, home);
  const ended = await atScreen(t, home, ["trust", "shared"]).ended;
  t.equal(ended.code, 1);
  t.match(ended.stdout, /there is no tool or gateway shared/);
});

t.test("a yes to what was shown does not count for a file that has changed since", async (t) => {
  const { home, ask, second, key } = await startHeld(t);
  const person = atScreen(t, home, ["trust", "codex"]);
  await person.says(/trust this\? \[y\/N\]/);
  const text = readFileSync(join(home, "config.yaml"), "utf8");
  await saveConfig(home, text.replace(second.baseUrl, "http://127.0.0.1:9/v1"));
  await until("the edit is in force", async () =>
    (await command(t, home, ["status"])).stdout.includes("→ http://127.0.0.1:9"),
  );
  person.type("yes\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 1);
  t.notMatch(stdout, /^trusted /m);
  t.notOk(stdout.includes(key));
  t.equal((await ask()).headers.get("x-keybearer-refusal"), "needs-trust");
});
