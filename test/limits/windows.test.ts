import t, { type Test } from "tap";
import type { Period } from "../../src/config/schema.ts";
import { findWindow, systemCalendar, WindowCounts } from "../../src/limits/windows.ts";
import { zoneCalendar } from "../../src/shared/calendar.ts";
import { at, MINUTE } from "./limits-under-test.ts";

type Row = [what: string, period: Period, now: string, start: string, end: string];

function table(t: Test, rows: readonly Row[], calendar = systemCalendar) {
  for (const [what, period, now, start, end] of rows) {
    const window = findWindow(period, at(now), calendar);
    t.strictSame([iso(window.start), iso(window.end)], [iso(at(start)), iso(at(end))], `${what} (${now})`);
  }
}

const iso = (time: number) => new Date(time).toISOString();

t.test("windows below a day are aligned to the Unix epoch, wherever one is", async (t) => {
  const rows: Row[] = [
    ["second", "second", "2026-11-15T12:00:00.999Z", "2026-11-15T12:00:00Z", "2026-11-15T12:00:01Z"],
    [
      "its first moment",
      "second",
      "2026-11-15T12:00:01.000Z",
      "2026-11-15T12:00:01Z",
      "2026-11-15T12:00:02Z",
    ],
    ["minute", "minute", "2026-11-15T12:00:59.999Z", "2026-11-15T12:00:00Z", "2026-11-15T12:01:00Z"],
    ["its first moment", "minute", "2026-11-15T12:01:00Z", "2026-11-15T12:01:00Z", "2026-11-15T12:02:00Z"],
    ["hour", "hour", "2026-11-15T12:59:59.999Z", "2026-11-15T12:00:00Z", "2026-11-15T13:00:00Z"],
    ["across midnight", "hour", "2026-12-31T23:30:00Z", "2026-12-31T23:00:00Z", "2027-01-01T00:00:00Z"],
  ];
  for (const zone of ["UTC", "Asia/Kolkata", "Australia/Lord_Howe"]) {
    await inZone(zone, () => table(t, rows));
  }
});

const ZONES: Readonly<Record<string, readonly Row[]>> = {
  UTC: [
    ["a day", "day", "2026-11-15T23:59:59.999Z", "2026-11-15T00:00Z", "2026-11-16T00:00Z"],
    ["its first moment", "day", "2026-11-16T00:00:00Z", "2026-11-16T00:00Z", "2026-11-17T00:00Z"],
    ["the last day of a year", "day", "2026-12-31T12:00Z", "2026-12-31T00:00Z", "2027-01-01T00:00Z"],
    ["a month of 31 days", "month", "2026-01-31T23:59:59.999Z", "2026-01-01T00:00Z", "2026-02-01T00:00Z"],
    ["a month of 30 days", "month", "2026-04-30T23:59:59.999Z", "2026-04-01T00:00Z", "2026-05-01T00:00Z"],
    ["February", "month", "2026-02-28T23:59:59Z", "2026-02-01T00:00Z", "2026-03-01T00:00Z"],
    ["February of a leap year", "month", "2028-02-29T23:59:59Z", "2028-02-01T00:00Z", "2028-03-01T00:00Z"],
    ["the leap day", "day", "2028-02-29T12:00Z", "2028-02-29T00:00Z", "2028-03-01T00:00Z"],
    ["no leap day in 2100", "day", "2100-02-28T12:00Z", "2100-02-28T00:00Z", "2100-03-01T00:00Z"],
    ["December", "month", "2026-12-31T23:59:59Z", "2026-12-01T00:00Z", "2027-01-01T00:00Z"],
  ],
  "Asia/Shanghai": [
    ["a day begins at 16:00 UTC", "day", "2026-11-14T16:00:00Z", "2026-11-14T16:00Z", "2026-11-15T16:00Z"],
    ["just before", "day", "2026-11-14T15:59:59.999Z", "2026-11-13T16:00Z", "2026-11-14T16:00Z"],
    ["a month as well", "month", "2026-10-31T16:00:00Z", "2026-10-31T16:00Z", "2026-11-30T16:00Z"],
  ],
  "Asia/Kolkata": [
    ["half an hour aside", "day", "2026-11-15T12:00Z", "2026-11-14T18:30Z", "2026-11-15T18:30Z"],
  ],
  "Europe/Berlin": [
    ["23 hours: clocks go forward", "day", "2026-03-29T12:00Z", "2026-03-28T23:00Z", "2026-03-29T22:00Z"],
    ["the hour before", "day", "2026-03-29T00:59:59.999Z", "2026-03-28T23:00Z", "2026-03-29T22:00Z"],
    ["25 hours: clocks go back", "day", "2026-10-25T12:00Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z"],
    ["the first 02:30", "day", "2026-10-25T00:30Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z"],
    ["the second 02:30", "day", "2026-10-25T01:30Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z"],
    ["March, an hour short", "month", "2026-03-15T12:00Z", "2026-02-28T23:00Z", "2026-03-31T22:00Z"],
    ["October, an hour longer", "month", "2026-10-15T12:00Z", "2026-09-30T22:00Z", "2026-10-31T23:00Z"],
  ],
  "America/New_York": [
    ["clocks go forward", "day", "2026-03-08T12:00Z", "2026-03-08T05:00Z", "2026-03-09T04:00Z"],
    ["clocks go back", "day", "2026-11-01T12:00Z", "2026-11-01T04:00Z", "2026-11-02T05:00Z"],
  ],
  "Australia/Lord_Howe": [
    ["half an hour forward", "day", "2026-10-04T00:00Z", "2026-10-03T13:30Z", "2026-10-04T13:00Z"],
    ["half an hour back", "day", "2026-04-05T00:00Z", "2026-04-04T13:00Z", "2026-04-05T13:30Z"],
  ],
  "America/Sao_Paulo": [
    ["midnight does not exist", "day", "2018-11-04T12:00Z", "2018-11-04T03:00Z", "2018-11-05T02:00Z"],
    ["the day before it", "day", "2018-11-04T02:59:59.999Z", "2018-11-03T03:00Z", "2018-11-04T03:00Z"],
    ["midnight goes back to 23:00", "day", "2018-02-18T02:30Z", "2018-02-17T02:00Z", "2018-02-18T03:00Z"],
  ],
  "America/Havana": [
    ["two midnights", "day", "2026-11-01T12:00Z", "2026-11-01T04:00Z", "2026-11-02T05:00Z"],
    ["between the two", "day", "2026-11-01T04:30Z", "2026-11-01T04:00Z", "2026-11-02T05:00Z"],
  ],
  "America/St_Johns": [
    ["back over midnight, before", "day", "2010-11-07T02:30:30Z", "2010-11-07T02:30Z", "2010-11-08T03:30Z"],
    ["23:30 for the second time", "day", "2010-11-07T03:00Z", "2010-11-07T02:30Z", "2010-11-08T03:30Z"],
    ["23:30 for the first time", "day", "2010-11-07T02:00Z", "2010-11-06T02:30Z", "2010-11-07T02:30Z"],
  ],
  "Pacific/Apia": [
    [
      "the day before one that was left out",
      "day",
      "2011-12-30T09:00Z",
      "2011-12-29T10:00Z",
      "2011-12-30T10:00Z",
    ],
    ["the day after it", "day", "2011-12-30T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"],
  ],
};

for (const [zone, rows] of Object.entries(ZONES)) {
  t.test(`days and months are those of ${zone}`, async (t) => {
    await inZone(zone, () => table(t, rows));
  });
}

t.test("in every place, each moment is in one window, and the windows leave no gap", async (t) => {
  for (const zone of Object.keys(ZONES)) {
    await inZone(zone, () => {
      const faults: string[] = [];
      for (const [year, period] of [
        [2010, "day"],
        [2018, "day"],
        [2026, "day"],
        [2011, "month"],
        [2028, "month"],
      ] as const) {
        const until = Date.UTC(year + 1, 0, 1);
        let window = findWindow(period, Date.UTC(year, 0, 1), systemCalendar);
        while (window.end < until) {
          for (const moment of [
            window.start,
            (window.start + window.end) / 2,
            window.end - 1,
            window.end - 30 * MINUTE,
          ]) {
            const found = findWindow(period, moment, systemCalendar);
            if (found.start !== window.start || found.end !== window.end)
              faults.push(`${period} ${iso(moment)}`);
          }
          const next = findWindow(period, window.end, systemCalendar);
          if (next.start !== window.end) faults.push(`${period} ${iso(window.end)}: a gap`);
          window = next;
        }
      }
      t.same(faults, [], zone);
    });
  }
});

/** Node reads the zone again when it is set here. */
async function inZone(zone: string, run: () => void): Promise<void> {
  const before = process.env.TZ;
  process.env.TZ = zone;
  try {
    const named = (options: Intl.DateTimeFormatOptions) =>
      new Intl.DateTimeFormat("en", options).resolvedOptions().timeZone;
    if (named({}) !== named({ timeZone: zone })) throw new Error(`not in ${zone}`);
    run();
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
}

t.test("when the calendar changes, the counts belong to the window of the last request", (t) => {
  let calendar = zoneCalendar("Asia/Shanghai");
  const counts = new WindowCounts({
    at: (time) => calendar.at(time),
    dayStart: (year, month, day) => calendar.dayStart(year, month, day),
    zone: (time) => calendar.zone(time),
  });
  const requests = (per: "day" | "month", time: string) => counts.applyingAt(per, at(time)).requests;
  counts.countRequest(at("2026-01-20T10:00:00Z"));
  calendar = zoneCalendar("Europe/Berlin");
  t.equal(requests("month", "2026-01-31T22:59:59Z"), 1, "in Shanghai this is February");
  t.equal(requests("month", "2026-01-31T23:00:00Z"), 0);
  t.equal(requests("day", "2026-01-20T22:59:59Z"), 1);
  t.equal(requests("day", "2026-01-20T23:00:00Z"), 0);
  counts.countRequest(at("2026-01-20T20:00:00Z"));
  t.equal(requests("day", "2026-01-20T22:00:00Z"), 2);
  calendar = zoneCalendar("Asia/Shanghai");
  t.equal(requests("day", "2026-01-20T22:00:00Z"), 1, "20:00 is the next day there");
  t.equal(requests("month", "2026-01-20T22:00:00Z"), 2, "and back");
  t.end();
});
