import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { QUARTER_MS } from "../../../src/core/units.ts";
import { chartAnswer } from "../../../src/dashboard/usage-api.ts";
import { openIndex, openIndexForReading } from "../../../src/usage/index/database.ts";
import type { Unit } from "../../../src/usage/reports/calendar.ts";
import {
  type Chart,
  type ChartQuestion,
  countSelected,
  everythingIn,
  readChart,
  readToday,
} from "../../../src/usage/reports/chart.ts";
import {
  newestFirst,
  oldestFirst,
  SELECTED_NAMES,
  type Selection,
} from "../../../src/usage/reports/records.ts";
import { readReport, reportJson } from "../../../src/usage/reports/report.ts";
import { SUMS } from "../../../src/usage/rollups.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { createRandom } from "../../doubles/random.ts";
import { plausible } from "../../doubles/records.ts";

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

function toEnd<T>(steps: Generator<unknown, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

function chart(given: Partial<ChartQuestion> = {}): Chart {
  const made = toEnd(readChart(db, { selection: select(), unit: "day", by: "tool", ...given }, now));
  if (made === null) throw new Error("too many intervals");
  return made;
}

const PERIODS = [
  { since: null, until: null },
  { since: now - 30 * DAY, until: null },
  { since: now - 41 * DAY + 123_457, until: now - 2 * DAY - 77 },
  { since: now - 5 * DAY, until: now - 5 * DAY + 400_000 },
  { since: null, until: now - 20 * DAY },
  { since: now + DAY, until: null },
];

t.test("a chart has the same sums as a report of that period, in every interval", (t) => {
  for (const period of PERIODS) {
    for (const by of SELECTED_NAMES) {
      const report = readReport(
        db,
        { by: [by], period, tools: [], models: [], machines: [], projects: [], sessions: [] },
        now,
      );
      for (const unit of ["hour", "day", "month"] as Unit[]) {
        const made = chart({ selection: select({ period }), unit, by });
        const what = `${JSON.stringify(period)} by ${by}, ${unit}`;
        t.same(made.total.sums, report.total.sums, what);
        t.same(made.total.firstByte, report.total.firstByte, what);
        t.same(
          made.rows.map(({ names, sums, firstByte }) => [names, sums, firstByte]),
          report.rows.map(({ names, sums, firstByte }) => [names, sums, firstByte]),
          what,
        );
        const parts = made.rows.flatMap(({ parts }) => [...parts.values()]);
        const requests = parts.reduce((sum, sums) => sum + sums.requests, 0);
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
  for (const [at, { name, from, to }] of made.intervals.entries()) {
    const period = { since: Math.max(from * QUARTER_MS, now - 9 * DAY + 5), until: to * QUARTER_MS };
    const report = readReport(
      db,
      { by: ["model"], period, tools: [], models: [], machines: [], projects: [], sessions: [] },
      now,
    );
    for (const { names, sums } of report.rows) {
      const row = made.rows.find((one) => one.names[0] === names[0]);
      t.same(row?.parts.get(at), sums, `${name} ${names[0]}`);
    }
  }
  t.end();
});

t.test("a chart of one tool has the sums of that tool's report, and still lists all names", (t) => {
  const tool = chart().rows[0]?.names[0] ?? "";
  const names = { tool: [tool], model: [], group: [], key: [] };
  const made = chart({ selection: select({ names }) });
  t.same(
    made.rows.map(({ names }) => names),
    [[tool]],
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
  t.same(made.total.sums, report.total.sums);
  t.ok(made.names.tool.length > 1, "all names are listed");
  t.same(chart({ selection: select({ names: { ...names, tool: ["nobody"] } }) }).rows, []);
  t.end();
});

t.test(
  "too many intervals are refused, but not those of a period that begins long before the first record",
  (t) => {
    t.equal(toEnd(readChart(db, { selection: select(), unit: "hour", by: "tool" }, now + 100 * DAY)), null);
    const long = chart({ selection: select({ period: { since: 0, until: null } }) });
    t.ok(long.intervals.length >= 60 && long.intervals.length <= 62);
    t.end();
  },
);

t.test("steps bring every finished record once, in order, and the count agrees", (t) => {
  for (const period of PERIODS) {
    for (const ends of [[], ["refused"], ["client-left", "interrupted"]] as Selection["ends"][]) {
      const selection = select({ period, ends });
      const up = [...oldestFirst(db, selection)].flat().map(({ id }) => id);
      const down = [...newestFirst(db, selection, null)].flat().map(({ id }) => id);
      t.same(up, [...down].reverse());
      t.same(up, [...new Set(up)].sort());
      t.equal(toEnd(countSelected(db, selection, now)), up.length, JSON.stringify(selection.period));
    }
  }
  const all = [...newestFirst(db, select(), null)].flat();
  const middle = all[2500]?.id ?? "";
  t.equal([...newestFirst(db, select(), middle)].flat()[0]?.id, all[2501]?.id);
  t.equal(toEnd(countSelected(db, select({ ends: ["complete"] }), now)), null);
  t.end();
});

interface ReportJson {
  readonly rows: readonly Record<string, number | string | null>[];
  readonly total: Record<string, number | null>;
  readonly models_without_price: unknown;
}

/** What `keybearer usage --json` and the dashboard have in common of a line. */
function inCommon(line: object): object {
  const { tokens: _, tool: _tool, name: _name, cache_share, ...numbers } = line as Record<string, unknown>;
  const share = typeof cache_share === "number" ? Math.round(cache_share * 10_000) / 10_000 : null;
  return { ...numbers, cache_share: share };
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
        const made = toEnd(readChart(db, asked, now));
        if (made === null) throw new Error("too many intervals");
        const shown = chartAnswer(asked, made, name);
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
      const drawn = toEnd(
        readChart(
          db,
          {
            selection: select({ period: { since: change - 3 * DAY, until: null } }),
            unit: "day",
            by: "tool",
          },
          now,
        ),
      );
      t.same(
        drawn?.intervals.flatMap((day, at) => {
          const sums = drawn.total.parts.get(at);
          return sums === undefined ? [] : [[day.name, sums]];
        }),
        days.rows.map(({ names, sums }) => [names[0], sums]),
        `${name}: day by day`,
      );
      const moments = [change + 0.5 * DAY, change + 1.03 * DAY, change + 5 * DAY];
      for (const moment of moments.filter((one) => one < now)) {
        const { since, tools } = toEnd(readToday(db, moment));
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
        for (const { names, sums } of report.rows)
          t.same(tools.get(names[0] ?? null), sums, `${name}: ${moment}`);
        t.equal(tools.size, report.rows.length);
      }
    }
  },
);

t.test("a reading is done in many small steps, however many rollups and series there are", async (t) => {
  const file = makeIndex(join(folder, "many"), []);
  const writing = openIndex(file);
  const first = Math.floor(now / QUARTER_MS) - 60_000;
  // One series with a rollup in every quarter hour, and many series with one rollup each.
  const fill = (count: number, quarter: string, model: string) =>
    writing.db.exec(
      `INSERT INTO usage.rollups (quarter, tool, gateway, "group", key, model, machine, project, branch, token, answered, first_bytes, ${SUMS.join(", ")})
       WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
       SELECT ${quarter}, 'codex', 'main', 'coding', 'key', ${model}, '', '', '', '', '', '', ${SUMS.map(() => "1").join(", ")} FROM n`,
    );
  fill(60_000, `${first} + i`, "'busy'");
  fill(500, String(first), "'model-' || i");
  writing.close();
  const { db, close } = openIndexForReading(file);
  t.teardown(close);
  const readings: Record<string, () => Generator<unknown, unknown>> = {
    chart: () => readChart(db, { selection: select(), unit: "day", by: "model" }, now),
    count: () => countSelected(db, select(), now),
  };
  for (const [name, start] of Object.entries(readings)) {
    let count = 0;
    for (const steps = start(); steps.next().done !== true; ) count += 1;
    t.ok(count > 50, `${name}: ${count} steps`);
  }
  t.equal(toEnd(countSelected(db, select(), now)), 60_500);
});
