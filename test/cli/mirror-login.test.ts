import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { askCredentials, cannotLogIn, type LoginOptions } from "../../src/cli/mirror/login.ts";
import type { Prompter } from "../../src/cli/ui/prompts.ts";
import { withNext } from "../../src/core/display.ts";
import type { MirrorReport } from "../../src/mirror/report/shape.ts";
import { command } from "../doubles/command.ts";
import { mirrorReport, type Said, startMirrorControl } from "../doubles/mirror-control.ts";
import { atScreen } from "../doubles/screen.ts";
import { atTerminal, hasTerminal } from "../doubles/terminal.ts";

type Facts = Partial<Omit<MirrorReport, "rows">>;

const PASSWORD = " pass word-canary ";

async function start(t: Test, more: Facts = {}, said: Said = {}, config: string | null = null) {
  const files = { path: "/nowhere/config.yaml" };
  const control = await startMirrorControl(t, {
    "GET /mirror": () => [mirrorReport(Date.now(), { state: "login-needed", ...more })],
    "GET /status": () => ({ config: files }),
    "POST /login/main": () => ({ state: "done", kind: "sub2api", problem: null }),
    ...said,
  });
  if (config !== null) {
    const folder = join(control.home, "elsewhere");
    await mkdir(folder, { mode: 0o700 });
    files.path = join(folder, "config.yaml");
    await writeFile(files.path, config, { mode: 0o600 });
  }
  const sent = () =>
    control.asked.filter(({ route }) => route === "POST /login/main").map(({ body }) => body);
  return { ...control, sent };
}

const CONFIG = (login: string) => `gateways:
  main: { base_url: "https://gateway.example.com/v1", console: { login: ${login} } }
tools: { codex: { key: env:NOT_SET_HERE } }
`;

/** A program that writes these lines. */
function lines(...given: readonly string[]): Prompter {
  const left = [...given];
  const next = async () => left.shift() ?? null;
  return { interactive: false, text: next, secret: next, close: () => {} };
}

const NOW = Date.now();

t.test("each kind of console needs its own values, one per line", async (t) => {
  const kinds: [Facts, LoginOptions, string[], object][] = [
    [{ kind: "sub2api" }, {}, [" me@x.org ", PASSWORD], { email: "me@x.org", password: PASSWORD }],
    [{ kind: "sub2api" }, { refreshToken: true }, [" rt-canary "], { refresh_token: "rt-canary" }],
    [{ kind: "new-api" }, {}, ["at-canary ", "42"], { access_token: "at-canary", user: "42" }],
    [{ kind: "one-api" }, {}, ["at-canary"], { access_token: "at-canary", user: null }],
    [{ kind: "litellm" }, {}, ["sk-canary"], { access_token: "sk-canary", user: null }],
  ];
  for (const [more, options, input, credentials] of kinds) {
    const found = mirrorReport(NOW, more);
    t.equal(cannotLogIn(found, options), null);
    t.strictSame(await askCredentials(found, options, {}, lines(...input)), { credentials });
  }
});

t.test("without a terminal the values are read from stdin and not printed", async (t) => {
  const { home, sent } = await start(t);
  const input = `me@example.com\r\n${PASSWORD}\n`;
  const { code, stdout, stderr } = await command(t, home, ["mirror", "login"], { input });
  t.equal(code, 0, stderr);
  t.strictSame(sent(), [{ email: "me@example.com", password: PASSWORD }]);
  t.equal(stdout, "logged in to main. a refresh token is kept, no password → keybearer mirror sync main\n");
  t.equal(stderr, "");
});

t.test("values in the daemon's config.yaml are not asked for", async (t) => {
  const mail = await start(t, {}, {}, CONFIG("{ email: me@example.com }"));
  await command(t, mail.home, ["mirror", "login"], { input: "secret-canary\n" });
  t.strictSame(mail.sent(), [{ email: "me@example.com", password: "secret-canary" }]);
  const newApi = mirrorReport(NOW, { kind: "new-api" });
  const given = await askCredentials(newApi, {}, { user: "7" }, lines("at-canary"));
  t.strictSame(given, { credentials: { access_token: "at-canary", user: "7" } });
});

t.test("a second factor is asked for if the console needs one", async (t) => {
  const wants = { state: "second-factor", kind: "sub2api", problem: null };
  const answers: Said = {
    "POST /login/main": (body) => {
      const { code } = body as { code?: string };
      if (code === undefined) return wants;
      if (code === "123456") return { ...wants, state: "done" };
      return { ...wants, state: "failed", problem: "the code is wrong" };
    },
  };
  const right = await start(t, {}, answers);
  t.equal((await command(t, right.home, ["mirror", "login"], { input: "me\npw\n123 456\n" })).code, 0);
  t.strictSame(right.sent(), [{ email: "me", password: "pw" }, { code: "123456" }]);
  const wrong = await start(t, {}, answers);
  const refused = await command(t, wrong.home, ["mirror", "login"], { input: "me\npw\n000000\n123456\n" });
  t.match(refused, { code: 1, stderr: "not logged in: the code is wrong\n" });
  t.equal(wrong.sent().length, 2, "a program is not asked twice");
  const none = await start(t, {}, answers);
  const missing = await command(t, none.home, ["mirror", "login"], { input: "me\npw\n" });
  t.match(missing, { code: 1, stderr: /asks for a second factor, and none was given/ });
});

t.test("a console of an unknown kind, and an option of another kind, are refused", async (t) => {
  const cases: [Facts, LoginOptions, RegExp][] = [
    [{ kind: null }, {}, /not known yet → write kind: below gateways\.main\.console/],
    [{ kind: null, why: "slow", next: "wait" }, {}, /not known yet \(slow\) → wait$/],
    [{ kind: "new-api" }, { refreshToken: true }, /--refresh-token is only for sub2api/],
  ];
  for (const [more, options, words] of cases) {
    const refused = cannotLogIn(mirrorReport(NOW, more), options);
    t.match(refused === null ? "" : withNext(refused), words);
  }
  const { home, sent } = await start(t, { kind: "new-api" });
  const ended = await command(t, home, ["mirror", "login", "--refresh-token"], { input: "a\nb\n" });
  t.match(ended, { code: 1, stdout: "", stderr: /--refresh-token is only for sub2api/ });
  t.strictSame(sent(), []);
});

t.test("a missing or invalid value is reported without its text", async (t) => {
  const cases: [Facts, string[], RegExp][] = [
    [{ kind: "new-api" }, ["at-canary", "canary"], /the user id is a number/],
    [{ kind: "new-api" }, ["at-canary"], /needed.*access token, user id/],
    [{ kind: "one-api" }, [" "], /needed.*access token/],
    [{}, [], /needed.*email, password/],
    [{}, ["me"], /needed.*password/],
    [{}, ["me", ""], /needed.*password/],
  ];
  for (const [more, input, words] of cases) {
    const found = mirrorReport(NOW, more);
    const given = await askCredentials(found, {}, {}, lines(...input));
    t.match(given, { problem: words });
    t.notMatch(JSON.stringify(given), /canary/);
  }
  const { home, sent } = await start(t);
  t.equal((await command(t, home, ["mirror", "login"], { input: "me\n" })).code, 2);
  t.strictSame(sent(), []);
});

t.test("with several consoles the command needs a name", async (t) => {
  const now = Date.now();
  const { home } = await startMirrorControl(t, {
    "GET /mirror": () => [mirrorReport(now, { gateway: "a" }), mirrorReport(now, { gateway: "b" })],
  });
  const { code, stderr } = await command(t, home, ["mirror", "login"]);
  t.equal(code, 2);
  t.match(stderr, "choose one:\nkeybearer mirror login a\nkeybearer mirror login b\n");
});

t.test("the answer of the console to a login is printed", async (t) => {
  const problem = await start(
    t,
    {},
    {
      "POST /login/main": () => ({ state: "failed", kind: "sub2api", problem: "email or password is wrong" }),
    },
  );
  const wrong = await command(t, problem.home, ["mirror", "login"], { input: "me\npw\n" });
  t.match(wrong, { code: 1, stdout: "", stderr: "not logged in: email or password is wrong\n" });
  const error = await start(
    t,
    {},
    { "POST /login/main": () => new Error("the console is held: keybearer trust main") },
  );
  const held = await command(t, error.home, ["mirror", "login"], { input: "me\npw\n" });
  t.match(held, { code: 1, stderr: "not logged in: the console is held: keybearer trust main\n" });
});

t.test("a secret is not accepted as an argument", async (t) => {
  const { home, sent } = await start(t);
  for (const args of [["main", "pw"], ["--password", "pw"], ["--refresh-token=pw"]])
    t.equal((await command(t, home, ["mirror", "login", ...args])).code, 2, args.join(" "));
  t.strictSame(sent(), []);
});

t.test("at a terminal a secret is not shown, and can be corrected while it is typed", async (t) => {
  if (!hasTerminal(t)) return;
  const { home, sent } = await start(t);
  const running = atTerminal(t, home, "mirror", "login");
  await running.says(/main: sub2api \(detected\) at https:\/\/gateway\.example\.com\r\n/);
  await running.says(/email: /);
  running.child.stdin?.write("me@example.com\r");
  await running.says(/password of me@example\.com: /);
  running.child.stdin?.write("pw-canarx\u007fy\r");
  const { code, stdout } = await running.ended;
  t.equal(code, 0);
  t.strictSame(sent(), [{ email: "me@example.com", password: "pw-canary" }]);
  t.notMatch(stdout, /canar|\*/);
  t.match(stdout, /logged in to main/);
});

t.test(
  "at a terminal a mistyped code is asked for again, and Ctrl-C ends it and sends nothing more",
  async (t) => {
    let wrong = 0;
    const { home, sent } = await start(
      t,
      {},
      {
        "POST /login/main": (body) => {
          const problem = (body as { code?: string }).code === undefined ? null : "the code is wrong";
          if (problem !== null) wrong += 1;
          return { state: "second-factor", kind: "sub2api", problem };
        },
      },
    );
    const running = atScreen(t, home, ["mirror", "login"]);
    await running.says(/email: /);
    running.type("me\r");
    await running.says(/password of me: /);
    running.type("pw\r");
    await running.says(/the code: /);
    running.type("000111\r");
    await running.says(/the code is wrong\n.*the code: /);
    running.type("\u0003");
    const { code, stdout } = await running.ended;
    t.equal(code, 1);
    t.equal(wrong, 1);
    t.equal(sent().length, 2);
    t.notMatch(stdout, /000111/);
  },
);
