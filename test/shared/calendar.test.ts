import { execFileSync } from "node:child_process";
import t from "tap";
import { windowOf } from "../../src/limits/windows.ts";
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

/** The days and months that Node's own Date has in a zone, at times from 2010 to 2012. */
function systemWindows(zone: string): unknown {
  const program = `
    const { windowOf, systemCalendar } = await import(${JSON.stringify(new URL("../../src/limits/windows.js", import.meta.url).href)});
    const windows = [];
    for (let time = Date.UTC(2010, 0, 1); time < Date.UTC(2013, 0, 1); time += 29 * ${HOUR} + 7000)
      windows.push(["day", "month"].map((per) => windowOf(per, time, systemCalendar)));
    console.log(JSON.stringify(windows));`;
  const options = { env: { ...process.env, TZ: zone }, encoding: "utf8", maxBuffer: 2 ** 27 } as const;
  return JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", program], options));
}

t.test("a zone's days and months are those that the system has in it", async (t) => {
  for (const zone of ZONES) {
    const calendar = zoneCalendar(zone);
    const windows: unknown[] = [];
    for (let time = Date.UTC(2010, 0, 1); time < Date.UTC(2013, 0, 1); time += 29 * HOUR + 7000)
      windows.push([windowOf("day", time, calendar), windowOf("month", time, calendar)]);
    t.equal(JSON.stringify(windows), JSON.stringify(systemWindows(zone)), zone);
  }
});
