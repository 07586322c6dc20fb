import t from "tap";
import { type Calendar, findWindow, systemCalendar } from "../../src/limits/windows.ts";
import { zoneCalendar } from "../../src/shared/calendar.ts";

const HOUR = 3_600_000;
/** Their clocks change at night, at midnight, by half an hour, and by a whole day. */
const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/Sao_Paulo",
  "Australia/Lord_Howe",
  "America/St_Johns",
  "Asia/Kathmandu",
  "Pacific/Apia",
];

/** The days and months at times from 2010 to 2012. */
function windowsIn(calendar: Calendar): unknown[] {
  const windows: unknown[] = [];
  for (let time = Date.UTC(2010, 0, 1); time < Date.UTC(2013, 0, 1); time += 29 * HOUR + 7000)
    windows.push([findWindow("day", time, calendar), findWindow("month", time, calendar)]);
  return windows;
}

t.test("a zone's days and months are those that the system has in it", async (t) => {
  const before = process.env.TZ;
  t.teardown(() => {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  });
  for (const zone of ZONES) {
    process.env.TZ = zone;
    t.equal(JSON.stringify(windowsIn(zoneCalendar(zone))), JSON.stringify(windowsIn(systemCalendar)), zone);
  }
});
