import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import t, { type Test } from "tap";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import type { Period } from "../../../src/usage/reports/calendar.ts";
import {
  DIMENSIONS,
  type Dimension,
  type Question,
  readReport,
  withThisMachine,
} from "../../../src/usage/reports/report.ts";
import { longTest, runs } from "../../doubles/effort.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { createRandom } from "../../doubles/random.ts";
import { plausible, record } from "../../doubles/records.ts";

const DAY = 86_400_000;

function indexOf(t: Test, records: Iterable<UsageRecord>) {
  const folder = mkdtempSync(join(tmpdir(), "kb-report-"));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  t.teardown(() => {
    close();
    rmSync(folder, { recursive: true, force: true });
  });
  return db;
}

const ALL: Period = { since: null, until: null };

function ask(by: Dimension[], given: Partial<Question> = {}): Question {
  return { by, period: ALL, tools: [], models: [], machines: [], projects: [], sessions: [], ...given };
}

/** The same by going through every record, with another calendar than the one under test. */
function bruteForce(records: readonly UsageRecord[], question: Question, zone: string) {
  const { since, until } = question.period;
  const fits = (patterns: readonly string[], name: string | null) =>
    patterns.length === 0 ||
    patterns.some((pattern) =>
      new RegExp(`^${pattern.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*")}$`).test(name ?? ""),
    );
  const rows = new Map<
    string,
    { requests: number; input: number; output: number; cost: number; unknown: number; first: number[] }
  >();
  for (const one of records) {
    if (one.end === null || one.started_at < (since ?? 0) || one.started_at >= (until ?? Number.MAX_VALUE))
      continue;
    const model = one.model ?? one.model_answered;
    if (!fits(question.tools, one.tool) || !fits(question.models, model)) continue;
    if (!fits(question.machines, one.machine) || !fits(question.projects, one.project)) continue;
    const shared = `${wallTime(one.started_at, zone).slice(0, 10)}/${one.token ?? "no-token"}`;
    const session = one.session ?? (one.tool === null ? "" : shared);
    if (!fits(question.sessions, session)) continue;
    const names = question.by.map((dimension) => {
      if (dimension === "day") return wallTime(one.started_at, zone).slice(0, 10);
      if (dimension === "hour") return hourOf(one.started_at, zone);
      return dimension === "model" ? model : one[dimension];
    });
    const key = JSON.stringify(names);
    const row = rows.get(key) ?? { requests: 0, input: 0, output: 0, cost: 0, unknown: 0, first: [] };
    row.requests += 1;
    row.input += one.input_tokens ?? 0;
    row.cost += one.cost_microdollars ?? 0;
    row.output += one.output_tokens ?? 0;
    if (costsUnknown(one)) row.unknown += 1;
    if (one.first_byte_at !== null) row.first.push(one.first_byte_at - one.started_at);
    rows.set(key, row);
  }
  return [...rows].map(([key, { requests, input, output, cost, unknown, first }]) => {
    first.sort((a, b) => a - b);
    const at = (share: number) => first[Math.ceil(first.length * share) - 1] ?? null;
    return [key, requests, input, output, cost, unknown, at(0.5), at(0.95)];
  });
}

/** The bill may have more than these records. All of them ask for what is billed. */
function costsUnknown({ end, status, input_tokens, output_tokens, cost_microdollars }: UsageRecord): boolean {
  const known = input_tokens !== null && output_tokens !== null;
  return known ? cost_microdollars === null : end !== "refused" && (status === null || status < 400);
}

function byName(a: readonly unknown[], b: readonly unknown[]): number {
  return String(a[0]) < String(b[0]) ? -1 : 1;
}

function wallTime(at: number, timeZone: string): string {
  const parts = Object.fromEntries(
    new Intl.DateTimeFormat("en-CA", {
      timeZone,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      hourCycle: "h23",
      timeZoneName: "longOffset",
    })
      .formatToParts(at)
      .map(({ type, value }) => [type, value]),
  );
  const offset = parts.timeZoneName === "GMT" ? "+00:00" : String(parts.timeZoneName).slice(3);
  return `${parts.year}-${parts.month}-${parts.day}T${parts.hour}:${parts.minute}${offset}`;
}

function hourOf(at: number, zone: string): string {
  const wall = wallTime(at, zone);
  return `${wall.slice(0, 14)}00${wall.slice(16)}`;
}

const ZONES: [string, number][] = [
  ["UTC", Date.UTC(2026, 9, 23)],
  ["Europe/Berlin", Date.UTC(2026, 9, 23)],
  ["America/New_York", Date.UTC(2026, 2, 6)],
  ["Asia/Kathmandu", Date.UTC(2026, 9, 23)],
  ["Australia/Lord_Howe", Date.UTC(2026, 3, 3)],
];

/** What is left of a record that was cut off, by keybearer's end or in the middle of its stream. */
function sometimes(chance: number): Partial<UsageRecord> {
  const nothing = {
    output_tokens: null,
    reasoning_tokens: null,
    cost_microdollars: null,
    list_microdollars: null,
  };
  if (chance < 0.03)
    return {
      ...nothing,
      end: "client-left",
      status: 200,
      refusal: null,
      input_tokens: 5,
      tokens_from: "reported",
    };
  if (chance < 0.06)
    return { ...nothing, end: "interrupted", status: null, refusal: null, input_tokens: null };
  return chance < 0.08 ? { ...nothing, end: "complete", status: 500, refusal: null, input_tokens: null } : {};
}

for (const [zone, from] of ZONES) {
  t.test(`every sum is the sum of its records, whatever is asked (${zone})`, async (t) => {
    process.env.TZ = zone;
    const random = createRandom(7);
    const records = [...plausible(800, from, 4)].map((one) => ({
      ...one,
      key: random() < 0.5 ? "…a1b2" : "…c3d4",
      group: random() < 0.2 ? null : "coding",
      tool: random() < 0.05 ? null : one.tool,
      end: random() < 0.01 ? null : one.end,
      project: random() < 0.3 ? null : `~/code/${random() < 0.5 ? "app" : "site [1]"}`,
      branch: random() < 0.3 ? null : "main",
      session: random() < 0.3 ? null : `run-${Math.floor(random() * 20)}`,
      token: random() < 0.3 ? null : "laptop",
      ...sometimes(random()),
    }));
    const db = indexOf(t, records);
    const sharedOn = (at: number) => `${wallTime(at + DAY, zone).slice(0, 10)}/laptop`;
    const moment = fc.option(fc.integer({ min: from - DAY, max: from + 5 * DAY }), { nil: null });
    const questions = fc
      .record({
        by: fc.uniqueArray(fc.constantFrom(...DIMENSIONS), { minLength: 1, maxLength: 2 }),
        a: moment,
        b: moment,
        tools: fc.subarray(["codex", "c*", "nobody", "*ts"], { maxLength: 2 }),
        models: fc.subarray(["gpt-*", "*-4-5", "my-model"], { maxLength: 2 }),
        projects: fc.subarray(["~/code/app", "*[1]", "nowhere", ""], { maxLength: 2 }),
        sessions: fc.oneof(
          fc.constant([]),
          fc.subarray(["run-7", "run-1*", "nothing", sharedOn(from)], { maxLength: 2 }),
        ),
      })
      .filter(
        ({ by, a, b }) =>
          !(by.includes("day") && by.includes("hour")) && (a === null || b === null || a !== b),
      );
    fc.assert(
      fc.property(questions, ({ by, a, b, ...names }) => {
        const [since, until] = a !== null && b !== null && a > b ? [b, a] : [a, b];
        const question = ask(by, { period: { since, until }, ...names });
        const report = readReport(db, question, from + 4 * DAY);
        const rows = report.rows.map(({ names, sums, firstByte }) => [
          JSON.stringify(names),
          sums.requests,
          sums.input_tokens,
          sums.output_tokens,
          sums.cost_microdollars,
          sums.unmetered + sums.unpriced,
          firstByte.p50,
          firstByte.p95,
        ]);
        const wanted = bruteForce(records, question, zone);
        const all = wanted.reduce((sum, row) => sum + Number(row[1]), 0);
        const parts = [...report.total.parts.values()].reduce((sum, { requests }) => sum + requests, 0);
        t.same(
          { rows: rows.sort(byName), all: report.total.sums.requests, parts },
          { rows: wanted.sort(byName), all, parts: report.trend.length > 0 ? all : 0 },
          JSON.stringify(question),
        );
      }),
      { numRuns: runs(15), seed: 4 },
    );
  });
}

t.test("a period that begins and ends in the middle of a quarter is cut to the millisecond", async (t) => {
  process.env.TZ = "UTC";
  const at = Date.UTC(2026, 10, 1, 10, 7);
  const times = [at - 1, at, at + 1, at + 60_000, at + 120_000 - 1, at + 120_000];
  const db = indexOf(
    t,
    times.map((started_at, number) => record(number, { started_at })),
  );
  const count = (since: number | null, until: number | null) =>
    readReport(db, ask(["tool"], { period: { since, until } }), at + DAY).total.sums.requests;
  t.equal(count(at, at + 120_000), 4);
  t.equal(count(at, null), 5);
  t.equal(count(null, at), 1);
  t.equal(count(at, at + 1), 1);
  t.equal(count(at + 120_001, null), 0);
  t.equal(count(null, null), 6);
});

t.test("the clock of another machine may be wrong: its id is, but every sum counts it once", async (t) => {
  process.env.TZ = "UTC";
  const at = Date.UTC(2026, 10, 1, 10, 15);
  const machine = "laptop";
  const shifted = (number: number, minutesInId: number) => ({
    ...record(number, { started_at: at + minutesInId * 60_000 }),
    started_at: at,
    machine,
    machine_id: "id-of-laptop",
  });
  const db = indexOf(t, [shifted(1, -2), shifted(2, 0), shifted(3, 2), shifted(4, 40), shifted(5, -40)]);
  const count = (since: number | null, until: number | null) =>
    readReport(db, ask(["machine"], { period: { since, until } }), at + DAY).total.sums.requests;
  t.equal(count(at - 420_000, at + 420_000), 5);
  t.equal(count(at - 420_000, null), 5);
  t.equal(count(at, at + 1), 5);
  t.equal(count(null, at), 0);
  t.equal(count(at - 420_000, at), 0);
  t.equal(count(at + 1, null), 0);
});

t.test("reports distinguish machines, and an empty name is this one", async (t) => {
  const db = indexOf(t, [record(1), record(2, { machine: "laptop" }), record(3, { machine: "laptop" })]);
  const rows = (question: Question) =>
    readReport(db, question, Date.now()).rows.map(({ names, sums }) => [...names, sums.requests]);
  t.strictSame(rows(ask(["machine"])), [
    ["laptop", 2],
    [null, 1],
  ]);
  t.strictSame(rows(ask(["tool"], { machines: [""] })), [["codex", 1]]);
  t.strictSame(rows(ask(["tool"], { machines: ["lap*"] })), [["codex", 2]]);
  t.strictSame(rows(ask(["tool"], { machines: ["lap*", ""] })), [["codex", 3]]);
  const named = withThisMachine(readReport(db, ask(["tool", "machine"]), Date.now()), "desktop");
  t.strictSame(
    named.rows.map(({ names }) => names),
    [
      ["codex", "laptop"],
      ["codex", "desktop"],
    ],
  );
});

t.test(
  "the hour that is there twice makes two lines, in their order, and the one left out none",
  async (t) => {
    process.env.TZ = "Europe/Berlin";
    const autumn = Date.UTC(2026, 9, 24, 22);
    const every = (from: number, hours: number) =>
      Array.from({ length: hours * 2 }, (_, at) => record(at, { started_at: from + at * 1_800_000 }));
    const db = indexOf(t, every(autumn, 25));
    const report = readReport(db, ask(["hour"]), autumn + 2 * DAY);
    t.same(
      report.rows.slice(1, 5).map(({ names }) => names[0]),
      [
        "2026-10-25T01:00+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
      ],
    );
    t.equal(report.rows.length, 25);
    t.same([...new Set(report.rows.map(({ sums }) => sums.requests))], [2]);
    const byDay = readReport(db, ask(["day"]), autumn + 2 * DAY).rows;
    t.same(
      byDay.map(({ names, sums }) => [names[0], sums.requests]),
      [["2026-10-25", 50]],
    );

    const spring = Date.UTC(2026, 2, 28, 23);
    const short = indexOf(t, every(spring, 23));
    const rows = readReport(short, ask(["hour"]), spring + 2 * DAY).rows;
    t.equal(rows.length, 23);
    t.notOk(rows.some(({ names }) => names[0]?.startsWith("2026-03-29T02")));
    t.same(
      readReport(short, ask(["day"]), spring + 2 * DAY).rows.map(({ names, sums }) => [
        names[0],
        sums.requests,
      ]),
      [["2026-03-29", 46]],
    );
  },
);

longTest(t, "above 20,000 records, percentiles come from the rollups and are within 5 %", async (t) => {
  process.env.TZ = "UTC";
  const from = Date.UTC(2026, 9, 1);
  const records = [...plausible(21_000, from, 20)];
  const db = indexOf(t, records);
  const { rows, firstByteExact, total } = readReport(db, ask(["tool"]), from + 21 * DAY);
  t.equal(firstByteExact, false);
  t.equal(total.sums.requests, 21_000);
  const times = (tool: string) =>
    records
      .filter((one) => one.tool === tool && one.first_byte_at !== null)
      .map((one) => (one.first_byte_at ?? 0) - one.started_at)
      .sort((a, b) => a - b);
  for (const { names, firstByte } of rows) {
    const exact = times(names[0] ?? "");
    for (const [share, found] of [
      [0.5, firstByte.p50],
      [0.95, firstByte.p95],
    ] as const) {
      const wanted = exact[Math.ceil(exact.length * share) - 1] ?? 0;
      t.ok(Math.abs((found ?? 0) - wanted) <= wanted * 0.05, `${names[0]} ${share}: ${found} for ${wanted}`);
    }
  }
  const part = readReport(db, ask(["tool"], { period: { since: from, until: from + DAY } }), from + 21 * DAY);
  t.equal(part.firstByteExact, true, "of a part with fewer, each is read");
});

t.test("what is in flight is counted apart and is in no sum", async (t) => {
  process.env.TZ = "UTC";
  const inFlight = { end: null, ended_at: null, first_byte_at: null, status: null } as const;
  const db = indexOf(t, [
    record(1),
    record(2, inFlight),
    record(3, { ...inFlight, tool: "chat" }),
    record(4, { ...inFlight, model: null, model_answered: null }),
  ]);
  const now = record(1).started_at + 1000;
  t.match(readReport(db, ask(["tool"]), now), { inFlight: 3, total: { sums: { requests: 1 } } });
  t.equal(readReport(db, ask(["tool"], { tools: ["chat"] }), now).inFlight, 1);
  t.equal(readReport(db, ask(["tool"], { models: ["gpt-*"] }), now).inFlight, 2);
});

t.test("a star stands for anything, everything else for itself", async (t) => {
  process.env.TZ = "UTC";
  const cases: [string, string, boolean][] = [
    ["gpt-*", "gpt-5.1", true],
    ["gpt-*", "xgpt-5.1", false],
    ["*-mini", "gpt-5.1-mini", true],
    ["*-mini", "gpt-5.1-minis", false],
    ["gpt*mini", "gpt-5.1-mini", true],
    ["gpt*mini", "gptmini", true],
    ["ab*ba", "aba", false],
    ["a*b*c", "aXbXbXc", true],
    ["a*b*c", "acb", false],
    ["*", "", true],
    ["", "", true],
    ["", "x", false],
    ["gpt-5.1", "gpt-5x1", false],
    ["[a-z]", "b", false],
    ["[a-z]", "[a-z]", true],
    ["?", "a", false],
    ["what?", "what?", true],
    // Trying every way to divide the letters would take forever.
    [`${"*a".repeat(200)}b`, "a".repeat(20_000), false],
  ];
  const models = [...new Set(cases.map(([, name]) => name))];
  const inFlight = { end: null, ended_at: null, first_byte_at: null, status: null } as const;
  const db = indexOf(
    t,
    models.flatMap((name, number) => {
      const model = { model: name === "" ? null : name, model_answered: null };
      return [record(number, model), record(1000 + number, { ...model, ...inFlight })];
    }),
  );
  const now = record(1).started_at + 1000;
  for (const [pattern, name, fits] of cases) {
    const found = readReport(db, ask(["model"], { models: [pattern] }), now);
    const names = found.rows.map(({ names }) => names[0] ?? "");
    t.equal(names.includes(name), fits, `${pattern} ${name.slice(0, 30)}`);
    t.equal(found.inFlight, names.length, "records and rollups are filtered alike");
  }
  t.equal(readReport(db, ask(["model"]), now).rows.length, models.length);
  const either = readReport(db, ask(["model"], { models: ["x", "gpt*"] }), now);
  t.same(either.rows.map(({ names }) => names[0]).sort(), [
    "gpt-5.1",
    "gpt-5.1-mini",
    "gpt-5.1-minis",
    "gpt-5x1",
    "gptmini",
    "x",
  ]);
});

t.test("models without a price are listed, the most used first", async (t) => {
  process.env.TZ = "UTC";
  const unpriced = (number: number, model: string, started_at: number) =>
    record(number, { started_at, model, list_microdollars: null, cost_microdollars: null });
  const at = Date.UTC(2026, 10, 1, 10, 0);
  const db = indexOf(t, [
    unpriced(1, "one", at),
    unpriced(2, "two", at),
    unpriced(3, "two", at + 20 * 60_000),
    record(4, { started_at: at }),
    unpriced(5, "later", at + 3 * 3_600_000),
  ]);
  const before = { since: null, until: at + 25 * 60_000 };
  t.same(readReport(db, ask(["tool"], { period: before }), at + DAY).unpriced, [
    { model: "two", requests: 2 },
    { model: "one", requests: 1 },
  ]);
  t.same(readReport(db, ask(["hour"], { period: before, models: ["one"] }), at + DAY).unpriced, [
    { model: "one", requests: 1 },
  ]);
});

t.test("an empty log and one that nothing fits answer with nothing", async (t) => {
  process.env.TZ = "UTC";
  const empty = readReport(indexOf(t, []), ask(["day"]), Date.UTC(2026, 10, 1));
  t.match(empty, { rows: [], total: { sums: { requests: 0 } }, lastRecord: null, inFlight: 0 });
  const db = indexOf(t, [record(1)]);
  const none = readReport(db, ask(["hour"], { tools: ["codx"] }), record(1).started_at + DAY);
  t.match(none, { rows: [], lastRecord: record(1).started_at });
});

t.test("a period of thousands of years is no more work than what was recorded", async (t) => {
  process.env.TZ = "UTC";
  const db = indexOf(t, [record(1)]);
  // One step for each hour of it would not end today.
  for (const by of DIMENSIONS) {
    const period = { since: -8e15, until: 8e15 };
    t.equal(readReport(db, ask([by], { period }), record(1).started_at + DAY).total.sums.requests, 1, by);
  }
});

t.test("a report lists two thousand models, because clients can invent them", async (t) => {
  process.env.TZ = "UTC";
  const many = Array.from({ length: 2000 }, (_, number) => record(number, { model: `m${number}` }));
  const db = indexOf(t, many);
  const report = readReport(db, ask(["model"]), record(1).started_at + DAY);
  t.equal(report.rows.length, 2000);
});

t.test(
  "what was tried in the sandbox is left out once there is real usage, unless its tool is named",
  async (t) => {
    const tried = { gateway: "sandbox", tool: "try-me" };
    const requests = (records: UsageRecord[], question: Question) =>
      readReport(indexOf(t, records), question, Date.now()).total.sums.requests;
    const onlyTried = [record(1, tried), record(2, tried)];
    const both = [...onlyTried, record(3, { gateway: "main", tool: "codex" })];
    t.equal(requests(onlyTried, ask(["tool"])), 2);
    t.equal(requests(both, ask(["tool"])), 1);
    t.equal(requests(both, ask(["tool"], { tools: ["try-me"] })), 2);
  },
);
