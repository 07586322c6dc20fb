import t from "tap";
import { findOccurrences, nameOf, type Observed } from "../../src/events/conditions.ts";
import { findEndings, findUsedLimits, type ToolUse } from "../../src/events/moments.ts";
import { unusualHour } from "../../src/events/spending.ts";
import type { Level, SessionLevel } from "../../src/limits/counters.ts";
import type { Alarm } from "../../src/mirror/report/shape.ts";

const NOW = 1_800_000_000_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const QUIET: Observed = {
  now: NOW,
  tools: [{ name: "codex", key: "accepted", refused: null }],
  gateways: [{ name: "main", state: "reachable", failedForMs: 0, problem: null }],
  logProblem: null,
  rejected: null,
  consoles: [{ gateway: "main", state: "read", blindSince: null, why: null, next: null, alarms: [] }],
};

const ALARM: Alarm = {
  gateway: "main",
  key: "…a1b2",
  certain: true,
  reason: null,
  tools: ["codex"],
  count: 3,
  models: ["penny"],
  billed_microdollars: 1,
  first_at: NOW,
  last_at: NOW,
  ips: [],
  replaced: false,
};

const failing = (ms: number): Partial<Observed> => ({
  gateways: [{ name: "main", state: "failing", failedForMs: ms, problem: "nothing listens there" }],
});
const console = (given: object): Partial<Observed> => ({
  consoles: [
    { gateway: "main", state: "read", blindSince: null, why: null, next: null, alarms: [], ...given },
  ],
});
const key = (given: object): Partial<Observed> => ({
  tools: [{ name: "codex", key: "accepted", refused: null, ...given }],
});
const REFUSED = {
  key: "refused",
  refused: { problem: "the key was deleted", cause: "key-deleted", next: "keybearer tools rotate codex" },
};

/** What begins when this is observed for the first time. */
const BEGINS: readonly (readonly [string, Partial<Observed>, string | null, RegExp?])[] = [
  ["nothing", {}, null],
  ["a gateway fails for less than a minute", failing(MINUTE - 1), null],
  ["a gateway failed once", failing(0), null],
  [
    "a gateway fails for a minute",
    failing(MINUTE),
    "gateway-down gateway main",
    /main has failed for 60 s: nothing listens/,
  ],
  [
    "a gateway without a request",
    { gateways: [{ name: "main", state: "unknown", failedForMs: 0, problem: null }] },
    null,
  ],
  [
    "a key is refused",
    key(REFUSED),
    "key-refused tool codex",
    /refuses the key of tool codex: the key was deleted/,
  ],
  ["a key is held", key({ key: "held" }), "needs-trust tool codex", /key of tool codex is held/],
  [
    "the log cannot be written",
    { logProblem: "ENOSPC" },
    "log-unavailable usage log",
    /requests are refused: ENOSPC/,
  ],
  [
    "a save is rejected",
    { rejected: { count: 2, line: 7, check: "keybearer check" } },
    "config-rejected config.yaml",
    /2 problems, the first in line 7;/,
  ],
  [
    "with one problem",
    { rejected: { count: 1, line: null, check: "keybearer check" } },
    "config-rejected config.yaml",
    /it has a problem; the last/,
  ],
  ["a console is blind for less", console({ state: "blind", blindSince: NOW - HOUR + 1 }), null],
  [
    "a console is blind for an hour",
    console({ state: "blind", blindSince: NOW - HOUR, why: "the console is down" }),
    "mirror-blind console main",
    /at gateway main for 60 min: the console is down/,
  ],
  ["consoles were not asked", { consoles: null }, null],
  [
    "a leak",
    console({ alarms: [ALARM] }),
    "leak key …a1b2",
    /key …a1b2 of codex was used outside keybearer: 3 requests/,
  ],
  [
    "a suspicion",
    console({ alarms: [{ ...ALARM, certain: false, count: 1 }] }),
    "suspicion key …a1b2",
    /may have been used outside keybearer: 1 request$/,
  ],
];

t.test("what begins", async (t) => {
  for (const [title, given, name, message] of BEGINS) {
    const { begun } = findOccurrences({ lasting: [], seen: new Set() }, { ...QUIET, ...given });
    t.same(begun.map(nameOf), name === null ? [] : [name], title);
    if (message) t.match(begun[0]?.message, message, title);
    if (begun[0]) {
      t.ok(begun[0].next, `${title}: something to type`);
      const again = findOccurrences({ lasting: begun, seen: new Set() }, { ...QUIET, ...given });
      t.same([again.begun, again.ended], [[], []], `${title}: known already`);
    }
  }
});

/** What an earlier process reported, what is observed, and whether it is over. */
const ENDS: readonly (readonly [string, string, Partial<Observed>, boolean, RegExp?])[] = [
  ["gateway-down", "gateway main", {}, true, /answers again/],
  ["gateway-down", "gateway main", failing(MINUTE / 2), false],
  [
    "gateway-down",
    "gateway main",
    { gateways: [{ name: "main", state: "unknown", failedForMs: 0, problem: null }] },
    false,
  ],
  ["gateway-down", "gateway old", {}, true, /gateway old is not in config.yaml any more/],
  ["key-refused", "tool codex", {}, true, /not refused any more/],
  ["key-refused", "tool codex", key({ key: "unknown" }), false],
  ["key-refused", "tool old", {}, true, /not in config.yaml/],
  ["needs-trust", "tool codex", {}, true, /not held any more/],
  ["log-unavailable", "usage log", {}, true, /can be written again/],
  ["config-rejected", "config.yaml", {}, true, /accepted again/],
  ["mirror-blind", "console main", {}, true, /console main is read again/],
  ["mirror-blind", "console main", console({ state: "unknown" }), false],
  ["mirror-blind", "console main", console({ state: "blind", blindSince: NOW }), false],
  ["mirror-blind", "console main", { consoles: null }, false],
  ["mirror-blind", "console main", { consoles: [] }, true, /not in config.yaml/],
  ["leak", "key …a1b2", {}, true, /no open alarm/],
  ["leak", "key …a1b2", console({ state: "unknown" }), false],
  ["leak", "key …a1b2", console({ state: "blind", blindSince: NOW }), false],
  ["suspicion", "key …a1b2", { consoles: null }, false],
];

t.test("what ends, also what an earlier process reported", async (t) => {
  for (const [kind, subject, given, isOver, message] of ENDS) {
    const ref = { kind, subject } as { kind: "leak"; subject: string };
    const { ended } = findOccurrences({ lasting: [ref], seen: new Set() }, { ...QUIET, ...given });
    t.same(ended.map(nameOf), isOver ? [nameOf(ref)] : [], `${kind} ${JSON.stringify(given)}`);
    if (message) t.match(ended[0]?.message, message);
  }
});

t.test("a tool whose name looks like a key is known by what an event calls it", async (t) => {
  const name = "sk-0123456789abcdef";
  const now = { ...QUIET, tools: [{ name, key: "held" as const, refused: null }] };
  const lasting = [{ kind: "needs-trust", subject: "tool [hidden]" }] as const;
  const { begun, ended } = findOccurrences({ lasting, seen: new Set() }, now);
  t.same([begun, ended], [[], []]);
});

t.test("a key that was seen to be refused is over when it is another key", async (t) => {
  const ref = { kind: "key-refused", subject: "tool codex" } as const;
  const now = { ...QUIET, ...key({ key: "unknown" }) };
  t.equal(findOccurrences({ lasting: [ref], seen: new Set([nameOf(ref)]) }, now).ended.length, 1);
});

t.test("a gateway whose settings were changed is not said to answer", async (t) => {
  const ref = { kind: "gateway-down", subject: "gateway main" } as const;
  const before = { lasting: [ref], seen: new Set([nameOf(ref)]) };
  for (const [state, message] of [
    ["unknown", "gateway main is not known to fail any more"],
    ["failing", "gateway main is not known to fail any more"],
    ["reachable", "gateway main answers again"],
  ] as const) {
    const gateways = [{ name: "main", state, failedForMs: 0, problem: null }];
    t.match(findOccurrences(before, { ...QUIET, gateways }).ended, [{ message }], state);
  }
});

function level(given: Partial<Level>): Level {
  return {
    limit: { kind: "spend", per: "day" },
    window: { start: NOW - HOUR, end: NOW + HOUR },
    grant: null,
    used: 0,
    estimated: 0,
    held: 0,
    max: 5_000_000,
    extra: 0,
    ...given,
  };
}

const useOf = (one: Level): ToolUse[] => [{ tool: "codex", levels: [one], sessions: [] }];

const LEVELS: readonly (readonly [string, Partial<Level>, RegExp | null, string?])[] = [
  ["79 %", { used: 3_999_999 }, null],
  [
    "80 %",
    { used: 4_000_000 },
    /has used 80 % of its limit spend\/day: \$4\.00 of \$5\.00, resets /,
    "keybearer usage",
  ],
  ["nearly all", { used: 4_999_999 }, /used 99 % of/],
  [
    "all",
    { used: 5_000_000 },
    /has used up its limit spend\/day: \$5\.00 of \$5\.00/,
    "keybearer tools lift codex --spend",
  ],
  [
    "an hour",
    { limit: { kind: "tokens", per: "hour" }, used: 900, max: 1000 },
    /used 90 % of its limit tokens\/hour: 900 of 1,000/,
  ],
  [
    "a month",
    { limit: { kind: "requests", per: "month" }, used: 10, max: 10 },
    /used up its limit requests\/month/,
  ],
  ["a minute", { limit: { kind: "requests", per: "minute" }, used: 10, max: 10 }, null],
  ["at once", { limit: { kind: "concurrent" }, window: null, used: 4, max: 4 }, null],
  [
    "a quota",
    { limit: { kind: "quota" }, window: null, used: 9_000_000, max: 10_000_000 },
    /used 90 % of its quota: \$9\.00 of \$10\.00$/,
  ],
  ["nothing allowed", { max: 0 }, null],
  ["reserved only", { held: 5_000_000 }, null],
  [
    "with an allowance",
    { used: 6_000_000, max: 7_000_000, extra: 2_000_000 },
    /used 85 % of .*\$5\.00\+\$2\.00/,
  ],
  [
    "used elsewhere, too",
    { used: 1_000_000, grant: { granted: 0, usedElsewhere: 3_500_000, heldElsewhere: 0 } },
    /used 90 %/,
  ],
];

t.test("limits that are nearly or quite used up", async (t) => {
  for (const [title, given, message, next] of LEVELS) {
    const [found, ...more] = findUsedLimits(useOf(level(given)), NOW, () => false);
    t.same(more, [], title);
    if (message === null) t.equal(found, undefined, title);
    else t.match(found?.message, message, title);
    if (next) t.equal(found?.next, next, title);
    t.same(
      findUsedLimits(useOf(level(given)), NOW, () => true),
      [],
      `${title}: once`,
    );
  }
});

t.test("each window and each share is reported once, and 80 % not after 100 %", async (t) => {
  const reported = new Set<string>();
  const find = (given: Partial<Level>) => {
    const found = findUsedLimits(useOf(level(given)), NOW, ({ once }) => reported.has(once?.name ?? ""));
    for (const { once } of found) reported.add(once?.name ?? "");
    return found.length;
  };
  t.equal(find({ used: 4_000_000 }), 1);
  t.equal(find({ used: 4_500_000 }), 0);
  t.equal(find({ used: 5_000_000 }), 1);
  const lifted = { max: 10_000_000, extra: 5_000_000 };
  t.equal(find({ ...lifted, used: 5_100_000 }), 0, "it was lifted");
  t.equal(find({ ...lifted, used: 8_000_000 }), 1);
  t.equal(find({ ...lifted, used: 9_000_000 }), 0);
  t.equal(find({ ...lifted, used: 10_000_000 }), 1);
  t.equal(find({ used: 20_000_000, max: 20_000_000 }), 1, "it was raised in config.yaml");
  t.equal(find({ used: 20_000_000, max: 5_000_000 }), 0, "it has a maximum again that was reported");
  const next = { start: NOW + HOUR, end: NOW + 2 * HOUR };
  t.equal(find({ used: 5_000_000, window: next }), 1);
  t.equal(find({ used: 4_000_000, window: next }), 0);
});

t.test("limits of a session, each once", async (t) => {
  const session: SessionLevel = {
    session: {
      id: "3f2a91c0",
      requests: 9,
      tokens: 0,
      spend: 0,
      begun: NOW,
      last: NOW,
      inFlight: 0,
      extra: { requests: 0, tokens: 0, spend: 0 },
      isStopped: false,
      isFull: false,
    },
    limits: [
      { kind: "requests", used: 9, held: 0, max: 10, extra: 0 },
      { kind: "spend", used: 2_000_000, held: 0, max: 2_000_000, extra: 0 },
      { kind: "tokens", used: 1, held: 0, max: 10, extra: 0 },
    ],
  };
  const find = (now: number, reported: readonly string[] = []) =>
    findUsedLimits([{ tool: "codex", levels: [], sessions: [session] }], now, ({ once }) =>
      reported.includes(once?.name ?? ""),
    );
  const found = find(NOW);
  t.match(found, [
    {
      subject: "tool codex",
      message: /^session 3f2a91c0 of tool codex has used 90 % of its limit on requests: 9 of 10/,
    },
    { next: "keybearer sessions lift 3f2a91c0 --spend", message: /used up its limit on spend: \$2\.00/ },
  ]);
  t.equal(find(NOW + HOUR).length, 2);
  t.same(find(NOW + HOUR + 1), [], "it is not in use");
  t.equal(find(NOW, ["session 3f2a91c0 requests 80 10"]).length, 1);
  t.equal(find(NOW, ["session 3f2a91c0 requests 80 9"]).length, 2, "it was lifted since");
});

t.test("what ends is announced seven days and one day before", async (t) => {
  const ending = (left: number) => [
    {
      subject: "tool codex",
      what: "tool codex",
      at: NOW + left,
      next: null,
      said: { code: "tool-expires", values: {} } as const,
    },
  ];
  const names = new Set<string>();
  for (const [left, expected] of [
    [8 * DAY, null],
    [7 * DAY, /^tool codex expires in 7 days: /],
    [2 * DAY, /expires in 2 days/],
    [DAY, /expires in 24 h/],
    [HOUR, /expires in 60 min/],
    [0, null],
    [-DAY, null],
  ] as const) {
    const [found] = findEndings(ending(left), NOW);
    if (expected === null) t.equal(found, undefined, String(left));
    else t.match(found?.message, expected);
    // The time of the end is part of the name, and is another one in each of these cases.
    if (found) names.add((found.once?.name ?? "").replace(/ \d+$/, ""));
  }
  t.same([...names], ["tool codex 7 days", "tool codex 1 day"]);
});

t.test("spending is unusual above five times the usual hour, and from a dollar", async (t) => {
  for (const [cost, usual, isUnusual] of [
    [999_999, 1, false],
    [1_000_000, 100_000, true],
    [1_000_000, 200_000, false],
    [1_000_001, 200_000, true],
    [50_000_000, null, false],
    [50_000_000, 12_000_000, false],
  ] as const)
    t.equal(unusualHour("codex", cost, usual, NOW) !== null, isUnusual, `${cost} ${usual}`);
  t.match(unusualHour("codex", 3_100_000, 500_000, NOW), {
    severity: "critical",
    message: "tool codex has spent $3.10 in this hour, 6 times its usual $0.50",
  });
});
