import t, { type Test } from "tap";
import { readLift } from "../../src/cli/tools/lift.ts";
import type { AllowanceAnswer, AllowanceRequest } from "../../src/control/routes.ts";
import { command, newHome } from "../doubles/command.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { atTerminal, hasTerminal } from "../doubles/terminal.ts";

/** Noon, local time: a day may begin at any hour of UTC. */
const NOW = new Date(2026, 10, 15, 12).getTime();

t.test("what is lifted is read as in config.yaml, and money without its sign too", async (t) => {
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

t.test("what cannot be meant is told with what to write", async (t) => {
  const faults: [Parameters<typeof readLift>[0], RegExp][] = [
    [{}, /one of --requests 50, --tokens 200k or --spend 5/],
    [{ spend: "5", tokens: "1k" }, /one of --requests/],
    [{ until: "18:00" }, /one of --requests/],
    // What a shell makes of $5 and $50.
    [{ spend: "" }, /without the sign/],
    [{ spend: "0" }, /above zero: write dollars without the sign/],
    [{ spend: "-5" }, /without the sign/],
    [{ spend: "5k" }, /without the sign/],
    [{ spend: "0.0000001" }, /without the sign/],
    [{ requests: "0" }, /above zero/],
    [{ requests: "-1" }, /above zero/],
    [{ requests: "1e3" }, /above zero/],
    [{ tokens: "$5" }, /above zero/],
    [{ tokens: "" }, /above zero/],
    [{ spend: "5", until: "2026-11-14" }, /over already/],
    [{ spend: "5", until: "2026-11-01T10:00Z" }, /over already/],
    [{ spend: "5", until: "25:00" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "2026-02-30" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "tomorrow" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "2026-11-16T18:00" }, /18:00, 2026-11-16/],
    [{ spend: "5", until: "" }, /18:00, 2026-11-16/],
  ];
  for (const [options, words] of faults)
    t.match(readLift(options, NOW), { fault: words }, JSON.stringify(options));
});

/** A control socket that answers lifts and writes them down. */
async function startControl(t: Test, answer: (lift: AllowanceRequest) => AllowanceAnswer) {
  const home = await newHome(t);
  const asked: AllowanceRequest[] = [];
  await serveControls(t, home, {
    allow(name, lift) {
      asked.push(lift);
      return name === "codex" ? answer(lift) : null;
    },
  });
  return { home, asked };
}

const given = ({ kind, amount, until }: AllowanceRequest): AllowanceAnswer => ({
  tool: "codex",
  levels: [
    {
      limit: "requests",
      per: "minute",
      used: 3,
      held: 0,
      most: 60,
      extra: 0,
      resets_at: Date.now() + 30_000,
    },
    {
      limit: kind,
      per: "day",
      used: 4_100_000,
      held: 0,
      most: 5_000_000 + amount,
      extra: amount,
      resets_at: until,
    },
  ],
  problem: null,
});

t.test("without a terminal nothing is lifted, whatever is typed into it", async (t) => {
  const { home, asked } = await startControl(t, given);
  for (const input of ["yes\n", ""]) {
    const { code, stdout, stderr } = await command(t, home, ["tools", "lift", "codex", "--spend", "5"], {
      input,
    });
    t.strictSame({ code, stdout }, { code: 2, stdout: "" });
    t.match(stderr, /wants a person at a terminal\. open one and type: keybearer tools lift codex/);
  }
  t.equal((await command(t, home, ["tools", "lift", "codex"])).code, 2);
  t.equal((await command(t, home, ["tools", "lift"])).code, 2);
  t.strictSame(asked, []);
});

t.test("at a terminal it is asked of the daemon, and what the limit is now is told", async (t) => {
  if (!hasTerminal(t)) return;
  const { home, asked } = await startControl(t, given);
  const once = await atTerminal(t, home, "tools", "lift", "codex", "--spend", "5").ended;
  t.equal(once.code, 0);
  t.match(once.stdout, /codex has \$5\.00 more\r\n {4}spend\/day +\S+ +\$4\.10\/\$5\.00\+\$5\.00\r\n$/);
  t.notMatch(once.stdout, /requests\/minute/, "only what was lifted");
  t.strictSame(asked, [{ kind: "spend", amount: 5_000_000, until: null }]);

  const later = await atTerminal(
    t,
    home,
    "tools",
    "lift",
    "codex",
    "--tokens",
    "200k",
    "--until",
    "2099-12-31",
  ).ended;
  t.equal(later.code, 0);
  t.match(later.stdout, /codex has 200,000 tokens more in each day until the end of 2099-12-31\r\n/);
  t.strictSame(asked[1], { kind: "tokens", amount: 200_000, until: new Date(2100, 0, 1).getTime() });
});

t.test("a lift that the daemon does not give, or that nobody is there to give, fails in words", async (t) => {
  if (!hasTerminal(t)) return;
  const problem = "tool codex has no limit on tokens: nothing to lift";
  const { home } = await startControl(t, () => ({ tool: "codex", levels: [], problem }));
  const ends: [string, string[], number, string | RegExp][] = [
    [home, ["codex", "--tokens", "5k"], 1, problem],
    [home, ["nobody", "--tokens", "5k"], 1, /there is no tool nobody/],
    [home, ["codex", "--tokens", "5k", "--spend", "5"], 2, /one of/],
    [await newHome(t), ["codex", "--tokens", "5k"], 1, /keybearer is not running → keybearer run/],
  ];
  for (const [where, args, code, words] of ends) {
    const ended = await atTerminal(t, where, "tools", "lift", ...args).ended;
    t.equal(ended.code, code, args.join(" "));
    t.match(ended.stdout, words);
    t.notMatch(ended.stdout, /^\s+at |\bmore\b/m);
  }
});
