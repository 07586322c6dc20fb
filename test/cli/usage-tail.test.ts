import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import t, { type Test } from "tap";
import { recordLine } from "../../src/cli/usage/record-line.ts";
import { followTail } from "../../src/control/client.ts";
import { Tail } from "../../src/control/tail.ts";
import { advice } from "../../src/core/advice.ts";
import { EXPORTED } from "../../src/usage/record.ts";
import { advised, command, newHome, saveConfig, start } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { CURRENT } from "../doubles/no-usage.ts";
import { NO_USAGE, record } from "../doubles/records.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { atWideTerminal, hasTerminal } from "../doubles/terminal.ts";
import { until } from "../doubles/until.ts";

process.env.TZ = "UTC";

/** A home with one tool that calls the sandbox. */
async function prepare(t: Test) {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "tail", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${key.reveal()}, token: "${hash}" } }\n`,
  );
  return { home, token, key: key.reveal() };
}

/** A control socket that can be followed, and behind it only an index that is brought up to date when asked. */
async function serveTail(t: Test, home: string) {
  const records = new Tail();
  const indexed = async () => {
    catchUp(join(home, "state"));
    return CURRENT;
  };
  const control = await serveControls(t, home, {
    tail: records,
    usage: { catchUp: indexed, rebuild: indexed },
  });
  return { records, close: () => control.close() };
}

const CHAT = "/v1/chat/completions";

function idsIn(text: string): string[] {
  return [...text.matchAll(/^\{"id":"(\w+)"/gm)].map(([, id]) => id ?? "");
}

t.test("tail begins with the last records, then follows live, and Ctrl-C ends it with code 0", async (t) => {
  const { home, token, key } = await prepare(t);
  const { url } = await serveIn(t, home);
  const ask = (model?: string) => post(`${url}${CHAT}`, token, hello(model));
  for (let number = 0; number < 3; number += 1) t.equal((await ask()).status, 200);
  const tail = start(t, home, ["usage", "tail", "-n", "2", "--json"]);
  const none = await command(t, home, ["usage", "show", "01ZZZZZZ"]);
  const words = start(t, home, advised(t, none.stderr, advice.usageTail()));
  await until("the last ones are shown", () => idsIn(tail.stdout()).length === 2);
  await until("here as well", () => words.stdout().split("\n").length === 4);
  await ask();
  t.equal((await post(`${url}${CHAT}`, "kb_unknown", hello())).status, 401);
  await until("both are shown live", () => idsIn(tail.stdout()).length === 4);
  const shown = tail
    .stdout()
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  t.equal(new Set(shown.map(({ id }) => id)).size, 4, "each once");
  for (const one of shown) t.same(Object.keys(one), EXPORTED);
  t.match(shown[2], { tool: "codex", end: "complete", status: 200, model: "sandbox-small" });
  t.match(shown[3], { tool: null, end: "refused", status: 401 });
  await words.says(
    /^\d\d:\d\d:\d\d 200 codex +sandbox-small +\$\S+ +\d+.* m?s \d+ in.*, \d+ out, first byte \d/m,
  );
  await words.says(/^\d\d:\d\d:\d\d 401 \(unknown\) .* refused: token-/m);
  for (const one of [tail, words]) {
    one.child.kill("SIGINT");
    const { code, stdout, stderr } = await one.ended;
    t.equal(code, 0);
    t.notOk(`${stdout}${stderr}`.includes(key) || `${stdout}${stderr}`.includes(token));
  }
});

longTest(t, "tail waits for a daemon, survives its restart, and prints what it missed", async (t) => {
  const { home, token } = await prepare(t);
  const tail = start(t, home, ["usage", "tail", "--json"]);
  await tail.logs(/^keybearer is not running; waiting for it \(Ctrl-C ends\)\n/);
  const first = await serveIn(t, home);
  await tail.logs(/following keybearer again\n/);
  await post(`${first.url}${CHAT}`, token, hello());
  await until("the first is shown", () => idsIn(tail.stdout()).length === 1);

  // While it stands still, it misses what happens on both sides of the restart.
  tail.child.kill("SIGSTOP");
  await post(`${first.url}${CHAT}`, token, hello());
  await first.daemon.stop();
  const second = await serveIn(t, home);
  await post(`${second.url}${CHAT}`, token, hello());
  tail.child.kill("SIGCONT");
  await tail.logs(/keybearer stopped; waiting for it[\s\S]*following keybearer again\n/);
  await until("all three are shown", () => idsIn(tail.stdout()).length === 3);
  await post(`${second.url}${CHAT}`, token, hello());
  await until("and the next one", () => idsIn(tail.stdout()).length === 4);
  const ids = idsIn(tail.stdout());
  t.equal(new Set(ids).size, 4, "each once");
  t.same(ids, [...ids].sort(), "in the order in which they began");
  tail.child.kill("SIGINT");
  t.equal((await tail.ended).code, 0);
});

t.test("a tail whose reader does not read takes little memory, and says what was not shown", async (t) => {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  const { records } = await serveTail(t, home);
  writeJournal(join(home, "state", "usage"), [record(0)]);

  const env = { NODE_OPTIONS: "--max-old-space-size=32" };
  const tail = start(t, home, ["usage", "tail", "--json"], { env });
  await tail.says(/"id"/);
  tail.child.stdout?.pause();
  const sent = 12_000;
  for (let number = 1; number <= sent; number += 1) {
    records.notify(record(number, { endpoint: `/v1/${"x".repeat(3000)}` }));
    if (number % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  tail.child.stdout?.resume();
  const lost = () =>
    [...tail.stderr().matchAll(/^(\d+) records came too fast/gm)].reduce(
      (sum, [, count]) => sum + Number(count),
      0,
    );
  await until(
    "everything is shown or counted as lost",
    () => idsIn(tail.stdout()).length - 1 + lost() === sent,
  );
  t.ok(lost() > 0);
  records.notify(record(sent + 1));
  await tail.says(new RegExp(`0${sent + 1}"`));
  tail.child.stdout?.destroy();
  records.notify(record(sent + 2));
  const { code, stderr } = await tail.ended;
  t.equal(code, 0, "and a reader that goes away ends it");
  t.notMatch(stderr, /EPIPE|heap/);
});

t.test("when too many follow already, tail says so and ends", async (t) => {
  const { home } = await prepare(t);
  await serveIn(t, home);
  const socket = join(home, "run", "control.sock");
  let following = 0;
  for (let number = 0; number < 16; number += 1) {
    await followTail(socket).next();
    following += 1;
  }
  await until("they follow", () => following === 16);
  const { code, stderr } = await command(t, home, ["usage", "tail"]);
  t.equal(code, 1);
  t.match(stderr, /^16 others are following already/);
});

longTest(
  t,
  "if tail missed more records than it prints later, it shows the newest and says how to get the rest",
  async (t) => {
    const home = await newHome(t);
    mkdirSync(join(home, "state"), { mode: 0o700 });
    const folder = join(home, "state", "usage");
    const at = Date.UTC(2026, 10, 1);
    const made = (number: number) => record(number, { started_at: at + number * 1000 });
    const running = { end: null, ended_at: null, first_byte_at: null, status: null } as const;
    writeJournal(folder, [made(1), { ...made(2), ...running }]);
    const { records, close } = await serveTail(t, home);
    const tail = start(t, home, ["usage", "tail", "--json"]);
    await until("the first is shown", () => idsIn(tail.stdout()).length === 1);
    records.notify(made(3));
    await until("and the live one", () => idsIn(tail.stdout()).length === 2);

    const missed = Array.from({ length: 1500 }, (_, number) => made(number + 4));
    writeJournal(folder, [made(2), made(3), ...missed]);
    await close();
    await tail.logs(/more were missed/);
    await until("the newest are shown", () => idsIn(tail.stdout()).length === 1003);
    t.same(
      idsIn(tail.stdout()).slice(2),
      [made(2), ...missed.slice(500)].map(({ id }) => id),
      "those, and what had begun before; what was shown live is not shown again",
    );
    t.match(tail.stderr(), /^500 more were missed: /m);
    const args = advised(t, tail.stderr(), advice.usageExport(new Date(at + 4000).toISOString()));
    const exported = await command(t, home, args);
    t.same(
      JSON.parse(exported.stdout).map(({ id }: { id: string }) => id),
      missed.map(({ id }) => id),
      "which has them all",
    );
    tail.child.kill("SIGINT");
    t.equal((await tail.ended).code, 0);
  },
);

/** A request that passed, one that keybearer refused, and one that the gateway refused. */
function someRecords() {
  return [
    record(1, { tool: "claude-code", model: "claude-sonnet-4-5" }),
    record(2, { ...NO_USAGE, end: "refused", status: 429, refusal: "rate-limited" }),
    record(3, { ...NO_USAGE, status: 401, cause: "incomplete-key", cause_detail: "key-disabled" }),
  ];
}

const SCREENS: readonly [columns: number, screen: string][] = [
  [
    80,
    `00:00:00 200 claude-code claude-sonnet-4-5 $0.0081  2.3 s 2.0k in, 342 out
00:00:00 429 codex       gpt-5.1           refused: rate-limited
00:00:00 401 codex       gpt-5.1           incomplete-key: key-disabled
`,
  ],
  [
    120,
    `00:00:00 200 claude-code    claude-sonnet-4-5        $0.0081  2.3 s 1.2k in + 800 cached, 342 out, first byte 878 ms
00:00:00 429 codex          gpt-5.1                  refused: rate-limited
00:00:00 401 codex          gpt-5.1                  incomplete-key: key-disabled
`,
  ],
];

t.test("the cost and a refusal's cause are there at 80 and 120 columns", async (t) => {
  for (const [columns, screen] of SCREENS)
    t.equal(
      `${someRecords()
        .map((one) => recordLine(one, columns))
        .join("\n")}\n`,
      screen,
    );
});

t.test("on a terminal the lines have its width, and a refusal's status is red", async (t) => {
  if (!hasTerminal(t)) return;
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), someRecords());
  // Otherwise a slow machine shows the progress of making the index.
  catchUp(join(home, "state"));
  const tail = atWideTerminal(t, home, 80, ["usage", "tail"], { TERM: "xterm-256color" });
  const [, screen = ""] = await tail.says(/^([\s\S]*)keybearer is not running/);
  tail.child.kill();
  t.match(screen, "00:00:00 \u001b[31m429\u001b[39m codex");
  t.equal(stripVTControlCharacters(screen).replaceAll("\r", ""), SCREENS[0]?.[1]);
});
