import t from "tap";
import { differing, factsOf, verdictInWords } from "../../src/dashboard/page/components/compared.ts";
import { createTranslate } from "../../src/dashboard/page/messages/messages.ts";
import { billOf, standingOf } from "../../src/dashboard/page/pages/bill/state.ts";
import { kindPrices, shownCounts } from "../../src/mirror/report/notable.ts";
import type {
  Alarm,
  ComparedRecord,
  ComparedRow,
  MirrorReport,
  PriceExplanation,
} from "../../src/mirror/report/shape.ts";
import { NO_ROWS } from "../doubles/mirror-control.ts";

const ALARM: Alarm = {
  gateway: "main",
  key: "…a1b2",
  certain: true,
  reason: null,
  tools: ["codex"],
  count: 3,
  models: [],
  billed_microdollars: 1,
  first_at: 0,
  last_at: 1,
  ips: [],
  replaced: false,
};

function report(more: Partial<MirrorReport>): MirrorReport {
  return {
    gateway: "main",
    kind: "sub2api",
    detected: false,
    url: "https://gateway.example.com",
    state: "ok",
    why: null,
    next: null,
    last_sync: 1000,
    next_sync: null,
    progress: null,
    skew: null,
    alarms: [],
    watched_since: 0,
    account: null,
    rows: { ...NO_ROWS, total: 10, by_id: 10 },
    records: { matched: 10, differs: 0, pending: 0, missing: 0 },
    newest_row: 900,
    tools: [],
    models: [],
    elsewhere: [],
    unseen_machines: [],
    blind: [],
    ...more,
  };
}

t.test("only what was checked is reported as fine", (t) => {
  t.equal(standingOf(report({})), "fine");
  t.equal(standingOf(report({ alarms: [ALARM], state: "cannot-see" })), "alarm", "the worst first");
  const suspected = { ...ALARM, certain: false };
  t.equal(standingOf(report({ alarms: [suspected, ALARM] })), "alarm");
  t.equal(standingOf(report({ alarms: [suspected], state: "cannot-see" })), "suspected");
  t.equal(standingOf(report({ state: "cannot-see" })), "blind");
  t.equal(standingOf(report({ state: "needs-trust", last_sync: null })), "blind");
  t.equal(standingOf(report({ state: "needs-trust" })), "stale");
  t.equal(standingOf(report({ state: "syncing" })), "early");
  t.equal(standingOf(report({ state: "waiting", last_sync: null })), "early");
  t.equal(standingOf(report({ last_sync: null })), "early", "ok, but never read");
  t.equal(standingOf(report({ why: "its clock is off" })), "look");
  t.equal(standingOf(report({ unseen_machines: [{ machine: "laptop", since: 900 }] })), "look");
  for (const name of ["differs", "foreign_certain", "foreign_suspected"] as const)
    t.equal(standingOf(report({ rows: { ...NO_ROWS, total: 1, [name]: 1 } })), "look", name);
  t.equal(standingOf(report({ records: { matched: 1, differs: 0, pending: 0, missing: 1 } })), "look");
  t.end();
});

t.test("prices are listed by kind of token where they differ from each other", async (t) => {
  const model = {
    ...{ model: "m", group: null, tier: null, requests: 9, factor: null, factor_rows: 0 },
    ...{ multiplier: 1, multiplier_rows: 9, multiplier_here: null, difference_microdollars: 100 },
  };
  const explained = { rows: 9, explained: 9, unexplained_microdollars: 0, example: null };
  const prices = (factors: PriceExplanation["factors"]) =>
    kindPrices({ ...model, explanation: { ...explained, factors } });
  t.same(prices({ input: 1, output: 0.5 }), [
    ["input", 1],
    ["output", 0.5],
  ]);
  t.same([prices({ input: 2, output: 2 }), prices(null), kindPrices(model)], [[], [], []]);
});

t.test("the headline says 0 foreign only where a foreign row would have been found", (t) => {
  const foreign = (more: Partial<MirrorReport>) =>
    shownCounts(report(more))?.find(({ name }) => name === "foreign_certain")?.count;
  t.equal(foreign({}), 0);
  t.equal(foreign({ state: "cannot-see" }), null);
  t.equal(
    foreign({ state: "cannot-see", rows: { ...NO_ROWS, total: 2, foreign_certain: 2 } }),
    2,
    "what was seen was seen",
  );
  t.equal(shownCounts(report({ last_sync: null, rows: NO_ROWS })), null, "never read");
  t.same(
    shownCounts(report({ rows: { ...NO_ROWS, total: 3, by_id: 2, pending: 1 } }))?.map(({ name }) => name),
    ["by_id", "presumed", "pending", "foreign_certain"],
    "zeros that say nothing are left out",
  );
  t.same(
    shownCounts(report({ rows: { ...NO_ROWS, total: 3, by_id: 2, foreign_suspected: 1 } }))?.map(
      ({ name }) => name,
    ),
    ["by_id", "presumed", "foreign_suspected"],
    "a suspicion does not stand beside 0 foreign",
  );
  t.end();
});

type Row = NonNullable<ComparedRow["row"]>;

function row(more: Partial<Row> = {}): Row {
  return {
    identity: "r1",
    kind: "use",
    created_at: 5000,
    key_ref: "id:1",
    request_id: "q1",
    upstream_id: null,
    model: "gpt-5.1",
    group: null,
    multiplier: 1.5,
    service_tier: null,
    stream: true,
    endpoint: null,
    input_tokens: 100,
    cache_read_tokens: 20,
    cache_write_tokens: 0,
    output_tokens: 7,
    list_microdollars: 1000,
    billed_microdollars: 1500,
    began_at: null,
    duration_ms: 10,
    ip: null,
    user_agent: null,
    verdict: "matched",
    how: "id",
    certain: false,
    key: "…a1b2",
    reason: "",
    at: 5000,
    began: 1010,
    ...more,
  };
}

function record(more: Partial<ComparedRecord> = {}): ComparedRecord {
  return {
    id: "01JC0000000000000000000001",
    started_at: 1000,
    sent_at: 1000,
    ended_at: 5000,
    tool: "codex",
    key: "…a1b2",
    model: "gpt-5.1",
    stream: true,
    end: "complete",
    status: 200,
    input_tokens: 100,
    cache_read_tokens: 20,
    cache_write_tokens: 0,
    output_tokens: 7,
    tokens_from: "reported",
    list_microdollars: 930,
    cost_microdollars: 1400,
    billed_microdollars: 1500,
    gateway_ids: {},
    machine: null,
    user_agent: null,
    ...more,
  };
}

function pair(theirs: Row | null, ours: ComparedRecord | null, verdict = "differs"): ComparedRow {
  return { gateway: "main", row: theirs, record: ours, verdict, reason: "because" };
}

t.test("the cells that differ are marked by the rule of the verdict", (t) => {
  const marks = (theirs: Row | null, ours: ComparedRecord | null) => [...differing(pair(theirs, ours))];
  t.same(marks(row(), record()), [], "a price of the operator's own is no difference");
  t.same(marks(row({ output_tokens: 8 }), record()), ["output"]);
  t.same(marks(row({ input_tokens: 99, cache_read_tokens: 21 }), record()), ["input", "cache-read"]);
  t.same(
    marks(row({ input_tokens: 120, cache_read_tokens: null, cache_write_tokens: null }), record()),
    [],
    "a console that does not tell the cache apart",
  );
  t.same(marks(row({ input_tokens: 121, cache_read_tokens: null }), record()), ["input"]);
  t.same(
    marks(row({ output_tokens: 8 }), record({ tokens_from: "estimated" })),
    [],
    "an estimate may be off",
  );
  t.same(marks(row({ output_tokens: 8 }), record({ output_tokens: null })), [], "unknown is not different");
  t.same(marks(row({ billed_microdollars: 2500 }), record()), ["billed"]);
  t.same(marks(row({ billed_microdollars: 1501 }), record()), [], "rounding");
  t.same(marks(row({ billed_microdollars: 2500 }), null), ["billed"], "also of a foreign row");
  t.same(marks(row({ kind: "error", output_tokens: 0 }), record()), [], "a failed attempt");
  t.same(marks(null, record()), []);
  t.end();
});

t.test("both sides are shown, without the fields that neither has", (t) => {
  const facts = (theirs: Row | null, ours: ComparedRecord | null) =>
    factsOf(pair(theirs, ours), createTranslate("en"));
  const both = facts(row({ output_tokens: 8, cache_read_tokens: null }), record());
  const fact = (name: string) => both.find((one) => one.name === name);
  t.match(fact("output"), { ours: "7", theirs: "8" });
  t.match(fact("cache-read"), { ours: "20", theirs: "?" }, "unknown is not zero");
  t.match(fact("took"), { ours: "4.0 s", theirs: "10 ms" });
  t.equal(fact("from"), undefined);
  t.ok(facts(row(), null).every(({ ours }) => ours === null));
  t.ok(facts(null, record()).every(({ theirs }) => theirs === null));
  t.end();
});

t.test("verdicts are shown in either language, also those of a newer daemon", (t) => {
  const [en, zh] = [createTranslate("en"), createTranslate("zh-CN")];
  const foreign = pair(row({ verdict: "foreign", certain: true, how: null }), null, "foreign");
  t.equal(verdictInWords(foreign, en), "foreign, certain");
  t.equal(verdictInWords(foreign, zh), "外来，确定");
  t.equal(verdictInWords(pair(row(), record(), "matched"), en), "matched, by id");
  t.equal(verdictInWords(pair(null, record(), "missing"), en), "missing");
  t.equal(verdictInWords(pair(null, record(), "constructor"), en), "not compared");
  t.end();
});

t.test("the bill says whose the rows of all consoles are, and what was billed and expected", (t) => {
  const money = {
    tool: "codex",
    requests: 1,
    ours_unknown: 0,
    theirs_unknown: 0,
    foreign: 0,
    foreign_microdollars: 0,
    suspected: 0,
    suspected_microdollars: 0,
  };
  const one = report({
    rows: { ...NO_ROWS, total: 10, by_id: 4, by_pair: 2, presumed: 1, differs: 1, foreign_certain: 2 },
    tools: [{ ...money, ours_microdollars: 30, theirs_microdollars: 40 }],
  });
  const other = report({
    rows: { ...NO_ROWS, total: 5, by_sum: 5 },
    tools: [{ ...money, ours_microdollars: 1, theirs_microdollars: null }],
  });
  t.same(billOf([one, other]), { ours: 13, total: 15, amounts: { billed: 40, expected: 30 } });
  t.equal(billOf([other]).amounts, null);
  t.end();
});
