import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import type { SandboxKey } from "../../src/sandbox/account.ts";
import { advised, command, flat } from "../doubles/command.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { prepareHome, ROTATE } from "../doubles/key-journey.ts";
import { DAY, startBeside, startJourney } from "../doubles/mirror-journey.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

/** A key that has expired or has used up its quota: a person at a terminal decides what its successor gets. */

const WIDE = { columns: 400 };

/** A daemon whose tool has a key with a quota of $20 that lasts for 90 days. @param ended what is over */
async function start(t: Test, ended: (key: SandboxKey, now: number) => Partial<SandboxKey>) {
  const gateway = await startSandbox(t);
  const { home, token } = await prepareHome(t, gateway);
  const [key] = gateway.account.keys;
  if (key === undefined) throw new Error("there is no key");
  const now = Date.now();
  Object.assign(key, { quota: 20, createdAt: now - 50 * DAY, expiresAt: now + 40 * DAY });
  Object.assign(key, ended(key, now));
  const { url, daemon } = await serveIn(t, home);
  const chat = () => post(`${url}/v1/chat/completions`, token, hello());
  const live = () => gateway.account.keys.filter(({ deletedAt }) => deletedAt === null);
  const toolState = async () => (await daemon.status()).tools[0]?.state;
  return { home, key, now, chat, live, toolState };
}

const isOver = (_key: SandboxKey, now: number) => ({
  quotaUsed: 20,
  createdAt: now - 91 * DAY,
  expiresAt: now - DAY,
});

t.test("a key that is over is replaced after a person at a terminal says yes", async (t) => {
  const { home, key, now, chat, live, toolState } = await start(t, isOver);
  t.equal((await chat()).status, 403);
  await until("it is refused", async () => (await toolState()) === "key-refused");
  const { stdout } = await command(t, home, ["status"], { env: { COLUMNS: "400" } });
  t.match(flat(stdout), "change its expiry in the console, or replace it: keybearer tools rotate codex");
  const typed = [...advised(t, stdout, advice.rotate("codex")), "--store", "file"];
  const question =
    /the key of codex has expired and has used up its quota\. make one with the same quota, \$20\.00, and an expiry in 90 days, on \d{4}-\d\d-\d\d\? \[y\/N\]/;

  const hesitant = atScreen(t, home, [...typed, "--yes"], WIDE);
  await hesitant.says(question);
  hesitant.type("\r");
  t.match(await hesitant.ended, { code: 1, stdout: /nothing was changed/ }, "--yes does not answer it");
  t.strictSame(live(), [key]);

  const person = atScreen(t, home, typed, WIDE);
  await person.says(question);
  person.type("y\r");
  const { code, stdout: said } = await person.ended;
  t.equal(code, 0, said);
  t.match(said, /codex: key …\w{4} → …\w{4}/);
  const [next, ...others] = live();
  t.strictSame(others, []);
  t.match(next, { quota: 20, quotaUsed: 0, group: key.group });
  const lifetime = (next?.expiresAt ?? 0) - now;
  t.ok(lifetime > 89 * DAY && lifetime < 91 * DAY, "as long as the old one had");
  t.equal((await chat()).status, 200);
});

t.test("without a terminal such a key is not replaced, not even with --yes or --all", async (t) => {
  const { home, key, live } = await start(t, isOver);
  const sentence = {
    code: 1,
    stderr:
      /the key of codex has expired and has used up its quota: a person at a terminal must agree to what the new one gets → keybearer tools rotate codex\n/,
  };
  t.match(await command(t, home, ROTATE), sentence);
  t.match(await command(t, home, ["tools", "rotate", "--all", "--store", "file", "--yes"]), sentence);
  t.strictSame(live(), [key]);
});

longTest(t, "only what is over is renewed", async (t) => {
  const expired = await start(t, (_key, now) => ({ quotaUsed: 15, expiresAt: now - 1000 }));
  const first = atScreen(t, expired.home, ["tools", "rotate", "codex", "--store", "file"], WIDE);
  await first.says(/the key of codex has expired\. make one with an expiry in 50 days, on .*\? \[y\/N\]/);
  first.type("y\r");
  t.equal((await first.ended).code, 0);
  t.match(expired.live(), [{ quota: 5, quotaUsed: 0 }], "what is left of the quota");

  const usedUp = await start(t, () => ({ quotaUsed: 20.5 }));
  const second = atScreen(t, usedUp.home, ["tools", "rotate", "codex", "--store", "file"], WIDE);
  await second.says(/codex has used up its quota\. make one with the same quota, \$20\.00\? \[y\/N\]/);
  second.type("y\r");
  t.equal((await second.ended).code, 0);
  t.match(usedUp.live(), [{ quota: 20, quotaUsed: 0, expiresAt: usedUp.key.expiresAt }], "the same expiry");
});

longTest(t, "new-api: the new key has the old one's group, its quota again, and as much time", async (t) => {
  const journey = await startJourney(t, "new-api v1.0.0-rc.25", {
    before(console, { codex }) {
      console.keys.length = 0;
      const key = codex?.key ?? "";
      const expiresAt = console.now() + 30 * DAY;
      console.addKey({ name: "codex", key, group: "vip", multiplier: 2, quota: 10, expiresAt });
    },
  });
  await journey.idle();
  const [old] = journey.console.keys;
  if (old === undefined) throw new Error("there is no key");
  old.usedDollars = 12;
  journey.clock.pass(31 * DAY);
  t.equal((await journey.ask()).status, 401);
  const person = atScreen(t, journey.home, ["tools", "rotate", "codex", "--store", "file"], WIDE);
  await person.says(
    /has expired and has used up its quota\. make one with the same quota, \$10\.00, and an /,
  );
  person.type("y\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  const expiresAt = journey.clock.now() + 30 * DAY;
  t.match(journey.console.keys, [{ group: "vip", quota: 10, usedDollars: 0, expiresAt }]);
  t.equal((await journey.ask()).status, 200);
});

t.test("a console that is read without a login: the advice is to type the new key", async (t) => {
  const clock = heldClock();
  const console = await startNewApi(t, { now: clock.now, keyOnly: true });
  const journey = await startBeside(t, console, clock);
  await journey.idle();
  const [key] = console.keys;
  if (key === undefined) throw new Error("there is no key");
  key.expiresAt = clock.now() - 5000;
  t.equal((await journey.ask()).status, 401);
  const tool = async () => (await journey.status()).tools[0];
  await until("it is explained", async () => (await tool())?.refused?.detail === "key-expired");
  const { next } = (await tool()) ?? {};
  t.match(next, /or create a new one; then: keybearer tools rotate codex --manual$/);
  t.match(await command(t, journey.home, ["tools", "rotate", "codex", "--yes"]), {
    stderr:
      /cannot be rotated through the console: .*changing keys needs a login → keybearer mirror login main/,
  });
});
