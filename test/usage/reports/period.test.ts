import t from "tap";
import { parseSince, parseUntil } from "../../../src/usage/reports/calendar.ts";

process.env.TZ = "Europe/Berlin";

/** Wednesday, 12:34:56.789 in Berlin. */
const NOW = Date.parse("2026-11-18T12:34:56.789+01:00");

function since(text: string, now = NOW): string | null {
  const found = parseSince(text, now);
  return found.ok ? new Date(found.at).toISOString() : null;
}

function until(text: string, now = NOW): string | null {
  const found = parseUntil(text, now);
  return found.ok ? new Date(found.at).toISOString() : null;
}

t.test("a length of time counts back from now, days and weeks by the calendar", async (t) => {
  t.equal(since("30m"), "2026-11-18T11:04:56.789Z");
  t.equal(since("12h"), "2026-11-17T23:34:56.789Z");
  t.equal(since("7d"), "2026-11-11T11:34:56.789Z");
  t.equal(since("2w"), "2026-11-04T11:34:56.789Z");
  t.equal(since(" 7D "), "2026-11-11T11:34:56.789Z");
  t.equal(since("30d"), "2026-10-19T10:34:56.789Z", "the same time of day in summer time");
  t.equal(until("1h"), "2026-11-18T10:34:56.789Z");
  t.equal(since("now"), new Date(NOW).toISOString());
});

t.test("days begin at midnight here, and as an end they belong to the period whole", async (t) => {
  t.equal(since("today"), "2026-11-17T23:00:00.000Z");
  t.equal(until("today"), "2026-11-18T23:00:00.000Z");
  t.equal(since("yesterday"), "2026-11-16T23:00:00.000Z");
  t.equal(until("yesterday"), "2026-11-17T23:00:00.000Z");
  t.equal(since("2026-11-01"), "2026-10-31T23:00:00.000Z");
  t.equal(until("2026-11-01"), "2026-11-01T23:00:00.000Z");
  t.equal(since("2026-02"), "2026-01-31T23:00:00.000Z");
  t.equal(until("2026-02"), "2026-02-28T23:00:00.000Z");
  t.equal(until("2026-12"), "2026-12-31T23:00:00.000Z");
});

t.test("a weekday is the last one, today included", async (t) => {
  t.equal(since("wednesday"), "2026-11-17T23:00:00.000Z");
  t.equal(since("wed"), "2026-11-17T23:00:00.000Z");
  t.equal(since("tuesday"), "2026-11-16T23:00:00.000Z");
  t.equal(since("thursday"), "2026-11-11T23:00:00.000Z");
  t.equal(since("Monday"), "2026-11-15T23:00:00.000Z");
  t.equal(until("monday"), "2026-11-16T23:00:00.000Z");
});

t.test("a time is exact, local without a zone and otherwise of its own", async (t) => {
  t.equal(since("10:07"), "2026-11-18T09:07:00.000Z");
  t.equal(since("9:07"), "2026-11-18T08:07:00.000Z");
  t.equal(since("2026-11-01T10:07"), "2026-11-01T09:07:00.000Z");
  t.equal(since("2026-11-01 10:07:08"), "2026-11-01T09:07:08.000Z");
  t.equal(since("2026-11-01T10:07:08.5"), "2026-11-01T09:07:08.500Z");
  t.equal(since("2026-11-01T10:07Z"), "2026-11-01T10:07:00.000Z");
  t.equal(since("2026-11-01T10:07:08.123456Z"), "2026-11-01T10:07:08.123Z");
  t.equal(since("2026-11-01T10:07+05:30"), "2026-11-01T04:37:00.000Z");
  t.equal(since("2026-11-01T10:07+0530"), "2026-11-01T04:37:00.000Z");
  t.equal(since("2026-11-01T10:07-08"), "2026-11-01T18:07:00.000Z");
  t.equal(until("2026-11-01T10:07Z"), "2026-11-01T10:07:00.000Z");
});

t.test("the change of the clocks makes days of 23 and 25 hours", async (t) => {
  const length = (day: string) => (Date.parse(until(day) ?? "") - Date.parse(since(day) ?? "")) / 3_600_000;
  t.equal(length("2026-03-29"), 23);
  t.equal(length("2026-10-25"), 25);
  t.equal(length("2026-10-26"), 24);
  const morning = Date.parse("2026-10-26T12:00:00+01:00");
  t.equal(since("1d", morning), "2026-10-25T11:00:00.000Z");
  t.equal(since("2d", morning), "2026-10-24T10:00:00.000Z", "a day ago has the same time on the wall");
  t.equal(since("24h", morning), "2026-10-25T11:00:00.000Z");
  t.equal(since("48h", morning), "2026-10-24T11:00:00.000Z", "hours are hours");
  t.teardown(() => {
    process.env.TZ = "Europe/Berlin";
  });
  process.env.TZ = "America/Havana";
  t.equal(since("2026-03-08"), "2026-03-08T05:00:00.000Z", "a day whose midnight is left out begins at one");
  t.equal(length("2026-03-08"), 23);
  process.env.TZ = "Asia/Kathmandu";
  t.equal(since("2026-11-01"), "2026-10-31T18:15:00.000Z");
});

t.test("a text that is not a time is refused, with examples and the text as it was typed", async (t) => {
  const none = [
    "",
    "7",
    "d",
    "7y",
    "-7d",
    "1.5d",
    "tomorrow",
    "2026-13",
    "2026-00",
    "2026-02-30",
    "2026-11-1",
    "26-11-01",
    "2026-11-01T25:00",
    "2026-11-01T10",
    "2026-11-01T10:07+25:00x",
    "24:00",
    "10:60",
    "1969-12-31",
    "9999999d",
    "constructor",
    "__proto__",
  ];
  for (const text of none) {
    t.equal(since(text), null, text);
    t.equal(until(text), null, text);
  }
  const found = parseSince("Last Tuesday", NOW);
  t.match(found, { ok: false, problem: /^--since: "Last Tuesday" is not a time$/, next: /7d.*2026-11-01/ });
  t.match(parseUntil("x", NOW), { ok: false, problem: /^--until: / });
});

t.test("a count of days beyond every calendar is not a time", async (t) => {
  for (const text of ["999999d", "999999w"]) {
    const found = parseSince(text, NOW);
    t.ok(!found.ok || Number.isFinite(found.at), text);
  }
});
