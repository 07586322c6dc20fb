import t, { type Test } from "tap";
import { readAlarms } from "../../src/mirror/alarms.ts";
import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import { diffOrder, findCompared, readDiff } from "../../src/mirror/report/compared.ts";
import { explainLines } from "../../src/mirror/report/price-differences.ts";
import { readDays, readReport } from "../../src/mirror/report/report.ts";
import { coverFrom } from "../../src/mirror/store/facts.ts";
import { holdKeys, linkKeys } from "../../src/mirror/store/keys.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { record } from "../doubles/records.ts";
import {
  AT,
  acknowledge,
  all,
  compareAll,
  HOUR,
  MINUTE,
  mirrorFile,
  page,
  row,
  unmetered,
} from "./mirror-file.ts";

const SKEW = 5000;
const LATER = AT + 5 * MINUTE;
const NO_KEYS: ReadonlySet<string> = new Set<string>();

/** One matched, one that differs, one that took the console's tokens, one missing, two foreign and one from before. */
function comparedMirror(test: Test) {
  const mirror = mirrorFile(test, [record(1), record(2), unmetered(3), record(4)]);
  const at = AT + 2333 + SKEW;
  page(mirror.db, [
    row(1, { created_at: at }),
    row(2, { created_at: at, output_tokens: 1000 }),
    row(3, { created_at: at }),
    row(8, { created_at: LATER + SKEW, ip: "192.0.2.8", model: "gpt-5.1-mini", billed_microdollars: 70 }),
    row(9, { created_at: LATER + MINUTE + SKEW, billed_microdollars: 30 }),
    row(10, { created_at: AT - 30 * HOUR }),
  ]);
  compareAll(mirror, { skew: SKEW });
  return mirror;
}

t.test("an alarm has tools, money, addresses and times by our clock", async (t) => {
  const { db } = comparedMirror(t);
  const [alarm, ...more] = readAlarms(db, "main", SKEW, NO_KEYS);
  t.same(more, []);
  t.same(alarm, {
    gateway: "main",
    key: "…a1b2",
    certain: true,
    reason: "no request that passed here has this id",
    tools: ["codex"],
    count: 2,
    models: ["gpt-5.1", "gpt-5.1-mini"],
    billed_microdollars: 100,
    first_at: LATER,
    last_at: LATER + MINUTE,
    ips: ["192.0.2.8"],
    replaced: false,
  });
  t.same(readAlarms(db, "main", 0, new Set(["…a1b2"])), []);
  t.same(readAlarms(db, "other", SKEW, NO_KEYS), []);
  acknowledge(db, { gateway: "main", key: null, certain: null, until: null }, AT);
  t.same(readAlarms(db, "main", SKEW, NO_KEYS), [], "nor does what was acknowledged");
});

t.test("suspected rows are a separate alarm after the certain ones", async (t) => {
  const mirror = comparedMirror(t);
  const { db } = mirror;
  page(db, [
    row(11, { created_at: LATER + 2 * MINUTE + SKEW, billed_microdollars: 5 }),
    row(12, { created_at: LATER + 3 * MINUTE + SKEW, billed_microdollars: 7 }),
    row(13, { created_at: LATER + 4 * MINUTE + SKEW, kind: "refund", billed_microdollars: -7 }),
  ]);
  compareAll(mirror, { skew: SKEW });
  db.exec("UPDATE mirror.console_rows SET certain = 0, reason = 'older' WHERE identity = 'row-11'");
  db.exec("UPDATE mirror.console_rows SET certain = 0, reason = 'newest' WHERE identity = 'row-12'");
  t.match(all(db, "SELECT verdict, certain FROM mirror.console_rows WHERE identity = 'row-13'"), [
    ["companion", 0],
  ]);
  const alarms = () => readAlarms(db, "main", SKEW, NO_KEYS);
  const suspected = {
    key: "…a1b2",
    certain: false,
    reason: "newest",
    tools: ["codex"],
    count: 2,
    billed_microdollars: 12,
    first_at: LATER + 2 * MINUTE,
    last_at: LATER + 3 * MINUTE,
  };
  t.match(alarms(), [{ certain: true, count: 2 }, suspected], "a refund is not a use of the key");
  t.same(readAlarms(db, "main", 0, new Set(["…a1b2"])), [], "not of a quiet key");
  const shown = { gateway: "main", key: "…a1b2", until: LATER + 3 * MINUTE + SKEW };
  t.equal(acknowledge(db, { ...shown, certain: true }, AT).length, 2);
  t.match(alarms(), [suspected], "each is acknowledged by itself");
  t.equal(acknowledge(db, { ...shown, certain: false }, AT).length, 2);
  t.same(alarms(), []);
});

t.test("the report counts certain and suspected rows of a tool apart, with their money", async (t) => {
  const { db } = comparedMirror(t);
  db.exec("UPDATE mirror.console_rows SET certain = 0 WHERE identity = 'row-9'");
  const options = { now: AT + HOUR, skew: SKEW, elsewhere: [], multipliers: {}, siblings: [] };
  t.match(readReport(db, "main", options).tools, [
    { tool: "codex", foreign: 1, foreign_microdollars: 70, suspected: 1, suspected_microdollars: 30 },
  ]);
});

t.test("a suspected row is found with the request that it may be, and with both beginnings", async (t) => {
  const gone = { status: null, first_byte_at: null, model_answered: null, gateway_ids: {} };
  const left = unmetered(1, { ...gone, end: "client-left", ended_at: AT + 900, user_agent: "codex/1.0" });
  const mirror = mirrorFile(t, [left, record(2)]);
  const { db } = mirror;
  const began_at = AT + 350 + SKEW;
  page(db, [
    row(2, { created_at: AT + 2333 + SKEW }),
    row(9, { created_at: AT + 2000 + SKEW, began_at, user_agent: "curl/8.5.0" }),
  ]);
  compareAll(mirror, { skew: SKEW });
  t.match(
    findCompared(db, "row-9", () => SKEW),
    [
      {
        verdict: "foreign",
        record: null,
        row: { began: AT + 350, certain: false, user_agent: "curl/8.5.0" },
        candidate: { id: left.id, sent_at: AT, user_agent: "codex/1.0" },
      },
    ],
  );
  t.match(
    findCompared(db, "row-2", () => SKEW),
    [{ candidate: undefined, row: { began: AT } }],
  );
});

t.test("an alarm shows that its key was replaced", async (t) => {
  const { db } = comparedMirror(t);
  holdKeys(db, [{ gateway: "main", key: "…new1", tool: "codex" }], AT + MINUTE);
  t.match(readAlarms(db, "main", SKEW, NO_KEYS), [{ key: "…a1b2", tools: ["codex"], replaced: true }]);
});

t.test("a sum that lacks requests of unknown cost says how many", async (t) => {
  const mirror = mirrorFile(t, [
    record(1),
    { ...record(2), list_microdollars: null, cost_microdollars: null },
  ]);
  page(mirror.db, [row(1, { created_at: AT + 2333 + SKEW }), row(2, { created_at: AT + 2333 + SKEW })]);
  compareAll(mirror, { skew: SKEW });
  const { tools } = readReport(mirror.db, "main", {
    now: AT + HOUR,
    skew: SKEW,
    elsewhere: [],
    multipliers: {},
    siblings: [],
  });
  t.match(tools, [{ requests: 2, ours_microdollars: 8130, ours_unknown: 1, theirs_unknown: 0 }]);
});

t.test("the report counts verdicts, money by tool and factors by model", async (t) => {
  const { db } = comparedMirror(t);
  coverFrom(db, "main", AT - 20 * HOUR, AT + 48 * HOUR);
  const report = readReport(db, "main", {
    now: AT + HOUR,
    skew: SKEW,
    elsewhere: [],
    multipliers: {},
    siblings: [],
  });
  t.same(report.rows, {
    total: 6,
    by_id: 2,
    by_pair: 0,
    by_sum: 0,
    presumed: 0,
    differs: 1,
    pending: 0,
    foreign_certain: 2,
    foreign_suspected: 0,
    elsewhere: 0,
    before: 1,
    unwatched: 0,
    companion: 0,
    duplicate: 0,
  });
  t.same(report.records, { matched: 2, differs: 1, pending: 0, missing: 1 });
  t.equal(report.newest_row, LATER + MINUTE);
  t.equal(report.watched_since, AT - 20 * HOUR, "the console was not read from further back");
  t.same(report.tools, [
    {
      tool: "codex",
      requests: 3,
      ours_microdollars: 8130 + 8130 + 3084,
      theirs_microdollars: 27_000,
      ours_unknown: 0,
      theirs_unknown: 0,
      foreign: 2,
      foreign_microdollars: 100,
      suspected: 0,
      suspected_microdollars: 0,
    },
  ]);
  t.match(report.models, [
    { model: "gpt-5.1", tier: null, requests: 3, factor: null, multiplier: null, multiplier_here: null },
  ]);
});

t.test("verdicts are counted by day, by our clock, and days without any are left out", async (t) => {
  const { db } = comparedMirror(t);
  const day = (from: number) => ({ from, to: from + HOUR });
  const read = (quietKeys: ReadonlySet<string>) =>
    readDays(db, "main", [day(AT - 31 * HOUR), day(AT - 5 * HOUR), day(AT)], SKEW, quietKeys);
  const none = {
    gateway: "main",
    matched: 0,
    differs: 0,
    pending: 0,
    foreign_certain: 0,
    foreign_suspected: 0,
    missing: 0,
    other: 0,
    foreign_microdollars: 0,
  };
  const today = { ...none, day: AT, matched: 2, differs: 1, missing: 1, billed_microdollars: 27_100 };
  const before = { ...none, day: AT - 31 * HOUR, other: 1, billed_microdollars: 9000 };
  t.same(read(NO_KEYS), [before, { ...today, foreign_certain: 2, foreign_microdollars: 100 }]);
  t.same(read(new Set(["…a1b2"])), [before, { ...today, other: 2 }], "use elsewhere on purpose is no alarm");
});

t.test("rows without a verdict are pending, and rows of unknown keys are not counted", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  page(db, [row(1, { key_ref: "id:5" })]);
  compareAll(mirror);
  page(db, [row(2)]);
  const { rows } = readReport(db, "main", { now: AT, skew: 0, elsewhere: [], multipliers: {}, siblings: [] });
  t.match(rows, { total: 1, pending: 1, unwatched: 0 });
});

/** The report's lines on prices, of records and rows that belong together by their number. */
function pricesOf(
  t: Test,
  requests: readonly { readonly ours?: Partial<UsageRecord>; readonly theirs?: Partial<ConsoleRow> }[],
  multipliers: Readonly<Record<string, number>> = { coding: 1.5 },
) {
  const list = { list_microdollars: 6000, cost_microdollars: 9000, group: "coding", multiplier: 1.5 };
  const mirror = mirrorFile(
    t,
    requests.map(({ ours }, at) => record(at + 1, { ...list, ...ours })),
  );
  page(
    mirror.db,
    requests.map(({ theirs }, at) => row(at + 1, theirs)),
  );
  compareAll(mirror);
  return readReport(mirror.db, "main", { now: AT, skew: 0, elsewhere: [], multipliers, siblings: [] }).models;
}

const times = <T>(count: number, one: T): T[] => Array.from({ length: count }, () => one);

t.test("a multiplier that differs from ours is shown for each group", async (t) => {
  const coding = { ours: { group: "coding", multiplier: 1.5 }, theirs: { multiplier: 1.5 } };
  const cheap = {
    ours: { group: "cheap", multiplier: 1 },
    theirs: { multiplier: 2, billed_microdollars: 12_000 },
  };
  const models = pricesOf(t, [...times(6, coding), ...times(6, cheap)], { coding: 1.5, cheap: 1 });
  t.match(models, [
    { model: "gpt-5.1", group: "cheap", requests: 6, multiplier: 2, multiplier_rows: 6, multiplier_here: 1 },
    { model: "gpt-5.1", group: "coding", requests: 6, multiplier: 1.5, multiplier_here: null },
  ]);
  t.match(pricesOf(t, times(6, cheap), {}), [{ group: "cheap", multiplier_here: null }], "the group is gone");
});

t.test("fewer than five rows, or rows that disagree, give no price advice", async (t) => {
  const dear = { theirs: { list_microdollars: 7200, billed_microdollars: 10_800 } };
  t.match(pricesOf(t, times(4, dear)), [{ requests: 4, factor: null, multiplier: null }]);
  t.match(pricesOf(t, times(5, dear)), [{ requests: 5, factor: 1.2, factor_rows: 5, multiplier: 1.5 }]);
  t.match(pricesOf(t, [...times(6, dear), ...times(2, {})]), [{ factor: 1.2, factor_rows: 6 }]);
  t.match(pricesOf(t, [...times(5, dear), ...times(2, {})]), [{ requests: 7, factor: null }]);
});

t.test("calls with a long context or a service tier have separate lines", async (t) => {
  const usual = { ours: { list_microdollars: 6000 } };
  const long = {
    ours: { input_tokens: 250_000 },
    theirs: { input_tokens: 250_000, list_microdollars: 12_000, billed_microdollars: 18_000 },
  };
  const priority = {
    theirs: { service_tier: "priority", list_microdollars: 12_000, billed_microdollars: 18_000 },
  };
  t.match(pricesOf(t, [...times(20, usual), ...times(2, long), ...times(5, priority)]), [
    { tier: "long context", requests: 2, factor: null },
    { tier: "priority", requests: 5, factor: 2, factor_rows: 5 },
    { tier: null, requests: 20, factor: 1, factor_rows: 20 },
  ]);
});

t.test("rounding by the console is not reported as a price difference", async (t) => {
  // text-embedding-3-small through new-api: 98 micro-dollars become 50 units of two.
  const small = {
    ours: { list_microdollars: 98 },
    theirs: { list_microdollars: null, billed_microdollars: 100, multiplier: 1 },
  };
  t.match(pricesOf(t, times(50, small)), [{ requests: 50, factor: null, factor_rows: 0 }]);
  const large = {
    ours: { list_microdollars: 980 },
    theirs: { list_microdollars: null, billed_microdollars: 1176, multiplier: 1 },
  };
  t.match(pricesOf(t, [...times(50, small), ...times(5, large)]), [
    { requests: 55, factor: 1.2, factor_rows: 5 },
  ]);
});

t.test("the latest matched rows of a line show which kind of token has another price", async (t) => {
  const prices = { input: 2, cache_read: 0.5, cache_write: 2, output: 8 };
  const outputs = [10, 900, 40, 300, 2, 700];
  const list = (output: number, price: number) => 1200 * 2 + 800 * 0.5 + output * price;
  const mirror = mirrorFile(
    t,
    outputs.map((output, at) =>
      record(at + 1, {
        output_tokens: output,
        list_microdollars: list(output, 8),
        cost_microdollars: list(output, 8) * 1.5,
      }),
    ),
  );
  const { db } = mirror;
  page(
    db,
    outputs.map((output, at) => {
      const billed_microdollars = list(output, 4) * 1.5;
      return row(at + 1, { output_tokens: output, list_microdollars: null, billed_microdollars });
    }),
  );
  compareAll(mirror);
  const options = { now: AT, skew: 0, elsewhere: [], multipliers: { coding: 1.5 }, siblings: [] };
  const [line] = readReport(db, "main", options).models;
  if (line === undefined) throw new Error("there is no line");
  t.equal(line.difference_microdollars, -1952 * 4 * 1.5);
  const found = explainLines(db, "main", [{ ...line, prices }], ["chat", "codex"]);
  t.match(found, [
    { rows: 6, explained: 6, factors: { input: 1, cache_read: 1, output: 0.5 }, unexplained_microdollars: 0 },
  ]);
  t.match(explainLines(db, "main", [{ ...line, prices: null }], ["codex"]), [{ rows: 6, factors: null }]);
  t.match(explainLines(db, "main", [{ ...line, tier: "flex", prices }], ["codex"]), [
    { rows: 0, factors: null, unexplained_microdollars: line.difference_microdollars },
  ]);
});

t.test("uses with keys_elsewhere are counted beside their usual number", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  const now = AT + 48 * HOUR;
  const hours = [1, 2, 3, 30, 31, 47];
  page(
    db,
    hours.map((hour, at) => row(50 + at, { created_at: now - hour * HOUR, billed_microdollars: 10 })),
  );
  compareAll(mirror, { now });
  const elsewhere = [
    { tool: "codex", key: "…a1b2" },
    { tool: "chat", key: "…none" },
  ];
  // Held for three days by now: two before the last one.
  t.same(readReport(db, "main", { now, skew: 0, elsewhere, multipliers: {}, siblings: [] }).elsewhere, [
    {
      tool: "codex",
      key: "…a1b2",
      day: 3,
      day_microdollars: 30,
      usual: 1.5,
      usual_microdollars: 15,
    },
    { tool: "chat", key: "…none", day: 0, day_microdollars: 0, usual: 0, usual_microdollars: 0 },
  ]);
});

t.test("rows that differ, are foreign or missing are listed newest first, with both sides", async (t) => {
  const { db } = comparedMirror(t);
  const diff = readDiff(db, "main", { max: 10, skew: SKEW, quietKeys: NO_KEYS });
  t.same(
    diff.map(({ row: theirs, record: ours, verdict }) => [theirs?.identity, ours?.id, verdict]),
    [
      ["row-9", undefined, "foreign"],
      ["row-8", undefined, "foreign"],
      ["row-2", record(2).id, "differs"],
      [undefined, record(4).id, "missing"],
    ],
  );
  t.match(diff[2], { row: { output_tokens: 1000, at: AT + 2333 }, record: { output_tokens: 342 } });
  t.equal(readDiff(db, "main", { max: 1, skew: SKEW, quietKeys: NO_KEYS }).length, 1);
  const quiet = readDiff(db, "main", { max: 10, skew: SKEW, quietKeys: new Set(["…a1b2"]) });
  t.same(
    quiet.map(({ verdict }) => verdict),
    ["differs", "missing"],
    "what is used elsewhere on purpose is no news",
  );
});

t.test("every foreign row is listed before other differences, certain ones first", async (t) => {
  const many = Array.from({ length: 30 }, (_, at) => 100 + at);
  const at = (number: number) => AT + number * MINUTE;
  const mirror = mirrorFile(
    t,
    many.map((number) => record(number, { started_at: at(number), ended_at: at(number) + 2333 })),
  );
  const { db } = mirror;
  linkKeys(db, "main", [
    { ref: "id:1", key: "…a1b2" },
    { ref: "id:7", key: "…else" },
  ]);
  const held = { "…a1b2": "codex", "…else": "chat" };
  holdKeys(
    db,
    Object.entries(held).map(([key, tool]) => ({ gateway: "main", key, tool })),
    AT - 24 * HOUR,
  );
  page(db, [
    // Half of them differ, and of the others the console knows nothing.
    ...many.slice(15).map((number) => row(number, { created_at: at(number) + 2333, output_tokens: 5000 })),
    ...[1, 2, 3].map((number) => row(number, { created_at: at(number) })),
    // Used elsewhere on purpose, and newer than all.
    ...many.map((number) => row(1000 + number, { created_at: at(number) + 1000 * MINUTE, key_ref: "id:7" })),
  ]);
  compareAll(mirror, { now: AT + 100 * HOUR });
  db.exec("UPDATE mirror.console_rows SET certain = 0 WHERE identity = 'row-3'");
  const listed = (max: number) =>
    readDiff(db, "main", { max, skew: 0, quietKeys: new Set(["…else"]) }).map(({ verdict, row: theirs }) =>
      verdict === "foreign" ? theirs?.identity : verdict,
    );
  t.same(listed(2), ["row-2", "row-1"]);
  t.same(listed(5), ["row-2", "row-1", "row-3", "differs", "differs"]);
  t.same(
    listed(500).toSorted(),
    [
      ...["row-1", "row-2", "row-3"],
      ...many.map((_, index) => (index < 15 ? "missing" : "differs")),
    ].toSorted(),
  );
  const all = readDiff(db, "main", { max: 500, skew: 0, quietKeys: NO_KEYS });
  t.equal(all.filter(({ verdict }) => verdict === "foreign").length, 33);
  t.same(
    all
      .toReversed()
      .sort(diffOrder)
      .map(({ row: theirs, record: ours }) => theirs?.identity ?? ours?.id),
    all.map(({ row: theirs, record: ours }) => theirs?.identity ?? ours?.id),
    "and those of several gateways are put together in the same order",
  );
});

t.test("a comparison is found by its row, its request id or its record, or a prefix of one", async (t) => {
  const { db } = comparedMirror(t);
  const skewOf = () => SKEW;
  const shown = (what: string) => findCompared(db, what, skewOf).map(({ row: theirs }) => theirs?.identity);
  t.same(shown("row-1"), ["row-1"], "the whole name before those that begin so");
  t.same(shown("id-8"), ["row-8"]);
  t.same(shown(record(3).id.toLowerCase()), ["row-3"]);
  t.same(new Set(shown("row-")), new Set(["row-1", "row-10", "row-2", "row-3", "row-8", "row-9"]));
  t.same(shown("r"), [], "a single letter is no beginning");
  t.same(shown("nothing-like-it"), []);
  const [taken] = findCompared(db, "row-3", skewOf);
  t.match(taken, {
    gateway: "main",
    verdict: "matched",
    row: { input_tokens: 1200, billed_microdollars: 9000, how: "id", at: AT + 2333 },
    record: { input_tokens: null, cost_microdollars: null, tokens_from: "none", billed_microdollars: 9000 },
  });
  t.match(findCompared(db, record(4).id, skewOf), [
    { row: null, verdict: "missing", record: { tool: "codex" } },
  ]);
});

t.test("a record that no console lists is shown with the reason", async (t) => {
  const free = record(1, { endpoint: "/v1/messages/count_tokens" });
  const running = record(2, { end: null, ended_at: null });
  const mirror = mirrorFile(t, [free, running]);
  const { db } = mirror;
  linkKeys(db, "main", [{ ref: "id:2", key: null }]);
  compareAll(mirror);
  t.match(
    findCompared(db, free.id, () => 0),
    [{ verdict: "none", reason: "no console is expected to list it" }],
  );
  t.match(
    findCompared(db, running.id, () => 0),
    [{ verdict: "none", reason: "it still runs" }],
  );
});
