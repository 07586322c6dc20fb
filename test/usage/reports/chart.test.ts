import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { dayName, QUARTER_MS } from "../../../src/core/units.ts";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import { startOfDay, type Unit } from "../../../src/usage/reports/calendar.ts";
import {
  type ChartQuestion,
  everythingIn,
  readChart,
  readToday,
  type UsageChart,
  type UsageSeries,
} from "../../../src/usage/reports/chart.ts";
import { OUTCOMES, SELECTED_NAMES } from "../../../src/usage/reports/names.ts";
import {
  attemptsAt,
  type CsvCursor,
  csvPage,
  lastRefused,
  readPage,
  type Selection,
} from "../../../src/usage/reports/records.ts";
import { readReport, reportJson } from "../../../src/usage/reports/report.ts";
import { shownSums, sumTokens, type UsageRow, unknownCost } from "../../../src/usage/reports/sums.ts";
import type { Sums } from "../../../src/usage/rollups.ts";
import { LONG } from "../../doubles/effort.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { createRandom } from "../../doubles/random.ts";
import { plausible, record } from "../../doubles/records.ts";

const DAY = 86_400_000;
const now = Date.UTC(2026, 10, 15, 12, 34, 56, 789);
const folder = mkdtempSync(join(tmpdir(), "kb-"));
const { db, close } = openIndexForReading(makeIndex(folder, plausible(1500, now - 60 * DAY, 60)));
process.once("exit", () => {
  close();
  rmSync(folder, { recursive: true, force: true });
});

function select(given: Partial<Selection> = {}): Selection {
  return { ...everythingIn(), ...given };
}

function chart(given: Partial<ChartQuestion> = {}): UsageChart {
  const made = readChart(db, { selection: select(), unit: "day", by: "tool", ...given }, now);
  if (made === null) throw new Error("too many intervals");
  return made;
}

/** The row of a report as a chart has it. */
function charted(row: UsageRow): object {
  return { ...shownSums(row), tokens: sumTokens(row.sums) };
}

/** What a series has in one bar. */
function barOf({ requests, tokens, cost_microdollars, unknown_cost }: UsageSeries, at: number): unknown[] {
  return [requests[at], tokens[at], cost_microdollars[at], unknown_cost[at]];
}

function barFor(sums: Sums): unknown[] {
  return [sums.requests, sumTokens(sums), sums.cost_microdollars, unknownCost(sums)];
}

const PERIODS = [
  { since: null, until: null },
  { since: now - 30 * DAY, until: null },
  { since: now - 41 * DAY + 123_457, until: now - 2 * DAY - 77 },
  { since: now - 5 * DAY, until: now - 5 * DAY + 400_000 },
  { since: null, until: now - 20 * DAY },
  { since: now + DAY, until: null },
];

const UNITS: readonly Unit[] = ["hour", "day", "month"];

t.test("a chart has the same sums as a report of that period, in every interval", (t) => {
  for (const [at, period] of PERIODS.entries()) {
    for (const [column, by] of SELECTED_NAMES.entries()) {
      const report = readReport(
        db,
        { by: [by], period, tools: [], models: [], machines: [], projects: [], sessions: [] },
        now,
      );
      // In npm test one of the units, each in turn.
      for (const unit of LONG ? UNITS : UNITS.filter((_, turn) => turn === (at + column) % UNITS.length)) {
        const made = chart({ selection: select({ period }), unit, by });
        const what = `${JSON.stringify(period)} by ${by}, ${unit}`;
        t.same(made.total, charted(report.total), what);
        t.same(
          made.rows,
          report.rows.map((row) => ({ name: row.names[0], ...charted(row) })),
          what,
        );
        const requests = made.series.flatMap((each) => each.requests).reduce((sum, each) => sum + each, 0);
        t.equal(requests, report.total.sums.requests, `${what}: everything is in an interval`);
      }
    }
  }
  t.end();
});

t.test("each interval has what a report of that interval finds", (t) => {
  const made = chart({
    selection: select({ period: { since: now - 9 * DAY + 5, until: null } }),
    by: "model",
  });
  for (const [at, from] of made.bins.entries()) {
    const period = {
      since: Math.max(from, now - 9 * DAY + 5),
      until: made.bins[at + 1] ?? made.bins_end,
    };
    const report = readReport(
      db,
      { by: ["model"], period, tools: [], models: [], machines: [], projects: [], sessions: [] },
      now,
    );
    for (const { names, sums } of report.rows) {
      const series = made.series.find(({ name }) => name === names[0]);
      t.same(series === undefined ? null : barOf(series, at), barFor(sums), `${from} ${names[0]}`);
    }
  }
  t.end();
});

t.test("a chart of one tool has the sums of that tool's report", (t) => {
  const tool = chart().rows[0]?.name ?? "";
  const names = { ...everythingIn().names, tool: [tool] };
  const made = chart({ selection: select({ names }) });
  t.same(
    made.rows.map(({ name }) => name),
    [tool],
  );
  const report = readReport(
    db,
    {
      by: ["tool"],
      period: { since: null, until: null },
      tools: [tool],
      models: [],
      machines: [],
      projects: [],
      sessions: [],
    },
    now,
  );
  t.same(made.total, charted(report.total));
  t.same(chart({ selection: select({ names: { ...names, tool: ["nobody"] } }) }).rows, []);
  t.end();
});

t.test(
  "too many intervals are refused, but not those of a period that begins long before the first record",
  (t) => {
    t.equal(readChart(db, { selection: select(), unit: "hour", by: "tool" }, now + 100 * DAY), null);
    const long = chart({ selection: select({ period: { since: 0, until: null } }) });
    t.ok(long.bins.length >= 60 && long.bins.length <= 62);
    t.end();
  },
);

t.test("a period that is not over has bars until its end", (t) => {
  const period = { since: now - 2 * DAY, until: now + 3 * DAY };
  const made = chart({ selection: select({ period }), unit: "day" });
  t.equal(made.bins.length, 6);
  t.equal(made.bins_end, Math.ceil(period.until / QUARTER_MS) * QUARTER_MS);
  t.end();
});

/** All finished records of a selection, page by page. */
function walk(selection: Selection, limit: number): string[] {
  const ids: string[] = [];
  for (let before: string | null = null; ; ) {
    const page = readPage(db, selection, { before, after: null }, limit);
    ids.push(...page.records.map(({ id }) => id));
    if (page.older === null) return ids;
    before = page.older;
  }
}

t.test("pages bring every record once, newest first, and lead back to the newest", (t) => {
  for (const period of PERIODS) {
    const selection = select({ period });
    const ids = walk(selection, 97);
    t.same(ids, [...new Set(ids)].sort().reverse());
    t.equal(ids.length, chart({ selection }).total.requests, JSON.stringify(period));
  }
  const all = walk(select(), 500);
  let page = readPage(db, select(), { before: all[1400] ?? "", after: null }, 100);
  t.equal(page.records[0]?.id, all[1401]);
  const back: string[] = [];
  while (page.newer !== null) {
    page = readPage(db, select(), { before: null, after: page.newer }, 100);
    back.unshift(...page.records.map(({ id }) => id));
  }
  t.same(back, all.slice(0, 1401), "a page at a time");
  t.end();
});

t.test("how requests ended, texts and sessions select the same records for sums and for pages", (t) => {
  const records = [...plausible(400, now - 4 * DAY, 4, 5)].map((one, at) => ({
    ...one,
    session: at % 3 === 0 ? null : `session-${at % 7}`,
    project: at % 2 === 0 ? "~/src/50%_off" : null,
    status: one.end === "complete" && at % 11 === 0 ? 401 : one.status,
  }));
  const { db, close } = openIndexForReading(makeIndex(join(folder, "selected"), records));
  t.teardown(close);
  const isFailed = ({ end, status }: (typeof records)[number]) =>
    end === "gateway-failed" || (end === "complete" && (status ?? 0) >= 400);
  const selections: [Partial<Selection>, (one: (typeof records)[number]) => boolean][] = [
    [{ ends: ["failed"] }, isFailed],
    [
      { ends: ["complete", "refused"] },
      (one) => (one.end === "complete" && !isFailed(one)) || one.end === "refused",
    ],
    [{ search: "50%_OFF" }, ({ project }) => project !== null],
    [{ search: "5__" }, () => false],
    [{ search: "sonnet" }, ({ model }) => model?.includes("sonnet") ?? false],
    [
      { names: { ...everythingIn().names, session: ["session-2"] } },
      ({ session }) => session === "session-2",
    ],
    [{ names: { ...everythingIn().names, session: [""] } }, ({ session }) => session === null],
    [{ names: { ...everythingIn().names, project: [""], machine: [""] } }, ({ project }) => project === null],
  ];
  for (const [given, isSelected] of selections) {
    const selection = select({ period: { since: now - 5 * DAY, until: now + DAY }, ...given });
    const wanted = records.filter(isSelected);
    const what = JSON.stringify(given);
    const page = readPage(db, selection, { before: null, after: null }, 500);
    t.same(page.records.map(({ id }) => id).sort(), wanted.map(({ id }) => id).sort(), what);
    for (const by of SELECTED_NAMES) {
      const made = readChart(db, { selection, unit: "day", by }, now);
      const sum = (rows: readonly { readonly requests: number }[]) =>
        rows.reduce((all, { requests }) => all + requests, 0);
      t.equal(sum(made?.rows ?? []), wanted.length, `${what} by ${by}`);
    }
  }
  const outcomes = OUTCOMES.map(
    (end) => readPage(db, select({ ends: [end] }), { before: null, after: null }, 500).records.length,
  );
  t.equal(
    outcomes.reduce((all, each) => all + each),
    records.length,
    "each record has one outcome",
  );
  t.end();
});

t.test("a file has every record once, oldest first, part by part", (t) => {
  const ids: string[] = [];
  for (let cursor: CsvCursor | null = null; ; ) {
    const part = csvPage(db, select(), cursor);
    ids.push(
      ...part.text
        .split("\r\n")
        .slice(0, -1)
        .map((line) => line.slice(0, 26)),
    );
    if (part.next === null) break;
    cursor = part.next;
  }
  t.same(ids, walk(select(), 500).reverse());
  t.same(
    lastRefused(db, 7).map(({ id }) => id),
    readPage(db, select({ ends: ["refused"] }), { before: null, after: null }, 7).records.map(({ id }) => id),
  );
  t.end();
});

t.test("of many sessions a chart has the first ones, and the others as one", (t) => {
  const state = mkdtempSync(join(tmpdir(), "kb-many-"));
  const many = Array.from({ length: 1100 }, (_, n) =>
    record(n, { started_at: now - DAY + n, session: `s-${n}`, cost_microdollars: 5000 - n }),
  );
  const index = openIndexForReading(makeIndex(state, many));
  t.teardown(() => {
    index.close();
    rmSync(state, { recursive: true, force: true });
  });
  const made = readChart(index.db, { selection: select(), unit: "day", by: "session" }, now);
  const requestsIn = (series: UsageSeries | null | undefined) =>
    (series?.requests ?? []).reduce((all, each) => all + each, 0);
  t.equal(made?.rows.length, 1000);
  t.equal(made?.rows[0]?.name, "s-0");
  t.equal(
    made?.series.reduce((all, each) => all + requestsIn(each), 0),
    60,
  );
  t.equal(made?.others?.names, 1040);
  t.equal(requestsIn(made?.others), 1040);
  t.equal(made?.total.requests, 1100);
  t.end();
});

t.test("a request that failed and was sent again is shown with its other attempts", (t) => {
  const sent = (number: number, minutes: number, given: Partial<UsageRecord> = {}) =>
    record(number, { started_at: now + minutes * 60_000, bytes_in: 777, session: "s", ...given });
  const first = sent(1, 0, { status: 529 });
  const second = sent(2, 1, { end: "client-left" });
  const third = sent(3, 2);
  const other = sent(4, 2, { bytes_in: 778 });
  const late = sent(5, 30);
  const again = sent(8, 4);
  const alone = sent(6, 3, { session: "t" });
  const same = sent(7, 3.5, { session: "t" });
  const file = makeIndex(join(folder, "attempts"), [first, second, third, other, late, again, alone, same]);
  const { db, close } = openIndexForReading(file);
  t.teardown(close);
  const ids = (one: UsageRecord) => attemptsAt(db, one).map(({ id }) => id);
  for (const one of [first, second, third]) t.same(ids(one), [first.id, second.id, third.id]);
  t.same(ids(again), [], "the one before was answered");
  t.same(ids(other), []);
  t.same(ids(late), []);
  t.same(ids(alone), [], "the same was asked twice, and answered twice");
  t.end();
});

interface ReportJson {
  readonly rows: readonly Record<string, number | string | null>[];
  readonly total: Record<string, number | null>;
  readonly models_without_price: unknown;
}

/** What `keybearer usage --json` and the dashboard have in common of a line. */
function inCommon(line: object): object {
  const { tokens: _, tool: _tool, name: _name, ...numbers } = line as Record<string, unknown>;
  return numbers;
}

t.test(
  "the dashboard shows what keybearer usage shows: clock changes, unknown tools, refusals",
  async (t) => {
    const zone = process.env.TZ;
    t.teardown(() => {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    });
    const records = [...plausible(2000, now - 60 * DAY, 60, 7)].map((one, at) => ({
      ...one,
      tool: at % 50 === 0 ? null : one.tool,
      billed_microdollars: at % 3 === 0 ? one.cost_microdollars : null,
    }));
    const state = join(folder, "unknown-tools");
    const { db, close } = openIndexForReading(makeIndex(state, records));
    t.teardown(close);
    const random = createRandom(3);
    // In the first the clocks were set back on October 25; in the others they change by half an hour, or not.
    for (const name of ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]) {
      process.env.TZ = name;
      const change = new Date(2026, 9, 25).getTime();
      const month = new Date(2026, 9, 1).getTime();
      const free = now - Math.floor(random() * 60) * DAY - Math.floor(random() * DAY);
      const cuts: [Selection["period"], Unit][] = [
        [{ since: null, until: null }, "day"],
        [{ since: change, until: new Date(2026, 9, 26).getTime() }, "hour"],
        [{ since: month, until: new Date(2026, 10, 1).getTime() }, "month"],
        [{ since: free, until: null }, "day"],
        [{ since: null, until: free }, "month"],
      ];
      for (const [period, unit] of cuts) {
        const asked = { selection: select({ period }), unit, by: "tool" as const };
        const shown = readChart(db, asked, now);
        if (shown === null) throw new Error("too many intervals");
        const question = {
          by: ["tool" as const],
          period,
          tools: [],
          models: [],
          machines: [],
          projects: [],
          sessions: [],
        };
        const said = reportJson(readReport(db, question, now), name) as ReportJson;
        const what = `${name} ${JSON.stringify(period)} ${unit}`;
        t.same(inCommon(shown.total), inCommon(said.total), what);
        t.same(
          shown.rows.map((row) => [row.name, inCommon(row)]),
          said.rows.map((row) => [row.tool, inCommon(row)]),
          what,
        );
        t.same(shown.unpriced, said.models_without_price, what);
      }
      const days = readReport(
        db,
        {
          by: ["day"],
          period: { since: change - 3 * DAY, until: null },
          tools: [],
          models: [],
          machines: [],
          projects: [],
          sessions: [],
        },
        now,
      );
      const drawn = readChart(
        db,
        {
          selection: select({ period: { since: change - 3 * DAY, until: null } }),
          unit: "day",
          by: "tool",
        },
        now,
      );
      t.same(
        drawn?.bins
          .map((at, bar) => [
            dayName(at),
            drawn.series.reduce((all, { requests }) => all + (requests[bar] ?? 0), 0),
            drawn.series.reduce((all, { cost_microdollars: cost }) => all + (cost[bar] ?? 0), 0),
          ])
          .filter(([, requests]) => requests !== 0),
        days.rows.map(({ names, sums }) => [names[0], sums.requests, sums.cost_microdollars]),
        `${name}: day by day`,
      );
      const moments = [change + 0.5 * DAY, change + 1.03 * DAY, change + 5 * DAY];
      for (const moment of moments.filter((one) => one < now)) {
        const { tools } = readToday(db, moment);
        const since = startOfDay(moment);
        const until = moment + DAY;
        const report = readReport(
          db,
          // Beside what comes after `moment`, which nothing in a log does: the same quarters.
          {
            by: ["tool"],
            period: { since, until: Math.floor(until / QUARTER_MS) * QUARTER_MS },
            tools: [],
            models: [],
            machines: [],
            projects: [],
            sessions: [],
          },
          until,
        );
        t.same(
          tools,
          report.rows.map(({ names, sums }) => ({
            tool: names[0],
            requests: sums.requests,
            refused: sums.refused,
            cost_microdollars: sums.cost_microdollars,
            unknown_cost: unknownCost(sums),
          })),
          `${name}: ${moment}`,
        );
      }
    }
  },
);
