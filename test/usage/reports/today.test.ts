import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { comparisonNotes } from "../../../src/cli/usage/report.ts";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import type { Filter } from "../../../src/usage/reports/records.ts";
import { compareToday, emptyComparison, type TodayComparison } from "../../../src/usage/reports/today.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { NO_USAGE, record } from "../../doubles/records.ts";

// In this week the clocks of Berlin go back, in the night to the 25th.
process.env.TZ = "Europe/Berlin";
const NOW = new Date(2026, 9, 28, 14, 20).getTime();
const NO_FILTER = { tools: [], models: [], machines: [], projects: [], sessions: [] };
const DOLLAR = 1_000_000;

let number = 0;
function spent(day: number, time: string, dollars: number, given: Partial<UsageRecord> = {}): UsageRecord {
  const [hours = 0, minutes = 0] = time.split(":").map(Number);
  number += 1;
  return record(number, {
    started_at: new Date(2026, 9, day, hours, minutes).getTime(),
    cost_microdollars: dollars * DOLLAR,
    ...given,
  });
}

function compare(t: Test, records: readonly UsageRecord[], filter: Partial<Filter> = {}): TodayComparison {
  const folder = mkdtempSync(join(tmpdir(), "kb-today-"));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  try {
    return compareToday(db, { ...NO_FILTER, period: { since: null, until: null }, ...filter }, NOW);
  } finally {
    close();
  }
}

t.test("today is compared with the median of the last seven days until the same time", async (t) => {
  const records = [
    spent(28, "00:00", 1),
    spent(28, "14:20", 2),
    spent(28, "14:21", 100),
    spent(27, "14:20", 4),
    spent(27, "14:21", 100),
    spent(26, "09:00", 3),
    spent(25, "14:19", 1),
    // None on the 24th.
    spent(23, "23:00", 100),
    spent(22, "10:00", 2),
    spent(21, "10:00", 5),
    spent(20, "10:00", 100),
  ];
  const { today, usual } = compare(t, records);
  t.match(today, {
    cost_microdollars: 3 * DOLLAR,
    requests: 2,
    since: new Date(2026, 9, 28).getTime(),
    until: NOW,
  });
  t.match(usual, { days: 7, cost_microdollars: 2 * DOLLAR, requests: 1 }, "of 4, 3, 1, 0, 0, 2 and 5");
  const young = compare(t, [spent(28, "10:00", 1), spent(26, "10:00", 4), spent(27, "10:00", 2)]);
  t.match(
    young.usual,
    { days: 2, cost_microdollars: 3 * DOLLAR },
    "days before the first record do not count",
  );
});

t.test("filters apply to today, to other days and to the forecast", async (t) => {
  const mine = { tool: "chat", session: "s1", project: "~/code/app" };
  const records = [
    spent(28, "10:00", 7),
    spent(28, "10:00", 1, mine),
    spent(27, "10:00", 7),
    spent(27, "10:00", 2, mine),
  ];
  for (const filter of [{ tools: ["chat"] }, { projects: ["~/code/*"] }, { sessions: ["s1"] }]) {
    const found = compare(t, records, filter);
    t.match(found.today, { requests: 1, cost_microdollars: DOLLAR });
    t.match(found.usual, { days: 1, cost_microdollars: 2 * DOLLAR });
    t.match(found.forecast, { spent_microdollars: 3 * DOLLAR, days: 1 });
  }
});

t.test("the forecast adds what usual days cost to what the month cost so far", async (t) => {
  // Two dollars on each of the last ten days, one today. Three days are left after it.
  const daily = Array.from({ length: 10 }, (_, back) => spent(27 - back, "10:00", 2));
  t.same(compare(t, [...daily, spent(28, "10:00", 1)]).forecast, {
    month: "2026-10",
    spent_microdollars: 21 * DOLLAR,
    usual_day_microdollars: 2 * DOLLAR,
    days: 10,
    cost_microdollars: (21 + 1 + 6) * DOLLAR,
  });
  // Every second day: so half of the three that are left. Today has had more than usual.
  const every = [27, 25, 23, 21].map((day) => spent(day, "10:00", 2));
  const second = compare(t, [...every, spent(28, "10:00", 5)]).forecast;
  t.equal(second?.cost_microdollars, Math.round((13 + 2 * (4 / 7) * 3) * DOLLAR));
  // Only the last fourteen days with requests tell what is usual; those of last month are not of this one.
  const long = Array.from({ length: 40 }, (_, back) => spent(27 - back, "10:00", back < 14 ? 2 : 50));
  t.match(compare(t, long).forecast, {
    spent_microdollars: (14 * 2 + 13 * 50) * DOLLAR,
    usual_day_microdollars: 2 * DOLLAR,
    days: 14,
    cost_microdollars: (14 * 2 + 13 * 50 + 2 + 6) * DOLLAR,
  });
});

t.test("where there is nothing to compare with, nothing is invented", async (t) => {
  t.match(compare(t, [spent(28, "10:00", 1)]), {
    today: { cost_microdollars: DOLLAR },
    usual: null,
    forecast: null,
  });
  t.match(compare(t, []), emptyComparison(NOW));
  t.same(comparisonNotes(compare(t, [spent(28, "10:00", 1)]), NOW), [
    "by 14:20: $1.00; there is no earlier day to compare with",
  ]);
  const unknown = compare(t, [spent(28, "10:00", 0, NO_USAGE), spent(28, "10:00", 3), spent(27, "10:00", 2)]);
  t.equal(unknown.today.unknown_cost, 1);
  t.same(comparisonNotes(unknown, NOW), [
    "by 14:20: $3.00 + ?; on the last 1 day at this time: median $2.00",
    "2026-10 so far: $5.00; forecast for the month: $11.00 (the median of the last 1 day with requests is $2.00)",
  ]);
  const free = { cost_microdollars: null, list_microdollars: null };
  t.same(comparisonNotes(compare(t, [spent(28, "10:00", 0, free), spent(27, "10:00", 0, free)]), NOW), [
    "by 14:20: 2.3k tokens; on the last 1 day at this time: median 2.3k tokens",
  ]);
});
