import { readFileSync, statSync } from "node:fs";
import t from "tap";
import { advice } from "../../src/core/advice.ts";
import type { LoginAnswer } from "../../src/mirror/login.ts";
import { advised, command } from "../doubles/command.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import { startSub2api } from "../doubles/consoles/sub2api.ts";
import { longTest, oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { DAY, HOUR, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";

const WRONG = "no-such-password-anywhere";

/** Without a secret. */
function bare({ kind, url, login }: ConsoleDouble, at = url): string[] {
  return [`kind: ${kind}`, `url: ${at}`, `login: { email: ${login.email} }`];
}

t.test("a login with a second factor lasts over a restart, for the same address only", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now, secondFactor: true });
  const { email, password, code } = double.login;
  const journey = await startBeside(t, double, clock, { console: bare(double) });
  const waiting = await journey.idle();
  t.match(waiting, { state: "login-needed" }, waiting.why ?? "");
  const advisedLogin = advised(t, waiting.next ?? "", advice.mirrorLogin("main"));
  const login = (asked: object) => journey.control<LoginAnswer>("POST", "/login/main", asked);
  t.match(await login({ code }), { state: "failed", problem: /start again with the password/ });
  const wrong = await command(t, journey.home, ["mirror", "login"], { input: `${WRONG}\n` });
  t.equal(wrong.code, 1, wrong.stdout);
  t.notOk((wrong.stdout + wrong.stderr).includes(WRONG), "a wrong password is not printed");
  t.match(await login({ email, password }), { state: "second-factor", problem: null });
  t.match(await login({ code: "000000" }), { state: "failed" });
  const typed = await command(t, journey.home, advisedLogin, { input: `${password}\n${code}\n` });
  t.match(typed, { code: 0, stdout: /logged in to main/ }, typed.stderr);
  t.notOk((typed.stdout + typed.stderr).includes(password), "the password is not printed");
  t.equal((await journey.idle()).state, "ok");
  t.equal(statSync(journey.paths.consoles).mode & 0o777, 0o600);
  const kept = readFileSync(journey.paths.consoles, "utf8");
  t.notOk(kept.includes(password), "the password is not kept");

  clock.pass(2 * HOUR);
  t.equal((await journey.sync()).state, "ok", "the login is renewed");
  t.not(readFileSync(journey.paths.consoles, "utf8"), kept, "and the new token kept");
  await journey.daemon.stop(0);

  const second = await journey.startAgain();
  t.equal((await second.idle()).state, "ok", "no password is asked for again");

  const other = await startSub2api(t, { now: clock.now });
  await second.edit(second.config({ console: bare(double, other.url) }));
  const moved = await second.sync();
  t.match(moved, { state: "login-needed", why: new RegExp(new URL(double.url).host) });
  t.strictSame(
    other.asked.filter(({ credential, method }) => credential || method !== "GET"),
    [],
    "nothing was sent there",
  );
  await second.edit(second.config());
  t.equal((await second.sync()).state, "ok", "back where it was, it is as it was");
  double.endSessions("all");
  clock.pass(MINUTE);
  t.match(await second.sync(), { state: "login-needed", next: "keybearer mirror login main" });
});

t.test("a login that needs a captcha says so, and a refresh token works instead", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now, captcha: true });
  const journey = await startBeside(t, double, clock, { console: bare(double) });
  await journey.idle();
  const { password } = double.login;
  const refused = await command(t, journey.home, ["mirror", "login"], { input: `${password}\n` });
  t.match(refused, { code: 1, stderr: /captcha/i });
  const instead = advised(
    t,
    refused.stderr,
    advice.mirrorRefreshToken("<gateway>"),
    advice.mirrorRefreshToken("main"),
  );
  const token = double.refreshToken();
  const typed = await command(t, journey.home, instead, { input: `${token}\n` });
  t.equal(typed.code, 0, typed.stderr);
  t.equal((await journey.idle()).state, "ok", "a refresh token from the browser does");
  await journey.ask();
  t.equal((await journey.mirror()).rows.total, 0);
  const synced = await command(t, journey.home, advised(t, typed.stdout, advice.mirrorSync("main")));
  t.match(synced, { code: 0, stdout: /main: 1 row/ });
});

longTest(t, "a login replaces a dead token of config.yaml", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now });
  const { email, password } = double.login;
  const lines = [`kind: sub2api`, `url: ${double.url}`, `login: { refresh_token: ${double.refreshToken()} }`];
  const journey = await startBeside(t, double, clock, { console: lines });
  t.equal((await journey.idle()).state, "ok");
  clock.pass(2 * HOUR);
  t.equal((await journey.sync()).state, "ok");
  double.endSessions("all");
  clock.pass(HOUR);
  t.equal((await journey.sync()).state, "login-needed");
  t.match(await journey.control("POST", "/login/main", { email, password }), { state: "done" });
  const status = await journey.idle();
  t.equal(status.state, "ok", status.why ?? "");
});

t.test("a proxy that is added in front of a console needs trust", async (t) => {
  const journey = await startJourney(t, "one-api");
  t.equal((await journey.idle()).state, "ok");
  const proxy = await startConnectProxy(t);
  await journey.edit(journey.config({ gateway: [`proxy: "${proxy.url}"`] }));
  const held = await journey.sync();
  t.match(held, { state: "needs-trust", next: "keybearer trust main" }, `${held.state} ${held.why}`);
  t.match(held.why, `proxy ${proxy.url}`);
  t.strictSame(proxy.heads, [], "nothing was sent through it");
});

longTest(t, "the tokens of a login are not sent through a proxy that is added later", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now });
  const { email, password } = double.login;
  const journey = await startBeside(t, double, clock, { console: bare(double) });
  await journey.idle();
  t.match(await journey.control("POST", "/login/main", { email, password }), { state: "done" });
  t.equal((await journey.idle()).state, "ok");
  const proxy = await startConnectProxy(t);
  await journey.edit(journey.config({ console: bare(double), gateway: [`proxy: "${proxy.url}"`] }));
  const status = await journey.sync();
  t.equal(status.state, "login-needed", `${status.state} ${status.why}`);
  t.match(status.why, `config.yaml now says ${double.url} → proxy ${proxy.url}`);
  t.notOk(
    proxy.heads.some((head) => /authorization|token/i.test(head)),
    "no secret was sent through it",
  );
});

for (const name of oneOf(["new-api v1.0.0-rc.25", "one-api"] as const, "new-api v1.0.0-rc.25")) {
  t.test(`${name}: an access token that config.yaml sends to another address needs trust`, async (t) => {
    const journey = await startJourney(t, name);
    t.equal((await journey.idle()).state, "ok");
    const other = await startConsole(t, name, { now: journey.clock.now });
    other.addKey({ name: "codex", key: journey.codex.key });
    const there = journey.console.config.map((line) => line.replace(journey.console.url, other.url));
    await journey.edit(journey.config({ console: there }));
    const held = await journey.sync();
    t.match(held, { state: "needs-trust", next: "keybearer trust main" }, `${held.state} ${held.why}`);
    t.match(held.why, new RegExp(new URL(other.url).host));
    t.strictSame(
      other.asked.filter(({ credential }) => credential),
      [],
      "nothing was sent there",
    );
    t.equal((await journey.ask()).status, 200, "requests go on");
    const seen = await journey.control<object[]>("GET", "/held/main");
    t.equal(seen.length, 1);
    t.match(await journey.control("POST", "/trust/main", seen), { problems: [] });
    const trusted = await journey.sync();
    t.equal(trusted.state, "ok", trusted.why ?? "");
    t.ok(other.asked.some(({ credential }) => credential));
  });

  t.test(
    `${name}: a login with another access token than in config.yaml says which one counts`,
    async (t) => {
      const journey = await startJourney(t, name);
      const { accessToken, user } = journey.console.login;
      const wrong = journey.console.config.map((line) => line.replace(accessToken, "pat0000000000000000"));
      await journey.edit(journey.config({ console: wrong }));
      const refused = await journey.sync();
      t.match(refused.state, /^login-/, refused.why ?? "");
      const answer = await journey.control<LoginAnswer>("POST", "/login/main", {
        access_token: accessToken,
        user,
      });
      const status = await journey.idle();
      t.ok(
        status.state === "ok" || (answer.state === "failed" && /config\.yaml/.test(answer.problem ?? "")),
        `${answer.state} ${answer.problem}: ${status.state} ${status.why}`,
      );
    },
  );
}

t.test("the kind of a console is detected and logged if config.yaml does not have it", async (t) => {
  for (const name of oneOf(["sub2api", "new-api v0.13.2", "one-api"] as const, "sub2api")) {
    const clock = heldClock();
    const double = await startConsole(t, name, { now: clock.now });
    const lines = double.config.filter((line) => !line.startsWith("kind"));
    const journey = await startBeside(t, double, clock, { console: lines });
    const status = await journey.idle();
    t.match(
      status,
      { state: "ok", kind: double.kind, detected: true },
      `${name} ${status.state} ${status.why}`,
    );
    t.equal(journey.logged(new RegExp(`console kind: ${double.kind}`)).length, 1);
    clock.pass(DAY);
    t.equal((await journey.sync()).state, "ok");
  }
});

t.test("a first login works without kind and login in config.yaml", async (t) => {
  const typed = {
    sub2api: ({ login }: ConsoleDouble) => `${login.email}\n${login.password}\n`,
    "new-api v0.13.2": ({ login }: ConsoleDouble) => `${login.accessToken}\n${login.user}\n`,
    "one-api": ({ login }: ConsoleDouble) => `${login.accessToken}\n`,
  };
  for (const name of oneOf(["sub2api", "new-api v0.13.2", "one-api"] as const, "new-api v0.13.2")) {
    const clock = heldClock();
    const double = await startConsole(t, name, { now: clock.now });
    // Unreachable at the start: the login must not wait for the next try, which may be an hour away.
    double.fault = "500";
    const journey = await startBeside(t, double, clock, { console: [`url: ${double.url}`] });
    t.equal((await journey.idle()).state, "failing", name);
    double.fault = null;
    const ended = await command(t, journey.home, ["mirror", "login"], { input: typed[name](double) });
    t.equal(ended.code, 0, `${name}: ${ended.stderr}`);
    const status = await journey.idle();
    t.match(status, { state: "ok", kind: double.kind, detected: true }, `${name}: ${status.why}`);
    await journey.ask();
    await journey.sync();
    t.equal((await journey.mirror()).rows.by_id, 1, name);
  }
});

longTest(t, "the kind is known before the first login", async (t) => {
  for (const name of ["sub2api", "one-api"] as const) {
    const clock = heldClock();
    const double = await startConsole(t, name, { now: clock.now });
    const journey = await startBeside(t, double, clock, { console: [`url: ${double.url}`] });
    t.match(await journey.idle(), { state: "login-needed", kind: double.kind, detected: true }, name);
  }
});
