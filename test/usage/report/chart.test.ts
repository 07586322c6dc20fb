import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { usageAnswer } from "../../../src/dashboard/usage-answer.ts";
import { SLOT_MS, SUMS } from "../../../src/usage/ledger/cells.ts";
import { openForReading, openForWriting } from "../../../src/usage/ledger/connect.ts";
import { createPruning } from "../../../src/usage/ledger/upkeep/prune.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { type Chart, type ChartQuestion, readChart } from "../../../src/usage/report/chart.ts";
import type { ChartBin } from "../../../src/usage/report/chart-bins.ts";
import { countSelected } from "../../../src/usage/report/count.ts";
import { newestFirst, oldestFirst } from "../../../src/usage/report/pieces.ts";
import { readReport } from "../../../src/usage/report/read.ts";
import { LANE_NAMES, type Selection } from "../../../src/usage/report/selection.ts";
import { reportJson } from "../../../src/usage/report/shape.ts";
import { readToday } from "../../../src/usage/report/today.ts";
import { createRandom } from "../../doubles/random.ts";
import { plausible, writeRecords } from "../../doubles/records.ts";

const DAY = 86_400_000;
const now = Date.UTC(2026, 10, 15, 12, 34, 56, 789);
const folder = mkdtempSync(join(tmpdir(), "kb-"));
const file = join(folder, "usage.db");
writeRecords(file, plausible(1500, now - 60 * DAY, 60));
const opened = openForReading(file);
if (!opened.ok) throw new Error(opened.words);
const { db, close } = opened.connection;
t.teardown(() => {
  close();
  rmSync(folder, { recursive: true, force: true });
});

function select(given: Partial<Selection> = {}): Selection {
  return {
    period: { since: null, until: null },
    names: { tool: [], model: [], group: [], key: [] },
    ends: [],
    ...given,
  };
}

function toEnd<T>(steps: Generator<unknown, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

function chart(given: Partial<ChartQuestion> = {}): Chart {
  const made = toEnd(readChart(db, { selection: select(), bin: "day", by: "tool", ...given }, now));
  if (made === null) throw new Error("too many bins");
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

t.test("a chart says the same as a report of that period, whichever way it is cut", (t) => {
  for (const period of PERIODS) {
    for (const by of LANE_NAMES) {
      const report = readReport(db, { by: [by], period, tools: [], models: [] }, now);
      for (const bin of ["hour", "day", "month"] as ChartBin[]) {
        const made = chart({ selection: select({ period }), bin, by });
        const what = `${JSON.stringify(period)} by ${by}, ${bin}`;
        t.same(made.total.sums, report.total.sums, what);
        t.same(made.total.firstByte, report.total.firstByte, what);
        t.same(
          made.lines.map(({ name, sums, firstByte }) => [name, sums, firstByte]),
          report.rows.map(({ names, sums, firstByte }) => [names[0] ?? "", sums, firstByte]),
          what,
        );
        const binned = made.lines.flatMap(({ bins }) => [...bins.values()]);
        const requests = binned.reduce((sum, sums) => sum + sums.requests, 0);
        t.equal(requests, report.total.sums.requests, `${what}: nothing is in no bin`);
      }
    }
  }
  t.end();
});

t.test("each bin holds what a report of that bin finds", (t) => {
  const made = chart({
    selection: select({ period: { since: now - 9 * DAY + 5, until: null } }),
    by: "model",
  });
  for (const [at, bin] of made.bins.entries()) {
    const period = { since: Math.max(bin.from * SLOT_MS, now - 9 * DAY + 5), until: bin.to * SLOT_MS };
    const report = readReport(db, { by: ["model"], period, tools: [], models: [] }, now);
    for (const { names, sums } of report.rows) {
      const line = made.lines.find(({ name }) => name === (names[0] ?? ""));
      t.same(line?.bins.get(at), sums, `${bin.name} ${names[0]}`);
    }
  }
  t.end();
});

t.test("names select, and an empty one those that have none", (t) => {
  const [tool = ""] = chart().lines.map(({ name }) => name);
  const names = { tool: [tool], model: [], group: [], key: [] };
  const made = chart({ selection: select({ names }) });
  t.same(
    made.lines.map(({ name }) => name),
    [tool],
  );
  const report = readReport(
    db,
    { by: ["tool"], period: { since: null, until: null }, tools: [tool], models: [] },
    now,
  );
  t.same(made.total.sums, report.total.sums);
  t.ok(made.names.tool.length > 1, "all names are told all the same");
  t.same(chart({ selection: select({ names: { ...names, tool: ["nobody"] } }) }).lines, []);
  t.end();
});

t.test(
  "too many bins are refused, but not those of a period that begins long before the first record",
  (t) => {
    t.equal(toEnd(readChart(db, { selection: select(), bin: "hour", by: "tool" }, now + 100 * DAY)), null);
    const long = chart({ selection: select({ period: { since: 0, until: null } }) });
    t.ok(long.bins.length >= 60 && long.bins.length <= 62);
    t.end();
  },
);

t.test("pieces bring every finished record once, in order, and the count agrees", (t) => {
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
  "the dashboard says what keybearer usage says: over changed clocks, pruned days, refusals",
  async (t) => {
    const zone = process.env.TZ;
    t.teardown(() => {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    });
    const log = join(folder, "pruned.db");
    const records = [...plausible(2000, now - 60 * DAY, 60, 7)].map((one, at) => ({
      ...one,
      tool: at % 50 === 0 ? null : one.tool,
      billed_microdollars: at % 3 === 0 ? one.cost_microdollars : null,
    }));
    writeRecords(log, records);
    const book = openBook(log, "normal");
    const pruning = createPruning(now - 45 * DAY);
    while (pruning.step(book, 500));
    book.abandon();
    const read = openForReading(log);
    if (!read.ok) throw new Error(read.words);
    t.teardown(() => read.connection.close());
    const random = createRandom(3);
    // In the first the clocks were set back on October 25; in the others they change by half an hour, or not.
    for (const name of ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"]) {
      process.env.TZ = name;
      const change = new Date(2026, 9, 25).getTime();
      const month = new Date(2026, 9, 1).getTime();
      const free = now - Math.floor(random() * 60) * DAY - Math.floor(random() * DAY);
      const cuts: [Selection["period"], ChartBin][] = [
        [{ since: null, until: null }, "day"],
        [{ since: change, until: new Date(2026, 9, 26).getTime() }, "hour"],
        [{ since: month, until: new Date(2026, 10, 1).getTime() }, "month"],
        [{ since: free, until: null }, "day"],
        [{ since: null, until: free }, "month"],
      ];
      for (const [period, bin] of cuts) {
        const asked = { selection: select({ period }), bin, by: "tool" as const };
        const made = toEnd(readChart(read.connection.db, asked, now));
        if (made === null) throw new Error("too many bins");
        const shown = usageAnswer(asked, made, name);
        const question = { by: ["tool" as const], period, tools: [], models: [] };
        const said = reportJson(readReport(read.connection.db, question, now), name) as ReportJson;
        const what = `${name} ${JSON.stringify(period)} ${bin}`;
        t.same(inCommon(shown.total), inCommon(said.total), what);
        t.same(
          shown.rows.map((row) => [row.name, inCommon(row)]),
          said.rows.map((row) => [row.tool, inCommon(row)]),
          what,
        );
        t.same(shown.unpriced, said.models_without_price, what);
      }
      const days = readReport(
        read.connection.db,
        { by: ["day"], period: { since: change - 3 * DAY, until: null }, tools: [], models: [] },
        now,
      );
      const drawn = toEnd(
        readChart(
          read.connection.db,
          {
            selection: select({ period: { since: change - 3 * DAY, until: null } }),
            bin: "day",
            by: "tool",
          },
          now,
        ),
      );
      t.same(
        drawn?.bins.flatMap((day, at) => {
          const sums = drawn.total.bins.get(at);
          return sums === undefined ? [] : [[day.name, sums]];
        }),
        days.rows.map(({ names, sums }) => [names[0], sums]),
        `${name}: day by day`,
      );
      const moments = [change + 0.5 * DAY, change + 1.03 * DAY, change + 5 * DAY];
      for (const moment of moments.filter((one) => one < now)) {
        const { since, tools } = toEnd(readToday(read.connection.db, moment));
        const until = moment + DAY;
        const report = readReport(
          read.connection.db,
          // Beside what comes after `moment`, which nothing in a log does: the same slots.
          {
            by: ["tool"],
            period: { since, until: Math.floor(until / SLOT_MS) * SLOT_MS },
            tools: [],
            models: [],
          },
          until,
        );
        for (const { names, sums } of report.rows)
          t.same(tools.get(names[0] ?? ""), sums, `${name}: ${moment}`);
        t.equal(tools.size, report.rows.length);
      }
    }
  },
);

t.test(
  "a reading is done in many small steps, however many cells a tool has and however many lanes there are",
  async (t) => {
    const log = join(folder, "wide.db");
    const writing = openForWriting(log, { sync: "normal" });
    const first = Math.floor(now / SLOT_MS) - 200_000;
    const columns = SUMS.map((name) => `"${name}"`).join(", ");
    // One lane with a cell in each of many slots, and many lanes with one cell each, all idle today.
    const fill = (count: number, slot: string, model: string) =>
      writing.db.exec(
        `INSERT INTO log.cells (slot, tool, gateway, "group", key, model, first_bytes, ${columns})
       WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
       SELECT ${slot}, 'codex', 'main', 'coding', 'key', ${model}, '', ${SUMS.map(() => "1").join(", ")} FROM n`,
      );
    fill(60_000, `${first} + i`, "'busy'");
    fill(500, String(first), "'model-' || i");
    writing.close();
    const read = openForReading(log);
    if (!read.ok) throw new Error(read.words);
    t.teardown(() => read.connection.close());
    const period = { since: now - 2 * DAY, until: null };
    const readings: Record<string, () => Generator<unknown, unknown>> = {
      today: () => readToday(read.connection.db, now),
      chart: () =>
        readChart(read.connection.db, { selection: select({ period }), bin: "day", by: "tool" }, now),
      count: () => countSelected(read.connection.db, select({ period }), now),
    };
    for (const [name, make] of Object.entries(readings)) {
      let count = 0;
      for (const steps = make(); steps.next().done !== true; ) count += 1;
      t.ok(count > 40, `${name}: ${count} steps`);
    }
  },
);
