import t from "tap";
import { statusFindings } from "../../src/cli/doctor/daemon-findings.ts";
import { keysCommand } from "../../src/cli/keys.ts";
import { mirrorCommand } from "../../src/cli/mirror/command.ts";
import { diffLines, formatCompared } from "../../src/cli/mirror/diff.ts";
import { formatMirror } from "../../src/cli/mirror/report.ts";
import { formatStatus } from "../../src/cli/status.ts";
import { textWidth } from "../../src/cli/ui/text.ts";
import type { Status } from "../../src/control/status.ts";
import type { ModelFactor, PriceExplanation, ToolMoney } from "../../src/mirror/report/shape.ts";
import { command, newHome } from "../doubles/command.ts";
import { alarm, comparedRow, mirrorReport, startMirrorControl } from "../doubles/mirror-control.ts";
import { atScreen } from "../doubles/screen.ts";

process.env.TZ = "UTC";

const NOW = Date.UTC(2026, 10, 15, 14, 12);
const WIDE = 200;

const STATUS: Status = {
  version: "0.1.0",
  pid: 1,
  uptime_s: 5,
  drain_left_s: null,
  listen: ["127.0.0.1:5397"],
  sandbox: false,
  config: { path: "/home/me/config.yaml", revision: 1, loaded_at: NOW },
  problems: [],
  key_changes: [],
  events: [],
  notify: { channels: [], quiet: false, problem: null },
  shared: null,
  actions: [],
  tools: [],
  gateways: [],
  usage: {
    ...{ state: "ok", since: null, why: null, next: null, folder: "usage", bytes: 0, waiting: 0, lost: 0 },
    ...{ refusals_not_recorded: 0, warnings: [], maintained_at: null },
    index: { current: true, share: 1, rebuilding: false, waiting_for: null, damaged_lines: 0 },
  },
  machine: { node: "v22", platform: "linux-x64", memory_free: 0, rss: 0 },
  consoles: [],
  dashboard: { mode: "asked", address: null, why: null },
  metrics: null,
};

t.test("a gateway without problems has its headline, lag, counts and money", async (t) => {
  const report = mirrorReport(NOW, {
    rows: { total: 1204, by_id: 1198, presumed: 6 },
    records: { matched: 1204, differs: 0, pending: 2, missing: 0 },
    account: { balance: 8_100_000 },
    tools: [
      {
        tool: "claude-code",
        requests: 1100,
        ours_microdollars: 31_200_000,
        theirs_microdollars: 31_200_000,
        foreign: 0,
        ours_unknown: 0,
        theirs_unknown: 0,
        foreign_microdollars: 0,
        suspected: 0,
        suspected_microdollars: 0,
      },
      {
        tool: "codex",
        requests: 104,
        ours_microdollars: 2_470_000,
        theirs_microdollars: 6_110_000,
        foreign: 0,
        ours_unknown: 3,
        theirs_unknown: 0,
        foreign_microdollars: 0,
        suspected: 0,
        suspected_microdollars: 0,
      },
      {
        tool: "free",
        requests: 1,
        ours_microdollars: null,
        theirs_microdollars: 10_000,
        foreign: 0,
        ours_unknown: 1,
        theirs_unknown: 0,
        foreign_microdollars: 0,
        suspected: 0,
        suspected_microdollars: 0,
      },
    ],
    blind: ["calls that failed: sub2api lists only what was billed"],
  });
  t.equal(
    formatMirror([report], NOW, 80),
    `main, sub2api (detected) at https://gateway.example.com
1,204 rows: 1,198 by id, 6 presumed, 0 foreign; watched since 3 Nov
last sync 12 s ago, newest row 40 s old
ours: 1,204 matched, 2 pending, 0 missing

tool         requests       ours  theirs  difference
claude-code     1,100     $31.20  $31.20          $0
codex             104  $2.47 + ?   $6.11          $?
free                1         $?   $0.01          $?

balance $8.10
the alarm cannot see:
  calls that failed: sub2api lists only what was billed
`,
  );
});

t.test("the headline counts each kind of row that there is", async (t) => {
  const rows = { total: 20, by_id: 1, by_pair: 2, by_sum: 3, presumed: 0, differs: 1, pending: 4 };
  const more = { foreign_suspected: 5, before: 2, companion: 1, duplicate: 1 };
  const shown = formatMirror(
    [mirrorReport(NOW, { rows: { ...rows, ...more }, watched_since: Date.UTC(2025, 11, 31) })],
    NOW,
    WIDE,
  );
  t.match(
    shown,
    "20 rows: 1 by id, 2 by pair, 3 by sum, 0 presumed, 1 differs, 4 pending, 5 suspected foreign, 2 before, 1 companion, 1 duplicate; watched since 31 Dec 2025\n",
  );
});

t.test("certain and suspected rows are counted separately, and a suspicion is not 0 foreign", async (t) => {
  const shown = (foreign_certain: number, foreign_suspected: number, state: "ok" | "cannot-see" = "ok") =>
    /presumed, (.*);/.exec(
      formatMirror([mirrorReport(NOW, { state, rows: { foreign_certain, foreign_suspected } })], NOW, WIDE),
    )?.[1];
  t.equal(shown(0, 0), "0 foreign");
  t.equal(shown(2, 0), "2 foreign");
  t.equal(shown(2, 1), "2 foreign, 1 suspected");
  t.equal(shown(0, 1), "1 suspected foreign");
  t.equal(shown(0, 1, "cannot-see"), "1 suspected foreign");
  t.equal(shown(0, 0, "cannot-see"), "foreign not known");
  const nothing: ToolMoney = {
    tool: "codex",
    requests: 3,
    ours_microdollars: 10_000,
    theirs_microdollars: 10_000,
    ours_unknown: 0,
    theirs_unknown: 0,
    foreign: 0,
    foreign_microdollars: 0,
    suspected: 0,
    suspected_microdollars: 0,
  };
  const table = (given: Partial<ToolMoney>) =>
    formatMirror([mirrorReport(NOW, { tools: [{ ...nothing, ...given }] })], NOW, WIDE);
  const some = { foreign: 11, foreign_microdollars: 2_000_000 };
  const more = { suspected: 12, suspected_microdollars: 30_000 };
  t.match(
    table({ ...some, ...more }),
    / foreign +foreign \$ +suspected +suspected \$\n.* 11 +\$2\.00 +12 +\$0\.03\n/,
  );
  t.notMatch(table(some), "suspected $");
  t.notMatch(table(more), "foreign $");
});

t.test(
  "a suspicion has its reason, time and next step, below the certain alarms of all gateways",
  async (t) => {
    const suspected = alarm(NOW, { certain: false, reason: "a canceled request may be its own", ips: [] });
    const reports = [
      mirrorReport(NOW, { gateway: "other", alarms: [suspected] }),
      mirrorReport(NOW, { alarms: [alarm(NOW)] }),
    ];
    const shown = formatMirror(reports, NOW, WIDE);
    t.match(shown, /^ALARM {2}key …a1b2 of codex was used/);
    t.match(
      shown,
      /\n\nSUSPECTED {2}key …a1b2 of codex may have been used outside keybearer: 3 requests, \$0\.42, model gpt-5\.1, first 14:02, last 14:09\n {2}why: a canceled request may be its own\n {2}check whether you used this key elsewhere between 14:02 and 14:09; if not: keybearer tools rotate codex\n {2}once you have handled it → keybearer mirror ack main\n\nother, /,
    );
    const once = { ...suspected, first_at: suspected.last_at, count: 1, tools: ["codex", "chat"] };
    t.match(
      formatMirror([mirrorReport(NOW, { alarms: [once] })], NOW, WIDE),
      /check whether you used this key elsewhere at 14:09; if not: keybearer tools rotate codex and keybearer tools rotate chat\n/,
    );
    const old = { ...once, replaced: true };
    t.match(
      formatMirror([mirrorReport(NOW, { alarms: [old] })], NOW, WIDE),
      /if not: keybearer keys delete …a1b2\n/,
    );
  },
);

t.test("doctor warns of an unfinished change of a key", async (t) => {
  const waiting = { tool: "codex", why: "the console of main cannot be reached", next: null };
  const found = statusFindings({ ...STATUS, key_changes: [waiting] }, NOW);
  t.match(
    found.filter(({ id }) => id === "key-change"),
    [{ level: "warning", about: "tool codex", what: /not finished: the console of main cannot be reached/ }],
  );
});

t.test("doctor warns of a suspicion, and fails for an alarm", async (t) => {
  const found = (certain: boolean) => {
    const consoles = [mirrorReport(NOW, { alarms: [alarm(NOW, { certain, reason: "no ids" })] })];
    return statusFindings({ ...STATUS, consoles }, NOW).filter(({ id }) => id === "alarm");
  };
  t.match(found(true), [
    {
      level: "problem",
      what: /^ALARM key …a1b2 of codex was used outside keybearer: 3 requests/,
      next: "rotate it now: keybearer tools rotate codex; then keybearer mirror ack main",
    },
  ]);
  t.match(found(false), [
    {
      level: "warning",
      what: /^SUSPECTED key …a1b2 of codex may have been used outside keybearer: .* \(no ids\)$/,
      next: "check whether you used this key elsewhere between 14:02 and 14:09; if not: keybearer tools rotate codex; then keybearer mirror ack main",
    },
  ]);
});

t.test(
  "an alarm comes first, with key, tool, count, money, models, times, addresses and next step",
  async (t) => {
    const reports = [
      mirrorReport(NOW, { gateway: "other" }),
      mirrorReport(NOW, { alarms: [alarm(NOW)], rows: { total: 3, foreign_certain: 3 } }),
    ];
    t.match(
      formatMirror(reports, NOW, WIDE),
      /^ALARM {2}key …a1b2 of codex was used outside keybearer: 3 requests, \$0\.42, model gpt-5\.1, first 14:02, last 14:09, from 203\.0\.113\.7\n {2}rotate it now: keybearer tools rotate codex\n {2}once you have handled it → keybearer mirror ack main\n\nother, /,
    );
    const old = alarm(NOW, { replaced: true, ips: [], first_at: NOW - 86_400_000 });
    const shown = formatMirror([mirrorReport(NOW, { alarms: [old] })], NOW, WIDE);
    t.match(
      shown,
      /first 14 Nov 14:12, last 14:09\n {2}the tool has another key since; if the console still lists this one: keybearer keys delete …a1b2\n/,
    );
  },
);

t.test("machines whose records are not here yet are named, with the date on another day", async (t) => {
  const unseen_machines = [
    { machine: "desktop", since: Date.UTC(2026, 10, 3, 9, 30) },
    { machine: "laptop", since: NOW - 60_000 },
    { machine: "server", since: null },
  ];
  const shown = formatMirror([mirrorReport(NOW, { unseen_machines })], NOW, WIDE);
  t.match(shown, /^cannot see: desktop since 3 Nov 09:30, laptop since \d\d:\d\d, server since it joined$/m);
});

t.test("a console that cannot be read, or not completely, is never shown with 0 foreign", async (t) => {
  const blind = mirrorReport(NOW, {
    state: "cannot-see",
    why: "none of the 40 requests of the last day is listed",
    next: "ask the operator whether logging is on",
  });
  const shown = formatMirror([blind], NOW, WIDE);
  t.match(shown, /foreign not known/);
  t.match(shown, /^cannot see: none of the 40 requests .* → ask the operator/m);
  t.notMatch(shown, /0 foreign/);
  const never = mirrorReport(NOW, {
    state: "login-needed",
    why: "nobody is logged in",
    next: "keybearer mirror login main",
    last_sync: null,
    newest_row: null,
    watched_since: null,
    next_sync: null,
  });
  const unread = formatMirror([never], NOW, WIDE);
  t.match(
    unread,
    /its rows were never read, so nothing is known\nlogin-needed: nobody is logged in → keybearer mirror login main\nnever synced, no row seen yet\n/,
  );
  t.notMatch(unread, /0 foreign/);
  const stale = mirrorReport(NOW, {
    state: "unreachable",
    why: "cannot be reached (ECONNREFUSED)",
    last_sync: NOW - 3 * 3_600_000,
    next_sync: NOW + 600_000,
  });
  t.match(
    formatMirror([stale], NOW, WIDE),
    "unreachable: cannot be reached (ECONNREFUSED); next try in 10 min; usage since the last sync, 3 h ago, is not known",
  );
});

t.test(
  "each price that differs has a line by model, each multiplier by group, and equal ones have none",
  async (t) => {
    const model: Omit<ModelFactor, "model"> = {
      group: null,
      tier: null,
      requests: 40,
      factor: 1,
      factor_rows: 40,
      multiplier: 1.5,
      multiplier_rows: 38,
      multiplier_here: null,
      difference_microdollars: 0,
    };
    const regrouped = { group: "coding", multiplier: 2, multiplier_here: 1.5 };
    const shown = formatMirror(
      [
        mirrorReport(NOW, {
          models: [
            { ...model, model: "same" },
            { ...model, model: "rounded", factor: 1.001 },
            { ...model, model: "unpriced", factor: null },
            { ...model, model: "dear", factor: 1.2000000001, factor_rows: 39 },
            { ...model, model: "dear", group: "coding", tier: "long context", factor: 2 },
            { ...model, ...regrouped, model: "one" },
            { ...model, ...regrouped, model: "two" },
            { ...model, model: "three", multiplier_here: 1 },
          ],
        }),
      ],
      NOW,
      WIDE,
    );
    t.match(
      shown,
      "dear: the console's price is ×1.2 of the list price known here (39 rows) → prices: in config.yaml\n",
    );
    t.match(
      shown,
      "dear, long context, group coding: the console's price is ×2 of the list price known here (40 rows)\n",
    );
    t.match(
      shown,
      "group coding: the console multiplies by ×2, config.yaml says ×1.5 (76 rows) → change gateways.main.groups.coding.multiplier\n",
    );
    t.match(shown, "without a group: the console multiplies by ×1.5, config.yaml says ×1 (38 rows) → give");
    t.notMatch(shown, /same:|rounded:|unpriced:|one:|two:/);
    const providers = [
      { ...model, model: "dear", multiplier: 1.2, multiplier_here: 1 },
      { ...model, model: "cheap", multiplier: 0.9, multiplier_here: 1 },
      { ...model, model: "plain", multiplier: 1 },
    ];
    t.match(
      formatMirror([mirrorReport(NOW, { kind: "litellm", models: providers })], NOW, WIDE),
      "without a group: the console multiplies cheap by ×0.9, config.yaml says ×1 (38 rows) → a tool that calls no other model can have a group with that multiplier\n",
      "LiteLLM has a factor for each provider",
    );
  },
);

t.test("a price by kind of token has an example to check, and what nothing explains is said", async (t) => {
  const example = {
    record: "01KA1F2DVV0000000000000001",
    tokens: { input: 1000, cache_read: 0, cache_write: 0, output: 500 },
    ours_microdollars: 1200,
    theirs_microdollars: 800,
  };
  const explanation = { rows: 59, explained: 58, unexplained_microdollars: 0, example };
  const model: Omit<ModelFactor, "explanation"> = {
    model: "gpt-4.1-mini",
    group: null,
    tier: null,
    requests: 59,
    factor: null,
    factor_rows: 12,
    multiplier: 1,
    multiplier_rows: 59,
    multiplier_here: null,
    difference_microdollars: -8200,
  };
  const shown = (given: PriceExplanation) =>
    formatMirror([mirrorReport(NOW, { models: [{ ...model, explanation: given }] })], NOW, WIDE);
  t.match(
    shown({ ...explanation, factors: { input: 1, output: 0.5 } }),
    "gpt-4.1-mini: the console's price is input ×1, output ×0.5 of the list price known here (58 of 59 rows) → prices: in config.yaml\n  for example 1,000 input, 500 output: $0.0012 here, $0.0008 there → keybearer mirror show 01KA1F2DVV0000000000000001\n",
  );
  const constant = shown({ ...explanation, factors: { input: 1.004, output: 1.004 } });
  t.match(constant, "the console's price is ×1.004 of the list price known here (58 of 59 rows)");
  t.notMatch(constant, /for example/);
  const unexplained = { ...explanation, explained: 12, factors: null, unexplained_microdollars: -8200 };
  t.match(
    shown(unexplained),
    "gpt-4.1-mini: 47 of 59 rows were billed $0.0082 less, and no price of a kind of token explains it\n  for example",
  );
  t.match(
    shown({ ...unexplained, rows: 0, explained: 0, example: null }),
    "gpt-4.1-mini: $0.0082 less was billed than here, and the console lists no price that could explain it\n",
  );
});

t.test("uses with keys_elsewhere are shown beside their usual number", async (t) => {
  const use = { tool: "laptop", key: "…c3d4", day: 14, day_microdollars: 1_200_000, usual: 12.4 };
  const shown = (day: number) =>
    formatMirror(
      [mirrorReport(NOW, { elsewhere: [{ ...use, day, usual_microdollars: 1_050_000.4 }] })],
      NOW,
      WIDE,
    );
  t.match(
    shown(14),
    "laptop, key …c3d4, elsewhere on purpose: 14 requests, $1.20 in the last day; usually 12 a day, $1.05\n",
  );
  t.match(shown(90), /90 requests.*FAR ABOVE ITS USUAL LEVEL/);
});

t.test("no line is wider than the screen, and control characters of others are escaped", async (t) => {
  const evil = alarm(NOW, {
    models: ["\u001b[2J", "gpt-5.1-with-a-long-name", "another-long-name-of-a-model"],
  });
  const report = mirrorReport(NOW, {
    alarms: [evil],
    state: "failing",
    why: "it says \u001b]0;x\u0007",
    next: "wait",
  });
  for (const width of [40, 80]) {
    const shown = formatMirror([report], NOW, width);
    t.notMatch(shown, /[^\P{Cc}\n]/u);
    t.same(
      shown.split("\n").filter((line) => textWidth(line) > width),
      [],
      String(width),
    );
  }
});

t.test("a row that differs shows our numbers above theirs, with the reason", async (t) => {
  const both = comparedRow(NOW);
  const foreign = {
    ...both,
    record: null,
    row: { ...both.row, identity: "2026|it's", verdict: "foreign" as const },
    verdict: "foreign",
    reason: "no record of ours has its id",
  };
  const missing = { ...both, row: null, verdict: "missing", reason: "the console does not list it" };
  t.equal(
    diffLines([both, foreign, missing], NOW, 110).join("\n"),
    `verdict          time      tool   model              input  cache  output     cost
differs  ours    14:10:57  codex  gpt-5.1            1,200    800     342  $0.0081
         theirs  14:11:00  …a1b2  gpt-5.1            1,200    800     400   $0.009
  output tokens: 342 here, 400 there → keybearer mirror show id:901
foreign  ours                     did not pass here
         theirs  14:11:00  …a1b2  gpt-5.1            1,200    800     400   $0.009
  no record of ours has its id → keybearer mirror show '2026|it'\\''s'
missing  ours    14:10:57  codex  gpt-5.1            1,200    800     342  $0.0081
         theirs                   not listed
  the console does not list it → keybearer mirror show 01JCABCD`,
  );
});

t.test("one row is shown with both sides and the reason", async (t) => {
  const shown = formatCompared(comparedRow(NOW), 120);
  t.match(shown, /^main: differs, by id\noutput tokens: 342 here, 400 there\n\n +ours +theirs\n/);
  t.match(shown, /^output +342 +400$/m);
  t.match(shown, /^request id +x-client-request-id: 5f0c +client:5f0c$/m);
  t.match(shown, /^its clock +- +2026-11-15 14:11:01\.000 \+00:00$/m);
  t.match(shown, /^key +…a1b2 +…a1b2 \(id:12\)$/m);
  const { row } = comparedRow(NOW);
  const compared = {
    ...comparedRow(NOW),
    record: null,
    verdict: "foreign",
    row: { ...row, verdict: "foreign" as const, how: null, certain: true, output_tokens: null },
  };
  const foreign = formatCompared(compared, 120);
  t.match(foreign, /^main: foreign, certain\n.*\nnothing of ours: it did not pass here\n/);
  t.match(foreign, /^output +- +\?$/m, "unknown is not zero");
});

t.test("a suspected row is shown beside the request that it may be, with both beginnings", async (t) => {
  const both = comparedRow(NOW);
  const { began } = both.row;
  const compared = {
    ...both,
    record: null,
    candidate: { ...both.record, sent_at: (began ?? 0) - 350, user_agent: "codex/1.0" },
    verdict: "foreign",
    row: { ...both.row, verdict: "foreign" as const, how: null, user_agent: "curl/8.5.0" },
  };
  const shown = formatCompared(compared, 120);
  t.match(shown, /^main: foreign, suspected\n.*\nit may be our request 01JCABCD, which is shown beside it\n/);
  t.notMatch(shown, "did not pass here");
  t.match(shown, /^began +2026-11-15 14:10:57\.700 \+00:00 +2026-11-15 14:10:57\.710 \+00:00$/m);
  t.match(shown, /^sent +2026-11-15 14:10:57\.360 \+00:00 +-$/m);
  t.match(shown, /^user agent +codex\/1\.0 +curl\/8\.5\.0$/m);
});

const SCREEN_80 = `main: differs, by id
output tokens: 342 here, 400 there

               ours                            theirs
name           01JCABCD                        id:901
request id
  ours         x-client-request-id: 5f0c9a4e-1b1e-4c57-9d3a-0f6c1b1e77aa
  theirs       client:5f0c9a4e-1b1e-4c57-9d3a-0f6c1b1e77aa
kind           -                               use
began          2026-11-15 14:10:57.700 +00:00  2026-11-15 14:10:57.710 +00:00
ended          2026-11-15 14:11:00.000 +00:00  2026-11-15 14:11:00.000 +00:00
its clock      -                               2026-11-15 14:11:01.000 +00:00
took           2.3 s                           2.3 s
tool           codex                           -
key            …a1b2                           …a1b2 (id:12)
group          -                               coding
model          gpt-5.1                         gpt-5.1
endpoint       -                               /v1/responses
stream         yes                             yes
end            complete, 200                   -
input          1,200                           1,200
cache read     800                             800
cache written  0                               0
output         342                             400
tokens from    reported                        -
list price     $0.00542                        $0.006
multiplier     -                               ×1.5
cost           $0.00813                        -
billed         $0.009                          $0.009
from           -                               198.51.100.4
`;

t.test("one row fits 80 columns, long ids below each other, and no word is broken", async (t) => {
  const compared = comparedRow(NOW);
  const id = "5f0c9a4e-1b1e-4c57-9d3a-0f6c1b1e77aa";
  const long = {
    ...compared,
    record: { ...compared.record, gateway_ids: { "x-client-request-id": id } },
    row: { ...compared.row, request_id: `client:${id}` },
  };
  t.equal(formatCompared(long, 80), SCREEN_80);
  const wide = formatCompared(long, 160);
  t.match(wide, new RegExp(`^request id +x-client-request-id: ${id} +client:${id}$`, "m"));
  for (const width of [80, 120])
    t.same(
      formatCompared(long, width)
        .split("\n")
        .filter((line) => textWidth(line) > width),
      [],
    );
});

t.test("status has a line for each console, and alarms at the top", async (t) => {
  t.notMatch(formatStatus(STATUS, NOW, 80), /mirror/);
  const consoles = [
    mirrorReport(NOW, { alarms: [alarm(NOW)] }),
    mirrorReport(NOW, {
      gateway: "b",
      detected: false,
      state: "slow",
      why: "no answer",
      next: "wait",
      next_sync: null,
    }),
  ];
  const shown = formatStatus({ ...STATUS, consoles }, NOW, 200);
  t.match(shown, /^ALARM {2}key …a1b2 /);
  t.match(shown, /^mirror main {2}sub2api \(detected\), last sync 12 s ago$/m);
  t.match(shown, /^mirror b {2}sub2api, slow: no answer; usage since .* → wait$/m);
});

t.test("mirror exits 0 for a suspicion", async (t) => {
  const now = Date.now();
  const suspected = mirrorReport(now, { alarms: [alarm(now, { certain: false })] });
  const { home } = await startMirrorControl(t, { "GET /mirror": () => [suspected] });
  t.match(await command(t, home, ["mirror"]), { code: 0, stdout: /^SUSPECTED / });
  t.strictSame(JSON.parse((await command(t, home, ["mirror", "--json"])).stdout), [suspected]);
});

t.test("mirror without a console says what to write and exits 0; without a daemon it fails", async (t) => {
  const { home } = await startMirrorControl(t, { "GET /mirror": () => [] });
  const none = await command(t, home, ["mirror"]);
  t.equal(none.code, 0);
  t.match(none.stdout, /no console is mirrored, so keybearer cannot see[\s\S]* console: \{ kind: sub2api/);
  const unread = await startMirrorControl(t, {
    "GET /mirror": () => [],
    "GET /status": () => ({ consoles: [mirrorReport(Date.now())] }),
  });
  const blind = await command(t, unread.home, ["mirror"]);
  t.match(blind, {
    code: 1,
    stdout: "",
    stderr: /^the usage log cannot be read, so nothing can be compared/,
  });
  const gone = await command(t, await newHome(t), ["mirror"]);
  t.match(gone, { code: 1, stdout: "", stderr: "keybearer is not running → keybearer run\n" });
});

t.test("sync prints each step and the headline, and fails if the console fails", async (t) => {
  const now = Date.now();
  const progress = (done: number) => mirrorReport(now, { state: "syncing", progress: { done, total: 3000 } });
  const done = mirrorReport(now, { rows: { total: 3000, by_id: 3000 } });
  const steps = [done, progress(1000), progress(1000), progress(2000), done];
  const { home, asked } = await startMirrorControl(t, {
    "GET /mirror": () => [steps.shift() ?? done],
    "POST /sync/main": () => progress(0),
  });
  const { code, stdout } = await command(t, home, ["mirror", "sync"]);
  t.equal(code, 0);
  t.match(
    stdout,
    /^main: reading: 1,000 of 3,000 rows\nmain: reading: 2,000 of 3,000 rows\nmain: 3,000 rows: 3,000 by id, 0 presumed, 0 foreign;/,
  );
  t.strictSame(asked.find(({ route }) => route === "POST /sync/main")?.body, {});
  const nowhere = await command(t, home, ["mirror", "sync", "elsewhere"]);
  t.match(nowhere, { code: 1, stderr: "there is no gateway elsewhere with a console; there is main\n" });
  steps.push(done, mirrorReport(now, { state: "rate-limited", why: "429", next: "wait", next_sync: null }));
  const failed = await command(t, home, ["mirror", "sync", "main"]);
  t.match(failed, { code: 1, stderr: /^rate-limited: 429; .*\n? *→ wait\n$/ });
});

t.test("sync draws a progress bar at a terminal", async (t) => {
  const now = Date.now();
  const half = mirrorReport(now, { state: "syncing", progress: { done: 1500, total: 3000 } });
  const steps = [half, half, half];
  const { home } = await startMirrorControl(t, {
    "GET /mirror": () => [steps.shift() ?? mirrorReport(now)],
    "POST /sync/main": () => half,
  });
  const { stdout, code } = await atScreen(t, home, ["mirror", "sync"]).ended;
  t.equal(code, 0);
  t.match(stdout, "\r\u001b[K[###############               ] main: reading: 1,500 of 3,000 rows");
  t.match(stdout, "\r\u001b[Kmain: 0 rows", "it is gone in the end");
});

t.test("diff lists the rows of one gateway, and says if rows could not be compared", async (t) => {
  const now = Date.now();
  const row = comparedRow(now);
  let rows = [row, { ...row, gateway: "other" }];
  const { home } = await startMirrorControl(t, {
    "GET /mirror": () => [
      mirrorReport(now),
      mirrorReport(now, { gateway: "other", state: "cannot-see", why: "no rows", next: "ask" }),
    ],
    "GET /mirrordiff": () => rows,
  });
  const one = await command(t, home, ["mirror", "diff", "main", "--json"]);
  t.strictSame(JSON.parse(one.stdout), [row]);
  rows = [];
  const { stdout } = await command(t, home, ["mirror", "diff"]);
  t.equal(
    stdout,
    "no differences in the compared rows\nother: cannot see: no rows; next try in 5 min → ask\n",
  );
});

t.test("show prints one match, lists several and reports none", async (t) => {
  const row = comparedRow(Date.now());
  const found: Record<string, unknown[]> = {
    one: [row],
    two: [row, { ...row, row: { ...row.row, identity: "id:902" } }],
  };
  const { home } = await startMirrorControl(t, {
    "POST /compared": (body) => found[(body as { what: string }).what] ?? [],
  });
  t.match(await command(t, home, ["mirror", "show", "one"]), { code: 0, stdout: /^main: differs, by id\n/ });
  const several = await command(t, home, ["mirror", "show", "two"]);
  t.match(several, { code: 1, stdout: "", stderr: /fits several; write one of these:\nid:901 .*\nid:902 / });
  const none = await command(t, home, ["mirror", "show", "three"]);
  t.match(none, { code: 1, stderr: /^there is no row or record three → keybearer mirror diff/ });
});

t.test("ack needs a terminal, shows the alarms, and acknowledges only those", async (t) => {
  const now = Date.now();
  const alarms = [
    alarm(now),
    alarm(now, { key: "…c3d4", replaced: true }),
    alarm(now, { key: "…c3d4", certain: false }),
  ];
  const { home, asked } = await startMirrorControl(t, {
    "GET /mirror": () => [mirrorReport(now, { alarms }), mirrorReport(now, { gateway: "b" })],
    "POST /ack": () => ({ acknowledged: 2 }),
  });
  const acked = () => asked.filter(({ route }) => route === "POST /ack").map(({ body }) => body);
  const script = await command(t, home, ["mirror", "ack"], { input: "yes\n" });
  t.match(script, { code: 2, stderr: /ack needs a person at a terminal/ });
  t.strictSame(acked(), []);
  const unsure = atScreen(t, home, ["mirror", "ack"]);
  await unsure.says(
    /key …c3d4 of codex may have been[\s\S]*\n…a1b2 still works for others: rotate it now: keybearer tools rotate codex[\s\S]*\[y\/N\]/,
  );
  unsure.type("n\r");
  t.match(await unsure.ended, { code: 1, stdout: /not acknowledged; nothing changed/ });
  t.strictSame(acked(), []);
  const sure = atScreen(t, home, ["mirror", "ack"]);
  await sure.says(/\[y\/N\]/);
  sure.type("yes\r");
  t.match(await sure.ended, { code: 0, stdout: /acknowledged 6 rows; the next one raises the alarm again/ });
  t.strictSame(
    acked(),
    alarms.map(({ gateway, key, certain, last_at, count }) => ({ gateway, key, certain, last_at, count })),
  );
});

t.test("ack changes nothing if more rows came than were shown", async (t) => {
  const now = Date.now();
  const { home } = await startMirrorControl(t, {
    "GET /mirror": () => [mirrorReport(now, { alarms: [alarm(now)] })],
    "POST /ack": () => ({ acknowledged: null }),
  });
  const ack = atScreen(t, home, ["mirror", "ack"]);
  await ack.says(/\[y\/N\]/);
  ack.type("yes\r");
  t.match(await ack.ended, {
    code: 1,
    stdout: /more rows arrived in the meantime → keybearer mirror ack main/,
  });
});

t.test("each help text of mirror and keys fits a screen", async (t) => {
  const [mirror, keys] = [mirrorCommand(), keysCommand()];
  for (const one of [mirror, keys, ...mirror.commands]) {
    let help = "";
    one.configureOutput({
      writeOut: (text) => {
        help += text;
      },
      getOutHelpWidth: () => 80,
    });
    one.outputHelp();
    const lines = help.trimEnd().split("\n");
    t.ok(lines.length > 5 && lines.length < 24, one.name());
    t.same(
      lines.filter((line) => [...line].length > 80),
      [],
      one.name(),
    );
  }
});
