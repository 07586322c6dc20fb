import t from "tap";
import { DAY, HOUR, MINUTE, startJourney } from "../doubles/mirror-journey.ts";

for (const late of [3, 4, 30]) {
  t.test(`a row that comes ${late} hours after its request is matched by its id`, async (t) => {
    const journey = await startJourney(t, "sub2api");
    await journey.idle();
    journey.clock.pass(MINUTE);
    const answer = await journey.ask({ "x-test-no-row": "1" });
    const requestId = answer.headers.get("x-client-request-id") ?? "";
    t.ok(requestId, "the gateway gave an id");
    await journey.sync();
    journey.clock.pass(late * HOUR);
    await journey.sync();
    t.match((await journey.mirror()).records, { matched: 0, missing: 1 });
    journey.elsewhere({ requestId, input: 12, output: 5 });
    journey.clock.pass(MINUTE);
    await journey.sync();
    const { rows, records, alarms } = await journey.mirror();
    t.strictSame(alarms, [], JSON.stringify(rows));
    t.match(records, { matched: 1, missing: 0 });
    journey.clock.pass(HOUR);
    await journey.ask();
    await journey.sync();
    t.match((await journey.mirror()).records, { matched: 2, missing: 0 });
  });
}

const SKEWS: readonly (readonly [number, number])[] = [
  [DAY, 0],
  [0, 7 * HOUR],
  [5 * HOUR, 0],
  [-5 * HOUR, 0],
];

for (const [before, after] of SKEWS) {
  const words = `${before / HOUR} h ahead, then ${after / HOUR} h`;
  t.test(`setting the clock of the console (${words}) makes no row foreign`, async (t) => {
    const journey = await startJourney(t, "sub2api");
    journey.console.skew = before;
    await journey.sync();
    journey.clock.pass(MINUTE);
    for (let n = 0; n < 3; n += 1) {
      await journey.ask({ "x-test-input": `${30 + n}` });
      journey.clock.pass(n === 2 ? MINUTE : 4 * HOUR);
      await journey.sync();
    }
    journey.console.skew = after;
    for (let n = 0; n < 5; n += 1) {
      journey.clock.pass(6 * HOUR);
      await journey.ask({ "x-test-input": `${90 + n}` });
      journey.clock.pass(MINUTE);
      await journey.sync();
      const { rows, records, alarms } = await journey.mirror();
      const said = JSON.stringify(rows);
      t.strictSame(
        [alarms.length, rows.foreign_certain, records.missing, records.matched],
        [0, 0, 0, 4 + n],
        said,
      );
    }
  });
}

t.test("a leak while keybearer does not run is seen at the next start", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  await journey.sync();
  await journey.daemon.stop(0);
  journey.clock.pass(HOUR);
  journey.elsewhere();
  journey.clock.pass(HOUR);
  const again = await journey.startAgain();
  await again.sync();
  t.match(await again.mirror(), { alarms: [{ count: 1 }], rows: { by_id: 1 } });
});
