import t from "tap";
import {
  calendarBins,
  framed,
  labelled,
  spread,
} from "../../src/dashboard/page/components/chart-calendar.ts";
import { barsOf, stretchesOf } from "../../src/dashboard/page/components/record-timeline.ts";
import {
  MOST_ROWS,
  rowAfterKey,
  scrollFor,
  wantsMore,
  windowOf,
} from "../../src/dashboard/page/components/record-window.ts";
import {
  binSpan,
  binsFor,
  datesOf,
  fittingBin,
  type Period,
  shifted,
  spanOf,
  usualBin,
} from "../../src/dashboard/page/pages/usage/usage-period.ts";
import {
  FIRST_VIEW,
  queryOf,
  type View,
  viewOf,
  withBar,
  withFilter,
  withoutFilter,
  withPeriod,
} from "../../src/dashboard/page/pages/usage/usage-view.ts";

const HOUR = 3_600_000;

/** Node takes a change of TZ up at once. */
function inZone<T>(zone: string, work: () => T): T {
  const before = process.env.TZ;
  process.env.TZ = zone;
  try {
    return work();
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
}

function local(text: string): number {
  return new Date(text).getTime();
}

t.test("periods follow the browser's time zone", (t) => {
  inZone("Asia/Shanghai", () => {
    const now = local("2026-11-15T09:30:00");
    const span = (period: Period) => {
      const { since, until } = spanOf(period, now);
      return [new Date(since).toISOString(), new Date(until).toISOString()];
    };
    t.same(span({ kind: "today" }), ["2026-11-14T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span({ kind: "7d" }), ["2026-11-08T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span({ kind: "30d" }), ["2026-10-16T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span({ kind: "month" }), ["2026-10-31T16:00:00.000Z", "2026-11-30T16:00:00.000Z"]);
    t.same(span({ kind: "custom", from: "2026-02-27", to: "2026-03-01" }), [
      "2026-02-26T16:00:00.000Z",
      "2026-03-01T16:00:00.000Z",
    ]);
    t.same(
      span({ kind: "custom", from: "2026-03-01", to: "2026-02-27" }),
      span({ kind: "custom", from: "2026-02-27", to: "2026-03-01" }),
      "either way round",
    );
    t.same(span({ kind: "custom", from: "2026-02-30", to: "x" }), span({ kind: "7d" }), "no such day");
  });
  t.end();
});

t.test("a day at the change of the clocks has 23 or 25 hours, and a bar for each", (t) => {
  inZone("Europe/Berlin", () => {
    const spring = spanOf({ kind: "today" }, local("2026-03-29T12:00:00"));
    t.equal((spring.until - spring.since) / HOUR, 23);
    t.equal(calendarBins(spring.since, spring.until, "hour").length, 23);
    const autumn = spanOf({ kind: "today" }, local("2026-10-25T12:00:00"));
    t.equal((autumn.until - autumn.since) / HOUR, 25);
    const hours = calendarBins(autumn.since, autumn.until, "hour").map((at) => new Date(at).getHours());
    t.same(hours.slice(0, 5), [0, 1, 2, 2, 3], "two o'clock is there twice");
    const week = spanOf({ kind: "7d" }, local("2026-10-28T12:00:00"));
    t.equal(calendarBins(week.since, week.until, "day").length, 7);
    t.same(datesOf(week), { from: "2026-10-22", to: "2026-10-28" });
  });
  inZone("America/Sao_Paulo", () => {
    // On 2018-11-04 there was no midnight: the day began at one.
    const day = spanOf({ kind: "custom", from: "2018-11-04", to: "2018-11-04" }, 0);
    t.equal(new Date(day.since).getHours(), 1);
    t.equal(calendarBins(day.since, day.until, "hour").length, 23);
  });
  inZone("Asia/Kolkata", () => {
    const day = spanOf({ kind: "today" }, local("2026-11-15T12:00:00"));
    t.ok(calendarBins(day.since, day.until, "hour").every((at) => new Date(at).getMinutes() === 0));
  });
  inZone("Pacific/Apia", () => {
    // 2011-12-30 never was.
    const span = spanOf({ kind: "custom", from: "2011-12-28", to: "2012-01-02" }, 0);
    t.same(
      calendarBins(span.since, span.until, "day").map((at) => new Date(at).getDate()),
      [28, 29, 31, 1, 2],
    );
  });
  t.end();
});

t.test("the next and the previous period have the same length, also over a change of the clocks", (t) => {
  inZone("Europe/Berlin", () => {
    const week = spanOf({ kind: "7d" }, local("2026-10-28T12:00:00"));
    t.same(shifted(week, -1), { kind: "custom", from: "2026-10-15", to: "2026-10-21" });
    const before = shifted(week, -1);
    t.same(datesOf(spanOf(shifted(spanOf(before, 0), 1), 0)), datesOf(week), "there and back");
  });
  t.end();
});

t.test("bins are offered as far as they can be distinguished", (t) => {
  inZone("UTC", () => {
    const now = local("2026-11-15T12:00:00");
    const days = (count: number) => ({ since: now, until: now + count * 24 * HOUR });
    t.same(binsFor(days(1)), ["hour"]);
    t.same(binsFor(days(7)), ["hour", "day"]);
    t.same(binsFor(days(31)), ["hour", "day", "month"]);
    t.same(binsFor(days(400)), ["day", "month"]);
    t.same(binsFor(days(3000)), ["month"]);
    t.equal(usualBin(days(1)), "hour");
    t.equal(usualBin(days(30)), "day");
    t.equal(usualBin(days(365)), "month");
    t.equal(fittingBin(days(400), "hour"), "month", "a wish that does not fit");
    t.equal(fittingBin(days(7), "hour"), "hour");
  });
  t.end();
});

t.test("a bar reaches to the next one, and the last to the end", (t) => {
  const whole = { since: 5, until: 40 };
  t.same(binSpan([0, 10, 20], 10, whole), { since: 10, until: 20 });
  t.same(binSpan([0, 10, 20], 20, whole), { since: 20, until: 40 });
  t.same(binSpan([0, 10, 20], 0, whole), { since: 5, until: 10 }, "no more than was asked for");
  t.equal(binSpan([0, 10, 20], 11, whole), null, "of another chart");
  t.end();
});

t.test("the daemon's bins are put into those of the whole period", (t) => {
  inZone("UTC", () => {
    const span = { since: local("2026-11-01T00:00:00"), until: local("2026-11-05T00:00:00") };
    const given = {
      bins: [local("2026-11-02T13:15:00"), local("2026-11-03T00:00:00")],
      end: local("2026-11-04T00:00:00"),
    };
    const frame = framed(given, span, "day", true);
    t.equal(frame.bins.length, 4);
    t.same(spread([7, 5], frame), [0, 7, 5, 0]);
    const foreign = framed(given, span, "day", false);
    t.same(foreign.bins, given.bins, "another zone's days stay as they are");
    t.same(spread([7, 5], foreign), [7, 5]);
    t.same(spread([], framed({ bins: [], end: null }, span, "day", true)), [0, 0, 0, 0]);
  });
  t.end();
});

t.test("labels below the axis do not touch", (t) => {
  t.same(labelled(24, 1200, 50), [...Array(24).keys()]);
  t.same(labelled(24, 390, 60), [0, 4, 8, 12, 16, 20]);
  t.ok(labelled(720, 800, 60).length * 60 <= 800);
  t.same(labelled(0, 800, 60), []);
  t.same(labelled(3, 10, 60), [0], "and there is always one");
  t.end();
});

t.test("a view goes into the address and comes back the same", (t) => {
  const view: View = {
    period: { kind: "custom", from: "2026-11-01", to: "2026-11-07" },
    bin: "hour",
    by: "model",
    measure: "tokens",
    filters: { tool: "a&b=c #<i>", group: "", end: "refused" },
    at: 1_763_164_800_000,
    record: "01JC0000000000000000000000",
  };
  t.same(viewOf(new URLSearchParams(queryOf(view).toString())), view);
  t.equal(queryOf(FIRST_VIEW).toString(), "", "the first view needs no words");
  t.same(viewOf(new URLSearchParams("")), FIRST_VIEW);
  t.end();
});

t.test("an address that cannot be read is ignored", (t) => {
  for (const query of [
    "period=fortnight&bin=second&by=colour&show=love&end=happy&at=-1&record=../x",
    "period=2026-02-30..2026-03-01&at=1e9",
    "period=2026-01-01..2026-01-02..2026-01-03",
    "at=99999999999999999999",
  ]) {
    t.same(viewOf(new URLSearchParams(query)), FIRST_VIEW, query);
  }
  t.same(
    viewOf(new URLSearchParams("period=2026-01-05..2026-01-01")).period,
    { kind: "custom", from: "2026-01-01", to: "2026-01-05" },
    "the wrong way round",
  );
  t.end();
});

t.test("filters are added and removed", (t) => {
  const barred = withBar(FIRST_VIEW, 5);
  t.equal(barred.at, 5);
  t.equal(withBar(barred, 5).at, null, "the same bar once more");
  t.equal(withPeriod(barred, { kind: "today" }).at, null, "other bars");
  const filtered = withFilter(withFilter(FIRST_VIEW, "tool", "codex"), "end", "refused");
  t.same(withoutFilter(filtered, "tool").filters, { end: "refused" });
  t.same(FIRST_VIEW.filters, {}, "nothing is changed in place");
  t.end();
});

t.test("only the visible rows of a million are drawn", (t) => {
  const scroll = { top: 30_000_000, height: 600, rowHeight: 30, count: 1_000_000 };
  const { first, end } = windowOf({ ...scroll, top: 15_000_000 });
  t.ok(first <= 500_000 && end >= 500_021, "what is seen");
  t.ok(end - first < 60, "and little more");
  t.same(windowOf({ ...scroll, top: 0, count: 3 }), { first: 0, end: 3 });
  t.same(windowOf({ ...scroll, top: 0, count: 0 }), { first: 0, end: 0 });
  t.equal(windowOf({ ...scroll, top: -50 }).first, 0, "a scroll that bounces");
  t.equal(windowOf({ ...scroll, count: 10 }).end, 10, "a list that became shorter");
  t.end();
});

t.test("the next page is fetched before the end of the list is visible", (t) => {
  t.ok(wantsMore({ first: 0, end: 40 }, 40));
  t.notOk(wantsMore({ first: 0, end: 40 }, 500));
  t.ok(wantsMore({ first: 380, end: 420 }, 500));
  t.notOk(wantsMore({ first: MOST_ROWS - 40, end: MOST_ROWS }, MOST_ROWS), "up to a bound");
  t.end();
});

t.test("keys move from row to row, and the row stays visible", (t) => {
  t.equal(rowAfterKey("ArrowDown", 0, 10, 5), 1);
  t.equal(rowAfterKey("ArrowUp", 0, 10, 5), 0);
  t.equal(rowAfterKey("PageDown", 7, 10, 5), 9);
  t.equal(rowAfterKey("End", 0, 10, 5), 9);
  t.equal(rowAfterKey("Home", 9, 10, 5), 0);
  t.equal(rowAfterKey("x", 3, 10, 5), null);
  t.equal(rowAfterKey("ArrowDown", 0, 0, 5), null);
  const scroll = { top: 300, height: 330, rowHeight: 30, count: 100 };
  t.equal(scrollFor(5, scroll, 30), 150, "above");
  t.equal(scrollFor(12, scroll, 30), null, "in sight");
  t.equal(scrollFor(25, scroll, 30), 480, "below, where the head covers a row");
  t.end();
});

t.test("a record's time in pieces: waited, asked, answered", (t) => {
  const record = { started_at: 1000, waited_ms: 200, first_byte_at: 2000, ended_at: 5000 };
  t.same(stretchesOf(record, 0), [
    { what: "waited", from: 0, to: 200 },
    { what: "asked", from: 200, to: 1000 },
    { what: "answered", from: 1000, to: 4000 },
  ]);
  t.same(
    stretchesOf({ ...record, waited_ms: 0, first_byte_at: null, ended_at: null }, 3000),
    [{ what: "asked", from: 0, to: 2000 }],
    "still running",
  );
  t.same(stretchesOf({ ...record, ended_at: 900 }, 0), [], "a clock that was set back");
  const odd = stretchesOf({ ...record, first_byte_at: 100, waited_ms: 9999 }, 0);
  t.same(odd, [{ what: "waited", from: 0, to: 4000 }], "never a piece that ends before it begins");
  t.end();
});

t.test("a bar of pieces is as wide as its place, and every piece stays visible", (t) => {
  const bars = barsOf(
    stretchesOf({ started_at: 0, waited_ms: 1, first_byte_at: 2, ended_at: 100_000 }, 0),
    300,
  );
  t.equal(bars.length, 3);
  t.ok(bars.every(({ width }) => width > 2));
  const [last] = bars.slice(-1);
  t.ok(Math.abs((last?.x ?? 0) + (last?.width ?? 0) - 300) < 0.001);
  t.same(barsOf([], 300), []);
  t.end();
});
