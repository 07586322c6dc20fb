import t, { type Test } from "tap";
import { readLift } from "../../src/cli/tools/lift.ts";
import type { AllowanceRequest } from "../../src/control/routes.ts";
import { type Problem, withNext } from "../../src/core/display.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

/** Noon, local time: a day may begin at any hour of UTC. */
const NOW = new Date(2026, 10, 15, 12).getTime();

t.test("an amount is read as in config.yaml, and money also without its sign", async (t) => {
  const lifts: [Parameters<typeof readLift>[0], Partial<AllowanceRequest>][] = [
    [{ spend: "5" }, { kind: "spend", amount: 5_000_000 }],
    [{ spend: "0.50" }, { kind: "spend", amount: 500_000 }],
    [{ spend: "$5" }, { kind: "spend", amount: 5_000_000 }],
    [{ spend: "0.000001" }, { kind: "spend", amount: 1 }],
    [{ requests: "50" }, { kind: "requests", amount: 50 }],
    [{ tokens: "200k" }, { kind: "tokens", amount: 200_000 }],
    [{ tokens: "1.5M" }, { kind: "tokens", amount: 1_500_000 }],
  ];
  for (const [options, lift] of lifts) t.strictSame(readLift(options, NOW), { ...lift, until: null });
});

t.test("until is the next such time of day, the end of a day, or a moment", async (t) => {
  const times: [string, number][] = [
    ["18:00", new Date(2026, 10, 15, 18).getTime()],
    ["12:01", new Date(2026, 10, 15, 12, 1).getTime()],
    ["12:00", new Date(2026, 10, 16, 12).getTime()],
    ["9:30", new Date(2026, 10, 16, 9, 30).getTime()],
    ["00:00", new Date(2026, 10, 16).getTime()],
    ["2026-11-15", new Date(2026, 10, 16).getTime()],
    ["2026-11-30", new Date(2026, 11, 1).getTime()],
    ["2026-12-24T18:00:00Z", Date.UTC(2026, 11, 24, 18)],
    ["2026-12-24T18:00+02:00", Date.UTC(2026, 11, 24, 16)],
  ];
  for (const [until, time] of times)
    t.strictSame(
      readLift({ spend: "5", until }, NOW),
      { kind: "spend", amount: 5_000_000, until: time },
      until,
    );
});

function refusedLift(options: Parameters<typeof readLift>[0]): Problem {
  const request = readLift(options, NOW);
  return "problem" in request ? request : { problem: "it is possible", next: null };
}

t.test("an impossible allowance is refused with what to type instead", async (t) => {
  const faults: [Parameters<typeof readLift>[0], RegExp][] = [
    [{}, /one of --requests 50, --tokens 200k or --spend 5/],
    [{ spend: "5", tokens: "1k" }, /one of --requests/],
    [{ until: "18:00" }, /one of --requests/],
    // What a shell makes of $5 and $50.
    [{ spend: "" }, /without the sign/],
    [{ spend: "0" }, /above zero → write dollars without the sign/],
    [{ spend: "-5" }, /without the sign/],
    [{ spend: "5k" }, /without the sign/],
    [{ spend: "0.0000001" }, /without the sign/],
    [{ requests: "0" }, /above zero/],
    [{ requests: "-1" }, /above zero/],
    [{ requests: "1e3" }, /above zero/],
    [{ tokens: "$5" }, /above zero/],
    [{ tokens: "" }, /above zero/],
    [{ spend: "5", until: "2026-11-14" }, /has passed already/],
    [{ spend: "5", until: "2026-11-01T10:00Z" }, /has passed already/],
    [{ spend: "5", until: "25:00" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "2026-02-30" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "tomorrow" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "2026-11-16T18:00" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "" }, /18:00, 2026-11-16/],
  ];
  for (const [options, words] of faults)
    t.match(withNext(refusedLift(options)), words, JSON.stringify(options));
});

async function startLimited(t: Test) {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools:\n  codex:\n    key: ${key}\n    token: ${freshToken().hash}\n` +
      "    limits: { requests: 60/minute, spend: [$5/day, $60/month] }\n",
  );
  const { daemon } = await serveIn(t, home);
  const extras = async () => {
    const { tools } = await daemon.status();
    return tools[0]?.limits.map(({ limit, extra }) => `${limit} ${extra}`).join(", ");
  };
  return { home, daemon, extras };
}

t.test("without a terminal no allowance is given, with any input", async (t) => {
  const { home, extras } = await startLimited(t);
  for (const input of ["yes\n", ""]) {
    const args = ["tools", "lift", "codex", "--spend", "5"];
    const { code, stdout, stderr } = await command(t, home, args, { input });
    t.strictSame({ code, stdout }, { code: 2, stdout: "" });
    t.match(stderr, /needs a person at a terminal\. open one and type: keybearer tools lift codex/);
  }
  t.equal((await command(t, home, ["tools", "lift", "codex", "--take-back"])).code, 2);
  const typed = await command(t, home, ["tools", "lift", "codex", "--tokens", "5k", "--until", "18:00"]);
  t.match(typed.stderr, /type: keybearer tools lift codex --tokens 5k --until 18:00$/m);
  t.equal((await command(t, home, ["tools", "lift", "codex"])).code, 2);
  t.equal((await command(t, home, ["tools", "lift"])).code, 2);
  t.equal(await extras(), "requests 0, spend 0, spend 0");
});

t.test("at a terminal lift shows the limits, asks, gives, and takes back for good", async (t) => {
  const { home, daemon, extras } = await startLimited(t);
  const answer = async (args: readonly string[], question: RegExp, text: string) => {
    const person = atScreen(t, home, ["tools", "lift", "codex", ...args]);
    await person.says(question);
    person.type(text);
    return person.ended;
  };
  const no = await answer(["--spend", "5"], /give codex \$5\.00 more\? \[y\/N\]/, "\r");
  t.equal(no.code, 1);
  t.match(no.stdout, /spend\/day .*\$0\/\$5\.00/);
  t.match(no.stdout, /not given; nothing changed/);
  t.notMatch(no.stdout, /requests\/minute/, "only the limit in question");
  t.equal(await extras(), "requests 0, spend 0, spend 0");

  const yes = await answer(["--spend", "5"], /\[y\/N\]/, "y\r");
  t.equal(yes.code, 0);
  t.match(yes.stdout, /codex has \$5\.00 more\n {4}spend\/day .*\$0\/\$5\.00\+\$5\.00/);
  t.match(yes.stdout, /to take it back: keybearer tools lift codex --take-back/);
  t.equal(await extras(), "requests 0, spend 5000000, spend 5000000");

  const again = await answer(["--spend", "1", "--until", "2099-12-31"], /\[y\/N\]/, "n\r");
  t.match(again.stdout, /codex was already given \$5\.00 more\n/);
  t.match(again.stdout, /\$1\.00 more in each day and each\s+month until the end of\s+2099-12-31\?/);

  const kept = await answer(["--take-back"], /take back the extra allowances of codex\? \[Y\/n\]/, "n\r");
  t.equal(kept.code, 1);
  t.equal(await extras(), "requests 0, spend 5000000, spend 5000000");
  const back = await answer(["--take-back"], /\[Y\/n\]/, "\r");
  t.equal(back.code, 0);
  t.match(back.stdout, /codex has its limits of config\.yaml again\n {4}spend\/day .*\$0\/\$5\.00 /);
  t.equal(await extras(), "requests 0, spend 0, spend 0");
  const none = await atScreen(t, home, ["tools", "lift", "codex", "--take-back"]).ended;
  t.match(none, { code: 0, stdout: /codex has no extra allowance/ });
  await daemon.stop();
  const next = await serveIn(t, home);
  const { tools } = await next.daemon.status();
  t.strictSame(
    tools[0]?.limits.map(({ extra }) => extra),
    [0, 0, 0],
  );
});

t.test("a lift that cannot be given fails and says why", async (t) => {
  const { home } = await startLimited(t);
  const ends: [string, string[], number, string | RegExp][] = [
    [home, ["codex", "--tokens", "5k"], 1, /tool codex has no limit on tokens/],
    [home, ["nobody", "--tokens", "5k"], 1, /there is no tool nobody; the tools are codex/],
    [home, ["codex", "--tokens", "5k", "--spend", "5"], 2, /one of/],
    [home, ["codex", "--take-back", "--spend", "5"], 2, /leave the amount out/],
    [await newHome(t), ["codex", "--tokens", "5k"], 1, /keybearer is not running → keybearer run/],
  ];
  for (const [where, args, code, words] of ends) {
    const ended = await atScreen(t, where, ["tools", "lift", ...args]).ended;
    t.equal(ended.code, code, args.join(" "));
    t.match(ended.stdout, words);
    t.notMatch(ended.stdout, /^\s+at |\bmore\b/m);
  }
});
