import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { SLOT_MS } from "../../../src/usage/ledger/cells.ts";
import { openForReading } from "../../../src/usage/ledger/connect.ts";
import { type Chart, type ChartQuestion, readChart } from "../../../src/usage/report/chart.ts";
import type { ChartBin } from "../../../src/usage/report/chart-bins.ts";
import { countSelected } from "../../../src/usage/report/count.ts";
import { newestFirst, oldestFirst } from "../../../src/usage/report/pieces.ts";
import { readReport } from "../../../src/usage/report/read.ts";
import { LANE_NAMES, type Selection } from "../../../src/usage/report/selection.ts";
import { plausible, writeRecords } from "../../doubles/records.ts";

const DAY = 86_400_000;
const now = Date.UTC(2026, 10, 15, 12, 34, 56, 789);
const folder = mkdtempSync(join(tmpdir(), "kb-"));
const file = join(folder, "usage.db");
writeRecords(file, plausible(6000, now - 60 * DAY, 60));
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
