import { readFileSync } from "node:fs";
import t, { type Test } from "tap";
import type { LoginAnswer } from "../../src/mirror/login.ts";
import { command } from "../doubles/command.ts";
import { type ConsoleDouble, SECOND_LOGIN } from "../doubles/consoles/console-double.ts";
import { type ConsoleName, startConsole } from "../doubles/consoles/start-console.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { type ConfigOptions, HOUR, MINUTE, startBeside } from "../doubles/mirror-journey.ts";

const CONSOLES = ["sub2api", "new-api v0.13.2", "one-api"] as const;

/** codex has a key of the first account, other one of the second. */
async function start(t: Test, name: ConsoleName, options: (double: ConsoleDouble) => ConfigOptions) {
  const clock = heldClock();
  const double = await startConsole(t, name, { now: clock.now });
  const journey = await startBeside(t, double, clock, {
    tools: { codex: "", other: "" },
    before: ({ keys }) => {
      for (const key of keys) if (key.name === "other") Object.assign(key, { second: true });
    },
    ...options(double),
  });
  await journey.idle();
  return { clock, double, journey };
}

function bothAccounts({ url, kind }: ConsoleDouble): ConfigOptions {
  return { console: [`kind: ${kind}`, `url: ${url}`, "login: [{ name: home }, { name: work }]"] };
}

function credentials({ kind, login }: ConsoleDouble, { email, accessToken, user } = login): object {
  return kind === "sub2api"
    ? { email, password: login.password }
    : { access_token: accessToken, user: kind === "new-api" ? user : null };
}

for (const name of CONSOLES) {
  t.test(
    `${name}: the report names a key of an account without a login, and its requests are not missing`,
    async (t) => {
      const { clock, journey } = await start(t, name, () => ({}));
      await journey.ask();
      await journey.ask({}, { tool: "other" });
      await journey.ask({}, { tool: "other" });
      await journey.ask({}, { tool: "other" });
      await journey.sync();
      clock.pass(HOUR);
      const status = await journey.sync();
      t.equal(status.state, "ok", status.why ?? "");
      const { records, blind } = await journey.mirror();
      t.match(records, { matched: 1, missing: 0, pending: 0 });
      t.match(
        blind.find((one) => one.startsWith("other:")),
        "other: no account logged in here lists its key. a deleted key → keybearer tools rotate <tool>; one of another account → keybearer mirror login main --account",
      );
      t.notOk(blind.some((one) => one.startsWith("codex")));
    },
  );

  t.test(`${name}: two accounts are read in one sync`, async (t) => {
    const { clock, double, journey } = await start(t, name, bothAccounts);
    t.match(await journey.idle(), {
      state: "login-needed",
      next: "keybearer mirror login main --account home",
    });
    const login = (asked: object) => journey.control<LoginAnswer>("POST", "/login/main", asked);
    t.match(await login(credentials(double)), { state: "failed", problem: /Choose one.*--account home/ });
    t.match(await login({ ...credentials(double), account: "play" }), {
      state: "failed",
      problem: /no account play/,
    });
    t.match(await login({ ...credentials(double), account: "home" }), { state: "done" });
    await journey.ask();
    await journey.ask({}, { tool: "other" });
    clock.pass(MINUTE);
    // The second account is not logged in: the first is read and compared nevertheless.
    const half = await journey.sync();
    t.match(
      half,
      { state: "login-needed", next: "keybearer mirror login main --account work" },
      half.why ?? "",
    );
    t.match((await journey.mirror()).records, { matched: 1, missing: 0 });
    const { home } = journey;
    const typed =
      double.kind === "sub2api"
        ? `${SECOND_LOGIN.email}\n${SECOND_LOGIN.password}\n`
        : `${SECOND_LOGIN.accessToken}\n${double.kind === "new-api" ? `${SECOND_LOGIN.user}\n` : ""}`;
    const ended = await command(t, home, ["mirror", "login", "--account", "work"], { input: typed });
    t.equal(ended.code, 0, ended.stderr);
    t.equal((await journey.idle()).state, "ok");
    clock.pass(HOUR);
    t.equal((await journey.sync()).state, "ok");
    const report = await journey.mirror();
    t.match(report.records, { matched: 2, missing: 0, pending: 0 });
    t.match(report.rows, { total: 2, by_id: 2 });
    t.notOk(report.blind.some((one) => one.startsWith("other")));
    // A leak of either key is seen.
    journey.elsewhere({ key: journey.caller("other").key });
    clock.pass(HOUR);
    await journey.sync();
    t.strictSame(
      (await journey.idle()).alarms.map(({ tools }) => tools),
      [["other"]],
    );
    await journey.daemon.stop(0);
    const kept = JSON.parse(readFileSync(journey.paths.consoles, "utf8"));
    t.strictSame(
      kept.entries.map(({ gateway }: { gateway: string }) => gateway),
      ["main home", "main work"],
    );
    const second = await journey.startAgain();
    t.equal((await second.idle()).state, "ok", "both last over a restart");
  });
}

t.test("rows of a deleted key do not keep the console from being read", async (t) => {
  for (const name of CONSOLES) {
    const clock = heldClock();
    const double = await startConsole(t, name, { now: clock.now });
    const gone = double.addKey({ name: "gone", key: "sk-00112233445566778899aabbccddeeff" });
    for (let n = 0; n < 5; n += 1)
      double.bill({ key: gone.key, model: "m", stream: false, input: 1, output: 1, dollars: 0.01 });
    double.keys.splice(double.keys.indexOf(gone), 1);
    const journey = await startBeside(t, double, clock);
    const status = await journey.idle();
    t.match(status, { state: "ok", why: null }, `${name}: ${status.why}`);
  }
});

t.test("an account that lists none of the keys held here cannot see", async (t) => {
  const { double, journey } = await start(t, "sub2api", () => ({ tools: { codex: "", other: "" } }));
  for (const key of double.keys) Object.assign(key, { second: true });
  t.match(await journey.sync(), { state: "cannot-see", why: /none of the keys that are held here/ });
});
